"""Lower the peak by computing cheap values a second time, where they are needed again.

A value that waits unused over the peak is dropped and made anew just before its next reader, from
values that are alive then. Only cheap operators without chance are computed twice, and a step is
kept only when it lowers the peak.
"""

from __future__ import annotations

import onnx_ir as ir

from cannc.compiler.core.graphs import Names, all_graphs, subgraphs
from cannc.compiler.core.provenance import ORIGIN_KEY
from cannc.compiler.memory.builder import build_program
from cannc.compiler.memory.effects import is_cheap
from cannc.compiler.memory.liveness import buffers, live_bytes, spans
from cannc.compiler.memory.program import Program, aligned
from cannc.compiler.memory.sizing import Form, Forms

_SUFFIX = "__recompute"
_DEPTH = 4
_TRIES_PER_PEAK = 8
_MOST_ROUNDS = 200


def recompute(
    model: ir.Model, forms: list[dict[str, Form]], budget: int
) -> tuple[ir.Model, list[dict[str, Form]], tuple[str, ...]]:
    """Return a model that needs less, the forms of its values, and the names of new nodes.

    Works until the live bytes keep the budget or nothing helps any more.
    """
    forms = [dict(one) for one in forms]
    added: list[str] = []
    state = _Rated.of(model, forms)
    for _ in range(_MOST_ROUNDS):
        if state.peak <= budget:
            break
        better = _improved(state, forms)
        if better is None:
            break
        state, names = better
        added += names
    return state.model, forms, tuple(added)


class _Rated:
    """A model, its program, and how much is live where."""

    def __init__(self, model: ir.Model, program: Program) -> None:
        self.model, self.program = model, program
        order = range(len(program.steps))
        self.live = live_bytes(buffers(program, order), len(order))
        self.peak = max(self.live, default=0)
        self.at = self.live.index(self.peak) if self.live else 0
        self.spans = spans(program, order)

    @classmethod
    def of(cls, model: ir.Model, forms: list[dict[str, Form]]) -> _Rated:
        return cls(model, build_program(model.graph, forms))

    def rank(self) -> tuple[int, int]:
        """Lower is better: the peak, then how many steps reach it."""
        return self.peak, self.live.count(self.peak)


def _improved(state: _Rated, forms: list[dict[str, Form]]) -> tuple[_Rated, list[str]] | None:
    for tensor, reader in _waiting(state)[:_TRIES_PER_PEAK]:
        copier = _Copier(state, tensor, reader)
        names = copier.run()
        trial = [{**one, **copier.new_forms(one)} for one in forms]
        changed = _Rated.of(copier.model, trial)
        if changed.rank() < state.rank():
            for one, new in zip(forms, trial, strict=True):
                one.update(new)
            return changed, names
    return None


def _waiting(state: _Rated) -> list[tuple[int, int]]:
    """Return (tensor, next reading step) of cheap tensors that wait over the peak, large first."""
    program, at = state.program, state.at
    reads: dict[int, list[int]] = {}
    for index, step in enumerate(program.steps):
        for tensor in step.reads:
            reads.setdefault(tensor, []).append(index)
    found = []
    for tensor, (first, last) in enumerate(state.spans):
        if not first < at < last or at in reads[tensor]:
            continue
        maker = program.tensors[tensor].value.producer()
        if maker is not None and is_cheap(maker) and not subgraphs(maker):
            found.append((tensor, min(index for index in reads[tensor] if index > at)))
    return sorted(found, key=lambda entry: -program.tensors[entry[0]].size)


class _Copier:
    """Copies the makers of one tensor to just before a later reader, in a copy of the model."""

    def __init__(self, state: _Rated, tensor: int, reader: int) -> None:
        self.state, self.tensor, self.reader = state, tensor, reader
        self.model = state.model.clone()
        self.nodes = list(self.model.graph)
        self.old_nodes = [step.node for step in state.program.steps]
        self.index = {node: index for index, node in enumerate(self.nodes)}
        graphs = [graph for _, graph in all_graphs(self.model.graph)]
        self.names = Names(value.name for g in graphs for node in g for value in node.outputs)
        self.names.add(name for g in graphs for name in g.initializers)
        self.names.add(value.name for g in graphs for value in g.inputs)
        self.node_names = Names(node.name for g in graphs for node in g)
        self.copies: dict[ir.Value, ir.Value] = {}
        self.added: list[str] = []

    def run(self) -> list[str]:
        """Rewire the readers from `reader` on; return the names of the new nodes."""
        for node in self.nodes[self.reader :]:
            for place, value in enumerate(node.inputs):
                if value is not None and self._is_earlier(value):
                    node.replace_input_with(place, self._copy(value, 0))
        for old, copy in reversed(self.copies.items()):
            if not old.uses() and not old.is_graph_output():
                self._replace(old, copy)
        return self.added

    def _replace(self, old: ir.Value, copy: ir.Value) -> None:
        """Let the copy of a value that nobody reads any more stand for it: the node has moved."""
        maker, mover = old.producer(), copy.producer()
        assert maker is not None
        assert mover is not None
        self.added.remove(mover.name or "")
        self.model.graph.remove(maker, safe=True)
        mover.name, copy.name = maker.name, old.name
        mover.metadata_props.update(maker.metadata_props)

    def _is_earlier(self, value: ir.Value) -> bool:
        """Is it the tensor, or a view of it, made before the reader?"""
        maker = value.producer()
        if maker is None or self.index.get(maker, self.reader) >= self.reader:
            return False
        return self._place(value) == self.tensor

    def new_forms(self, forms: Forms) -> dict[str, Form]:
        """Return the forms of the copied values: those of their originals."""
        return {
            copy.name or "": forms[old.name or ""]
            for old, copy in self.copies.items()
            if (old.name or "") in forms
        }

    def _place(self, value: ir.Value) -> int | None:
        """Return the tensor that holds a value of the copied model."""
        maker = value.producer()
        if maker is None or maker not in self.index:
            return None
        old = self.old_nodes[self.index[maker]]
        return self.state.program.place.get(old.outputs[value.index() or 0])

    def _copy(self, value: ir.Value, depth: int) -> ir.Value:
        if value in self.copies:
            return self.copies[value]
        maker = value.producer()
        assert maker is not None  # tensors of the arena have one
        inputs = [v and self._source(v, depth + 1) for v in maker.inputs]
        name = self.node_names.fresh(f"{maker.name}{_SUFFIX}")
        copy = ir.Node(
            maker.domain,
            maker.op_type,
            inputs,
            list(maker.attributes.values()),
            overload=maker.overload,
            name=name,
            metadata_props={k: v for k, v in maker.metadata_props.items() if k != ORIGIN_KEY},
        )
        result = copy.outputs[0]
        result.name = self.names.fresh(f"{value.name}{_SUFFIX}")
        result.type, result.shape = value.type, value.shape
        self.model.graph.insert_before(self.nodes[self.reader], copy)
        self.added.append(name)
        self.copies[value] = result
        return result

    def _source(self, value: ir.Value, depth: int) -> ir.Value:
        """Return an operand for a copy: as it is if it is alive or small, else copied too."""
        tensor = self._place(value)
        if tensor is None:
            return value
        maker = value.producer()
        alive = self.state.spans[tensor][1] >= self.reader and tensor != self.tensor
        if alive or maker is None or not is_cheap(maker) or subgraphs(maker):
            return value
        sizes = [aligned(self.state.program.tensors[t].size) for t in (tensor, self.tensor)]
        if tensor != self.tensor and (depth > _DEPTH or sizes[0] * 4 <= sizes[1]):
            return value
        return self._copy(value, depth)
