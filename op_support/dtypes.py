"""Names of dtypes as GE's tables spell them."""

from __future__ import annotations

import onnx_ir as ir

_NAMES = {
    ir.DataType.FLOAT: "float32",
    ir.DataType.DOUBLE: "float64",
    ir.DataType.FLOAT8E4M3FN: "float8_e4m3fn",
    ir.DataType.FLOAT8E5M2: "float8_e5m2",
    ir.DataType.FLOAT4E2M1: "float4_e2m1",
}


def dtype_name(dtype: ir.DataType) -> str:
    """Return GE's name of an ONNX dtype, e.g. ``float32`` for FLOAT."""
    return _NAMES.get(dtype, dtype.name.lower())
