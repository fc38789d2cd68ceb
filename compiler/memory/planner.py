"""Plan the memory of a model, and keep a budget: by another order, then by computing twice."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal, TypeAlias

import onnx_ir as ir

from cannc.compiler.core.errors import UsageError
from cannc.compiler.memory.blame import over_budget
from cannc.compiler.memory.builder import build_program
from cannc.compiler.memory.liveness import Buffer, buffers, live_bytes, spans
from cannc.compiler.memory.ordering import best_order
from cannc.compiler.memory.placement import Placement, place
from cannc.compiler.memory.plan import SIZES_CURE, Holding, MemoryPlan
from cannc.compiler.memory.program import Program
from cannc.compiler.memory.recompute import recompute
from cannc.compiler.memory.sizing import InputShapes, forms_at, largest, open_dims
from cannc.compiler.om.memory import ARENA, OUTSIDE, PLAN, OpMemory

Optimizer: TypeAlias = Literal["none", "recompute"]
_BLAMED = 5


@dataclass(frozen=True)
class Planned:
    """A model with its plan.

    Attributes:
        model: The model in the planned order; the given one when nothing had to change.
        plan: The plan.
        places: Node name -> where its results lie, for nodes of the main graph.
    """

    model: ir.Model
    plan: MemoryPlan
    places: dict[str, OpMemory]

    def attributes(self) -> dict[str, str | int | bytes]:
        """Return the model attributes that carry the plan in an artifact."""
        return {PLAN: self.plan.stored(), ARENA: self.plan.arena_bytes or 0}


def plan_memory(
    model: ir.Model,
    sizes: Sequence[InputShapes],
    *,
    budget: int | None = None,
    optimizer: Optimizer = "none",
    open_model: ir.Model | None = None,
) -> Planned:
    """Plan the memory of a model's main graph.

    Args:
        model: The model; never changed.
        sizes: Input shapes of each gear; a single one for fixed shapes. The plan serves them all:
            each tensor gets its greatest size over the gears that no other gear covers.
        budget: Bytes that the arena may take.
        optimizer: ``recompute`` allows to compute cheap nodes twice where the order alone does
            not keep the budget.
        open_model: The model before its shapes were fixed; smaller sizes are looked for in it.

    Raises:
        WorkspaceError: ``MEM001`` the budget cannot be kept, ``MEM002`` it cannot be checked.
        UsageError: ``MEM003`` the sizes contradict the model.
    """
    gears = largest(sizes) if sizes else [{}]
    missing = open_dims(model, gears[0])
    if missing:
        plan = MemoryPlan(None, open_dims=tuple(missing))
        if budget is not None:
            raise _unknown(plan.why_open())
        return Planned(model, plan, {})
    forms = [forms_at(model, gear) for gear in gears]
    program = build_program(model.graph, forms)
    if budget is not None and program.unsized:
        raise _unknown(f"sizes of {', '.join(program.unsized[:3])} depend on data")
    given = _Draft.of(program, range(len(program.steps)))
    draft = _Draft.of(program, best_order(program))
    reordered = draft.bound < given.bound
    if reordered:
        model = in_order(model, draft.order)
        draft = _Draft.of(build_program(model.graph, forms), range(len(draft.order)))
    recomputed: tuple[str, ...] = ()
    if budget is not None and draft.placement.arena > budget and optimizer == "recompute":
        model, forms, recomputed = recompute(model, forms, budget)
        program = build_program(model.graph, forms)
        draft = _Draft.of(program, range(len(program.steps)))
    plan = replace(
        draft.plan(),
        given_order_bytes=given.bound,
        sizes=tuple(gears),
        reordered=reordered,
        recomputed=recomputed,
    )
    if budget is not None and draft.placement.arena > budget:
        raise over_budget(
            open_model or model, draft.program, plan, budget, may_recompute=optimizer == "none"
        )
    return Planned(model, plan, draft.places())


def _unknown(why: str) -> UsageError:
    return UsageError(
        "MEM002",
        "the workspace budget cannot be checked",
        where="--max-workspace",
        why=why,
        fix=f"{SIZES_CURE}, or leave the budget out",
    )


def in_order(model: ir.Model, order: Sequence[int]) -> ir.Model:
    """Return a copy of the model with the nodes of its main graph in another order."""
    copy = model.clone()
    nodes = list(copy.graph)
    for index in order:
        copy.graph.remove(nodes[index])
        copy.graph.append(nodes[index])
    return copy


@dataclass(frozen=True)
class _Draft:
    """An order with its buffers and their places."""

    program: Program
    order: Sequence[int]
    buffers: list[Buffer]
    live: list[int]
    placement: Placement
    spans: list[tuple[int, int]]

    @classmethod
    def of(cls, program: Program, order: Sequence[int]) -> _Draft:
        found = buffers(program, order)
        live = live_bytes(found, len(order))
        bound = max(live, default=0)
        return cls(program, order, found, live, place(found, bound), spans(program, order))

    @property
    def bound(self) -> int:
        return max(self.live, default=0)

    def plan(self) -> MemoryPlan:
        program = self.program
        at = self.live.index(self.bound) if self.live else 0
        here = [buffer for buffer in self.buffers if buffer.first <= at <= buffer.last]
        here.sort(key=lambda buffer: -buffer.size)
        return MemoryPlan(
            arena_bytes=self.placement.arena,
            lower_bound_bytes=self.bound,
            input_bytes=program.input_bytes,
            output_bytes=program.output_bytes,
            unsized=tuple(program.unsized),
            peak_node=program.steps[self.order[at]].node.name or "" if self.bound else "",
            holdings=tuple(self._holding(buffer, at) for buffer in here[:_BLAMED]),
        )

    def _holding(self, buffer: Buffer, at: int) -> Holding:
        node = self.program.steps[self.order[at]].node
        if not buffer.tensors:
            return Holding(node.name or "", node.name or "", node.op_type, (), buffer.size)
        # Of the tensors that share the buffer, the last one that is written by then.
        written = [t for t in buffer.tensors if self.spans[t][0] <= at]
        tensor = self.program.tensors[max(written, key=lambda t: self.spans[t][0])]
        maker = tensor.value.producer()
        name, op_type = (maker.name or "", maker.op_type) if maker is not None else ("", "")
        return Holding(tensor.value.name or "", name, op_type, tensor.shape, buffer.size)

    def places(self) -> dict[str, OpMemory]:
        offset_of: dict[int, int] = {}
        scratch: dict[int, tuple[int, int]] = {}
        for buffer, offset in zip(self.buffers, self.placement.offsets, strict=True):
            offset_of.update(dict.fromkeys(buffer.tensors, offset))
            if not buffer.tensors:
                scratch[self.order[buffer.first]] = offset, buffer.size
        found = {}
        for index, step in enumerate(self.program.steps):
            tensors = [self.program.place.get(value) for value in step.node.outputs]
            offsets = tuple(OUTSIDE if t is None else offset_of[t] for t in tensors)
            found[step.node.name or ""] = OpMemory(offsets, scratch.get(index))
        return found
