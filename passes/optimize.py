"""The optimization levels: which passes run, in which order."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from cannc.compiler.core.collector import collector_paused
from cannc.compiler.core.errors import UsageError
from cannc.compiler.core.runner import Runner
from cannc.compiler.core.shapes import infer_shapes, shapes_complete
from cannc.compiler.core.target import Target
from cannc.compiler.core.unit import CompileUnit
from cannc.passes import registry
from cannc.passes.base import MayUseKernel, Pass
from cannc.passes.fixed_inputs import fix_inputs
from cannc.passes.fusion.npu_ops import refresh_npu_ops
from cannc.passes.guard import Guard
from cannc.passes.manager import run_passes
from cannc.passes.precision.half import Float16
from cannc.passes.registry import Level, Precision


def optimize(
    unit: CompileUnit,
    *,
    level: Level,
    precision: Precision,
    target: Target,
    runner: Runner,
    may_use_kernel: MayUseKernel,
    select: Sequence[str] = (),
    fixed: Mapping[str, Any] | None = None,
    rules: Sequence[Pass] = (),
    guard: Guard | None = None,
    explain: bool = False,
) -> CompileUnit:
    """Return an optimized copy of `unit`, stamped with its target.

    Args:
        unit: Not changed.
        level: O0 only brings the model into the form that later stages need; O1 simplifies and
            fuses what stays observable; O2 fuses all that the target has kernels for.
        precision: ``keep`` or ``fp16`` (D2).
        target: SoC and CANN release to optimize for.
        runner: Runs graphs for constant folding.
        may_use_kernel: See `cannc.passes.base.PassContext`.
        select: ``+name`` adds a pass, ``-name`` leaves one out.
        fixed: Input name -> numbers that it always has; the input becomes a constant.
        rules: Passes of the user, run before our fusions.
        guard: Undoes passes that change numbers; None trusts them.
        explain: See `PassContext`.

    Raises:
        UsageError: ``PASS001`` no such pass, ``PASS003`` a selection without sign, ``PASS004`` no
            such input, ``PASS005`` numbers that it cannot hold.
        PassError: ``PASS010`` a pass broke the graph.
    """
    with collector_paused():
        result = unit.copy()
        result.target = target
        fix_inputs(result, fixed or {})
        refresh_npu_ops(result.model)
        infer_shapes(result.model)
        for names, fixpoint in _plan(level, precision, select, rules):
            improved = True
            while improved:
                history = len(result.log)
                run_passes(
                    result,
                    names,
                    runner=runner,
                    may_use_kernel=may_use_kernel,
                    fixpoint=fixpoint,
                    guard=guard,
                    explain=explain,
                )
                changed = any(stage.applied for stage in result.log[history:])
                # Shapes that are known only now may let more passes apply.
                stale = changed and not shapes_complete(result.model)
                improved = stale and infer_shapes(result.model) and fixpoint
    return result


def to_float16(
    unit: CompileUnit,
    keep: Mapping[str, str],
    *,
    runner: Runner,
    may_use_kernel: MayUseKernel,
) -> CompileUnit:
    """Return a copy of an optimized unit in float16.

    Args:
        unit: Not changed.
        keep: Names of nodes that stay float32, each with the reason.
        runner: See `optimize`.
        may_use_kernel: See `optimize`.
    """
    result = unit.copy()
    for passes, fixpoint in (([Float16(keep=keep)], False), (registry.CLEANUP, True)):
        run_passes(result, passes, runner=runner, may_use_kernel=may_use_kernel, fixpoint=fixpoint)
    return result


def _plan(
    level: Level,
    precision: Precision,
    select: Sequence[str],
    rules: Sequence[Pass],
) -> Iterator[tuple[list[str | Pass], bool]]:
    """Yield groups of passes, each with whether it runs until nothing changes."""
    added, removed = _read_selection(select)
    cleanup = [(registry.CLEANUP, True)] if level != "O0" else []
    flat = (*(registry.CLEANUP if cleanup else ()), *registry.UNROLL)
    groups: list[tuple[Sequence[str | Pass], bool]] = [(registry.PREPARE, False), *cleanup]
    groups.append((flat, True))
    fusion = (*registry.FUSION[level], *(name for name in added if not _is_planned(name, level)))
    to_half = [Float16()] if precision != "keep" else []
    middles: list[tuple[Sequence[str | Pass], bool]] = [
        (rules, True),
        (fusion, False),
        (registry.LEGALIZE, True),
        (to_half, False),
    ]
    for middle, fixpoint in middles:
        if middle:
            groups += [(middle, fixpoint), *cleanup]
    for passes, fixpoint in groups:
        chosen = [p for p in passes if (p if isinstance(p, str) else p.name) not in removed]
        if chosen:
            yield chosen, fixpoint


def _is_planned(name: str, level: Level) -> bool:
    return name in (
        *registry.PREPARE,
        *registry.UNROLL,
        *registry.FUSION[level],
        *registry.LEGALIZE,
    ) or (name in registry.CLEANUP and level != "O0")


def _read_selection(select: Sequence[str]) -> tuple[list[str], set[str]]:
    """Return the names added and left out; each is looked up so that a typing error is found."""
    for entry in select:
        if entry[:1] not in ("+", "-"):
            raise UsageError(
                "PASS003",
                f"'{entry}' selects nothing",
                where="--passes",
                fix=f"write +{entry} to add the pass or -{entry} to leave it out",
            )
        registry.load_pass(entry[1:])
    added = [entry[1:] for entry in select if entry[0] == "+"]
    return added, {entry[1:] for entry in select if entry[0] == "-"}
