"""Dtypes that onnxruntime computes with but that its Python cannot take or give.

bfloat16, float8, float4 and the 4- and 2-bit integers cross the border as float32, which holds all
of their values exactly, and are cast inside the graph.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx_ir as ir

from cannc.compiler.runtime.casts import Casts
from cannc.compiler.runtime.dtypes import HALF
from cannc.compiler.runtime.ports import Port

_NATIVE_HALF = ir.DataType.FLOAT16


def is_carried(kind: ir.TypeProtocol | None) -> bool:
    """Tell whether a tensor of this type must cross the border as float32."""
    return isinstance(kind, ir.TensorType) and _is_exotic(kind.dtype)


def carry(model: ir.Model) -> None:
    """Let a lowered model take and give float32 where `is_carried` says so, in place."""
    graph = model.graph
    if not any(is_carried(value.type) for value in (*graph.inputs, *graph.outputs)):
        return
    casts = Casts(model)
    for value in graph.inputs:
        if is_carried(value.type) and value.dtype is not None:
            inner = casts.behind(value, value.dtype, casts.fresh(f"{value.name}__typed"))
            assert inner.producer() is not None
            value.type = ir.TensorType(ir.DataType.FLOAT)
    for index, value in enumerate([*graph.outputs]):
        if is_carried(value.type):
            casts.output(graph, index, ir.DataType.FLOAT, "__typed")


def to_session(port: Port, value: Any) -> Any:
    """Turn what a caller feeds into what the session takes."""
    lowered = port.dtype in HALF and not (port.is_tensor and port.dtype == _NATIVE_HALF)
    if lowered or is_carried(port.type):
        return _cast(value, np.dtype(np.float32))
    return value


def from_session(port: Port, value: Any) -> Any:
    """Give a result the dtype that the port declares."""
    if port.dtype is not None and (port.dtype in HALF or is_carried(port.type)):
        return _cast(value, port.dtype.numpy())
    return value


def _is_exotic(dtype: ir.DataType) -> bool:
    if dtype == ir.DataType.STRING:
        return False
    return dtype.numpy().isbuiltin != 1


def _cast(value: Any, dtype: np.dtype[Any]) -> Any:
    if isinstance(value, list):
        return [_cast(item, dtype) for item in value]
    return value if value is None else np.asarray(value).astype(dtype, copy=False)
