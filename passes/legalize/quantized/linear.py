"""QuantizeLinear, DequantizeLinear and DynamicQuantizeLinear.

A constant that is dequantized becomes floats, or stays integers where that is smaller and a matrix
product or Gather reads it (see `cannc.passes.legalize.contrib.weights`).
"""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from cannc.compiler.core.runner import Array
from cannc.compiler.core.tensors import read
from cannc.passes.legalize.contrib.body import Body, ObstacleError, dtype_of
from cannc.passes.legalize.contrib.weights import Quantized, as_int8
from cannc.passes.legalize.quantized.levels import (
    Scales,
    dequantize,
    place,
    quantize,
    source,
)
from cannc.passes.pattern import constant_of

_DEFAULT_AXIS = 1
_READS_INTEGERS = frozenset({"MatMul", "Gemm", "Gather"})
_UINT8 = 255
_STORED_BITS = 8


def quantize_linear(body: Body) -> None:
    """Write out QuantizeLinear."""
    body.forbid(saturate=1, precision=(0, 1))
    scales = _scales(body)
    wanted = body.integer("output_dtype")
    dtype = ir.DataType(wanted) if scales.zero is None and wanted else scales.dtype
    if dtype.bitwidth < _STORED_BITS and not _is_dequantized(body.node.outputs[0]):
        raise ObstacleError(f"levels of {dtype.name} are stored, which nothing else can read")
    body.put(quantize(body, body.need(0), scales, dtype))


def dequantize_linear(body: Body) -> None:
    """Write out DequantizeLinear."""
    levels, scales = body.need(0), _scales(body)
    dtype = ir.DataType(body.integer("output_dtype") or int(dtype_of(scales.scale)))
    weight = constant_weight(levels, scales, dtype)
    if weight is not None:
        body.put(weight.place(body, keep_integers=_is_matrix_of_levels(body.node, levels)))
        return
    given = dtype_of(levels)
    if source(levels) is None and (not given.is_integer() or given.bitwidth < _STORED_BITS):
        raise ObstacleError(f"{given.name} is no dtype of quantized values here")
    body.put(body.cast(dequantize(body, levels, scales), dtype))


def _scales(body: Body) -> Scales:
    axis = body.integer("axis", _DEFAULT_AXIS)
    return Scales(body.need(1), body.given(2), axis, body.integer("block_size"))


def _is_dequantized(levels: ir.Value) -> bool:
    users = {user.op_type for user, _ in levels.uses()}
    return not levels.is_graph_output() and users <= {"DequantizeLinear"}


def constant_weight(levels: ir.Value, given: Scales, dtype: ir.DataType) -> Quantized | None:
    """Return what is dequantized if levels, scale and zero point are all constant, else None."""
    tensor, scale = constant_of(levels), constant_of(given.scale)
    zero = constant_of(given.zero)
    if tensor is None or scale is None or (given.zero is not None and zero is None):
        return None
    scales, zeros = read(scale), None if zero is None else read(zero)
    axis = given.axis % max(len(tensor.shape), 1)
    small, zeros = as_int8(tensor, zeros) if _has_levels(tensor) else (tensor, zeros)
    if given.block and axis == 0:
        index = np.arange(int(tensor.shape[0])) // given.block  # type: ignore[arg-type]
        return Quantized(small, scales, zeros, dtype, index)
    tables = [
        None if table is None else _spread(table, tensor, axis, given.block)
        for table in (scales, zeros)
    ]
    return Quantized(small, tables[0], tables[1], dtype)


def _spread(table: Array, levels: ir.TensorProtocol, axis: int, block: int) -> Array:
    """Return scales or zero points so that they broadcast to the levels."""
    if block and table.ndim == len(levels.shape):
        length = int(levels.shape[axis])  # type: ignore[arg-type]
        return np.take(table, np.arange(length) // block, axis=axis)
    if table.size == 1:
        return table.reshape(())
    dims = [1] * len(levels.shape)
    dims[axis] = -1
    return table.reshape(dims)


def _has_levels(tensor: ir.TensorProtocol) -> bool:
    return tensor.dtype.is_integer() and tensor.dtype.bitwidth <= 8


def _is_matrix_of_levels(node: ir.Node, levels: ir.Value) -> bool:
    (result,) = node.outputs
    tensor = constant_of(levels)
    users = {user.op_type for user, _ in result.uses()}
    fits = tensor is not None and _has_levels(tensor) and len(tensor.shape) == 2
    return fits and not result.is_graph_output() and users <= _READS_INTEGERS


def dynamic_quantize_linear(body: Body) -> None:
    """Write out DynamicQuantizeLinear; all zeros have the scale 1, as in onnxruntime."""
    levels, scales = dynamic_levels(body, body.need(0))
    body.put(levels, scales.scale, scales.zero)


def dynamic_levels(body: Body, x: ir.Value) -> tuple[ir.Value, Scales]:
    """Return levels in uint8 with scale and zero point that are taken from the values."""
    nothing = body.scalar(0, x)
    high = body.op("Max", body.reduce("ReduceMax", x, (), 0), nothing)
    low = body.op("Min", body.reduce("ReduceMin", x, (), 0), nothing)
    spread = body.op("Sub", high, low)
    step = body.op("Div", spread, body.scalar(_UINT8, x))
    is_flat = body.op("Equal", spread, nothing)
    scale = body.op("Where", is_flat, body.scalar(1, x), step)
    first = body.op("Sub", nothing, body.op("Div", low, scale))
    scales = Scales(scale, place(body, first, None, ir.DataType.UINT8))
    return quantize(body, x, scales, ir.DataType.UINT8), scales


def scales_at(body: Body, index: int) -> Scales:
    """Return the scale at `index` and the zero point behind it, as operators list them."""
    return Scales(body.need(index), body.given(index + 1))
