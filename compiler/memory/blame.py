"""Why a budget cannot be kept, and what would keep it: a smaller gear, or a split."""

from __future__ import annotations

from collections.abc import Iterator

import onnx_ir as ir

from cannc.compiler.core.errors import CanncError
from cannc.compiler.memory.builder import build_program
from cannc.compiler.memory.liveness import buffers, live_bytes, peak
from cannc.compiler.memory.ordering import best_order
from cannc.compiler.memory.plan import MemoryPlan
from cannc.compiler.memory.program import Program
from cannc.compiler.memory.sizing import InputShapes, dim_sizes, forms_at

_CUTS = 32


class WorkspaceError(CanncError):
    """The arena does not fit the budget."""

    exit_code = 1


def over_budget(
    model: ir.Model, program: Program, plan: MemoryPlan, budget: int, *, may_recompute: bool
) -> WorkspaceError:
    """Return the error ``MEM001`` that names the tensors to blame and what would fit."""
    holders = "; ".join(str(holding) for holding in plan.holdings)
    advice = [*_smaller(model, plan.sizes[0], budget), *_split(program, budget)]
    if may_recompute:
        advice.append("--memory-optimizer recompute may save more")
    return WorkspaceError(
        "MEM001",
        f"the run needs {plan.arena_bytes:,} bytes of workspace, the budget is {budget:,}",
        where=f"node '{plan.peak_node}', where most is live",
        why=f"the largest tensors there: {holders}",
        fix="; ".join(advice),
    )


def _smaller(model: ir.Model, sizes: InputShapes, budget: int) -> Iterator[str]:
    """Yield, for each named dim, the largest halving of its size that fits, or the smallest."""
    for name, size in dim_sizes(model, sizes).items():
        tried, need = size, budget + 1
        while tried > 1 and need > budget:
            tried //= 2
            forms = forms_at(model, _with_dim(model, sizes, name, tried))
            program = build_program(model.graph, [forms])
            need = peak(program, best_order(program))
        if tried < size:
            verdict = f"{name}={tried} would need {need:,} bytes"
            yield verdict if need <= budget else f"even {verdict}"


def _with_dim(model: ir.Model, sizes: InputShapes, name: str, size: int) -> InputShapes:
    changed = {}
    for value in model.graph.inputs:
        given = sizes.get(value.name or "")
        if given is None or value.shape is None:
            continue
        changed[value.name or ""] = tuple(
            size if isinstance(dim, ir.SymbolicDim) and dim.value == name else old
            for dim, old in zip(value.shape, given, strict=True)
        )
    return {**sizes, **changed}


def _split(program: Program, budget: int) -> Iterator[str]:
    """Yield the best cut in two; what crosses it becomes outputs and inputs of the parts."""
    steps = len(program.steps)
    found = buffers(program, range(steps))
    best: tuple[int, int, int] | None = None
    for cut in sorted({steps * part // _CUTS for part in range(1, _CUTS)} - {0}):
        inside = [b for b in found if not b.first < cut <= b.last]
        crossing = sum(b.size for b in found if b.first < cut <= b.last)
        need = max(live_bytes(inside, steps), default=0)
        if best is None or (need, crossing) < best[:2]:
            best = need, crossing, cut
    if best is None:
        return
    need, crossing, cut = best
    text = (
        f"a split before node '{program.steps[cut].node.name}' would need {need:,} bytes in each "
        f"part, with {crossing:,} bytes handed over"
    )
    yield text if need <= budget else f"even {text}"
