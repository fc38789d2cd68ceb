"""Which SoC and CANN release a stage works for (D22)."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import onnx_ir as ir

from cannc.compiler.core.errors import UsageError
from cannc.compiler.core.target import Target, soc_table
from cannc.compiler.core.unit import CompileUnit
from cannc.op_support.kernels import kernel_gap
from cannc.passes.fusion.npu_ops import NPU_DOMAIN


def asked_target(unit: CompileUnit, soc: str | None, cann: str | None) -> Target:
    """Return what the user says, else the stamp, else the default."""
    if soc is None and unit.target is not None:
        return Target.parse(unit.target.soc, cann or unit.target.cann)
    return Target.parse(soc, cann)


def stage_target(unit: CompileUnit, soc: str | None, cann: str | None) -> Target:
    """Return the target of a stage that builds on what earlier ones chose.

    Raises:
        UsageError: ``SOC011`` earlier stages chose fused operators for another SoC.
    """
    target = asked_target(unit, soc, cann)
    stamped = unit.target
    if stamped is None or stamped.soc == target.soc or not _is_specific(unit.model):
        return target
    raise UsageError(
        "SOC011",
        f"the model was prepared for {stamped.soc}, --soc says {target.soc}",
        why="it holds fused operators chosen for the first one's kernels",
        fix=f"optimize the original again with --soc {target.soc}",
    )


def compile_target(unit: CompileUnit, soc: str | None, cann: str | None) -> Target:
    """Return the target of an artifact, which has no default.

    Raises:
        UsageError: ``SOC010`` none is known; ``SOC011`` see `stage_target`.
    """
    if soc is None and unit.target is None:
        raise UsageError(
            "SOC010",
            "no target SoC",
            where="--soc (ATC's soc_version)",
            why="the model carries none, and an artifact is built for one SoC (ATC: E10054)",
            fix=f"give one of: {', '.join(sorted(soc_table()))}",
        )
    return stage_target(unit, soc, cann)


def kernels(target: Target) -> Callable[[str, ir.DataType | None], str | None]:
    """Return what says why a fused operator has no kernel on the target."""
    return partial(_kernel_gap, target)


def _kernel_gap(target: Target, op_type: str, dtype: ir.DataType | None) -> str | None:
    return kernel_gap(op_type, dtype, target)


def _is_specific(model: ir.Model) -> bool:
    return any(node.domain == NPU_DOMAIN for node in model.graph.all_nodes())
