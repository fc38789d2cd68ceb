"""ONNX data types in the two numberings of the container (om-format.md section 4).

Types that GE or Netron lack are stored as bytes (uint8) with an own attribute that names the real
one, so that both open the file (D12).
"""

from __future__ import annotations

import onnx_ir as ir

D = ir.DataType

# ONNX type -> number in the graph protobuf. Netron knows numbers up to 31 only.
GRAPH_DTYPE: dict[ir.DataType, int] = {
    D.UNDEFINED: 0,
    D.FLOAT: 1,
    D.FLOAT16: 2,
    D.INT8: 3,
    D.UINT8: 4,
    D.INT16: 5,
    D.UINT16: 6,
    D.INT32: 7,
    D.INT64: 8,
    D.UINT32: 9,
    D.UINT64: 10,
    D.BOOL: 11,
    D.DOUBLE: 12,
    D.COMPLEX64: 16,
    D.COMPLEX128: 17,
    D.BFLOAT16: 27,
    D.INT4: 28,
}
FROM_GRAPH: dict[int, ir.DataType] = {number: dtype for dtype, number in GRAPH_DTYPE.items()}

# ONNX type -> number in MODEL_INOUT_INFO and in int attributes such as Cast's.
ACL_DTYPE: dict[ir.DataType, int] = {
    D.FLOAT: 0,
    D.FLOAT16: 1,
    D.INT8: 2,
    D.INT32: 3,
    D.UINT8: 4,
    D.INT16: 6,
    D.UINT16: 7,
    D.UINT32: 8,
    D.INT64: 9,
    D.UINT64: 10,
    D.DOUBLE: 11,
    D.BOOL: 12,
    D.STRING: 13,
    D.COMPLEX64: 16,
    D.COMPLEX128: 17,
    D.BFLOAT16: 27,
    D.UNDEFINED: 28,
    D.INT4: 29,
    D.INT2: 31,
    D.UINT2: 32,
    D.FLOAT8E5M2: 35,
    D.FLOAT8E4M3FN: 36,
    D.FLOAT8E8M0: 37,
}
FROM_ACL: dict[int, ir.DataType] = {number: dtype for dtype, number in ACL_DTYPE.items()}
ACL_UNDEFINED = ACL_DTYPE[D.UNDEFINED]

FORMAT_ND = 2


def stored_as(dtype: ir.DataType) -> ir.DataType:
    """Return the type that the graph protobuf shows: `dtype` itself, or UINT8."""
    return dtype if dtype in GRAPH_DTYPE else D.UINT8


def packed_bytes(dtype: ir.DataType, count: int) -> int:
    """Return the bytes that `count` elements take; 4-bit and smaller types are packed."""
    return (count * dtype.bitwidth + 7) // 8
