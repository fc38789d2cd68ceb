"""May a fused ``npu`` operator be emitted for this SoC and dtype (D10)?"""

from __future__ import annotations

from collections.abc import Collection

import onnx_ir as ir

from cannc.compiler.core.target import Target
from cannc.op_support.dtypes import dtype_name
from cannc.op_support.releases import single_import_only
from cannc.op_support.schema import FusedOperator, Mark
from cannc.op_support.table import fused_operators

_PROVEN: frozenset[Mark] = frozenset({"o", "s"})
_REASON: dict[Mark, str] = {
    "t": "only a product table promises a kernel on {family}",
    "x": "its kernel on {family} is experimental: a shipped CANN may lack it",
    "-": "the product table says that {family} has no kernel",
    "?": "nothing is known about a kernel on {family}",
}
_ALLOWED_BY: dict[str, frozenset[Mark]] = {
    "unproven": frozenset({"t", "?"}),
    "experimental": frozenset({"x"}),
}


def kernel_gap(
    op_type: str,
    dtype: ir.DataType | None,
    target: Target,
    *,
    allow: Collection[str] = (),
) -> str | None:
    """Return why a fused operator may not be emitted; None when it may.

    Args:
        op_type: Type in domain ``npu``, e.g. ``NPURmsNorm``; operators that are registered in the
            default domain only (``AscendQuant``) are known too.
        dtype: Dtype of the data that it works on: of its first input or its first output. None
            when unknown: then only the chip is judged.
        target: SoC and CANN release.
        allow: ``unproven`` admits kernels that are only promised or unknown, ``experimental``
            those from an experimental folder.
    """
    fused = fused_operators().get(f"npu::{op_type}")
    if fused is None:
        fused = fused_operators().get(f"ai.onnx::{op_type}")
    if fused is None:
        return f"no plugin is registered for npu::{op_type}"
    if single_import_only(target) and hand_over_name(op_type) is None:
        return f"CANN {target.cann} reads one operator domain only, and {op_type} has no name there"
    kernel = fused.kernels.get(target.family)
    mark: Mark = kernel.mark if kernel is not None else "?"
    admitted = _PROVEN.union(*(_ALLOWED_BY[name] for name in allow))
    if mark not in admitted:
        detail = f" ({kernel.note})" if kernel is not None and kernel.note else ""
        return _REASON[mark].format(family=target.family) + detail
    tuples = kernel.dtypes if kernel is not None else ()
    if dtype is None or not tuples or _takes(fused, tuples, dtype_name(dtype)):
        return None
    return f"the kernel on {target.family} does not take {dtype_name(dtype)}"


def hand_over_name(op_type: str) -> str | None:
    """Return the default-domain name of an ``npu`` operator, for parsers that read one domain (D9).

    None when the operator is registered in ``npu`` only.
    """
    for name in (op_type, f"NPU{op_type}"):
        if f"ai.onnx::{name}" in fused_operators():
            return name
    return None


def _takes(fused: FusedOperator, tuples: tuple[str, ...], dtype: str) -> bool:
    """Does some dtype tuple have `dtype` at the first input or the first output?"""
    first_output = len(fused.inputs or ())
    for row in tuples:
        names = row.split(",")
        if dtype in (names[0], names[min(first_output, len(names) - 1)]):
            return True
    return False
