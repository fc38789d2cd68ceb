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
from cannc.passes.base import MayUseKernel
from cannc.passes.fixed_inputs import fix_inputs
from cannc.passes.manager import run_passes
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

    Raises:
        UsageError: ``PASS001`` no such pass, ``PASS003`` a selection without sign, ``PASS004`` no
            such input, ``PASS005`` numbers that it cannot hold.
        PassError: ``PASS010`` a pass broke the graph.
    """
    with collector_paused():
        result = unit.copy()
        result.target = target
        fix_inputs(result, fixed or {})
        infer_shapes(result.model)
        for names, fixpoint in _plan(level, precision, select):
            improved = True
            while improved:
                history = len(result.log)
                run_passes(
                    result, names, runner=runner, may_use_kernel=may_use_kernel, fixpoint=fixpoint
                )
                changed = any(stage.applied for stage in result.log[history:])
                # Shapes that are known only now may let more passes apply.
                stale = changed and not shapes_complete(result.model)
                improved = stale and infer_shapes(result.model) and fixpoint
    return result


def _plan(
    level: Level, precision: Precision, select: Sequence[str]
) -> Iterator[tuple[list[str], bool]]:
    """Yield groups of passes, each with whether it runs until nothing changes."""
    added, removed = _read_selection(select)
    cleanup = [(registry.CLEANUP, True)] if level != "O0" else []
    flat = (*(registry.CLEANUP if cleanup else ()), *registry.UNROLL)
    groups = [(registry.PREPARE, False), *cleanup, (flat, True)]
    fusion = (*registry.FUSION[level], *(name for name in added if not _is_planned(name, level)))
    for middle, fixpoint in (
        (fusion, False),
        (registry.LEGALIZE, True),
        (registry.PRECISION[precision], False),
    ):
        if middle:
            groups += [(middle, fixpoint), *cleanup]
    for names, fixpoint in groups:
        chosen = [name for name in names if name in registry.PASSES and name not in removed]
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
