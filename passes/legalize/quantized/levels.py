"""Levels: the integers of quantized values, computed and kept as float32.

    quantize     Clip(Round(x / scale) + zero): integers as floats; a Cast gives them their dtype
    dequantize   (levels - zero) * scale

A Cast to integers that is followed by one back to floats is left out, so between two operators the
integers stay floats.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import onnx_ir as ir

from cannc.passes.legalize.contrib.body import Body, ObstacleError, dtype_of, rank_of, width_of
from cannc.passes.pattern import array_of, constant_of, scalar_of

FLOAT = ir.DataType.FLOAT
_EXACT_BITS = 16


def limits(dtype: ir.DataType) -> tuple[int, int]:
    """Return the least and the greatest level of a dtype.

    Raises:
        ObstacleError: It has no levels, or more than float32 holds.
    """
    if not dtype.is_integer() or dtype.bitwidth > _EXACT_BITS:
        raise ObstacleError(f"{dtype.name} is no dtype of quantized values here")
    if dtype.is_signed():
        return -(1 << (dtype.bitwidth - 1)), (1 << (dtype.bitwidth - 1)) - 1
    return 0, (1 << dtype.bitwidth) - 1


@dataclass(frozen=True)
class Scales:
    """Scale and zero point of quantized values.

    Attributes:
        scale: One number, or one for each position or block along `axis`.
        zero: Like `scale`, in the dtype of the levels; None for zero.
        axis: Along which scales differ.
        block: Positions that share a scale; 0 for one scale each.
    """

    scale: ir.Value
    zero: ir.Value | None = None
    axis: int = 1
    block: int = 0

    @property
    def dtype(self) -> ir.DataType:
        """Dtype of the levels: that of the zero point, else uint8."""
        return ir.DataType.UINT8 if self.zero is None else dtype_of(self.zero)

    def factor(self, body: Body, like: ir.Value) -> ir.Value:
        """Return the scale in float32 so that it broadcasts to `like`."""
        return self._spread(body, floats(body, self.scale), like)

    def offset(self, body: Body, like: ir.Value) -> ir.Value | None:
        """Return the zero point like `factor`; None where it is zero."""
        if self.zero is None or is_zero(self.zero):
            return None
        return self._spread(body, floats(body, self.zero), like)

    def _spread(self, body: Body, value: ir.Value, like: ir.Value) -> ir.Value:
        array = array_of(value)
        if array is not None and array.size == 1:
            return value if array.ndim == 0 else body.constant(array.reshape(()))
        if rank_of(value) == 0 or (value.shape is not None and tuple(value.shape) == (1,)):
            return value
        size = rank_of(like)
        axis = self.axis % size
        if rank_of(value) == size and self.block:
            index = np.arange(width_of(like, axis)) // self.block
            return body.op("Gather", value, body.constant(index), axis=axis)
        dims = [-1 if position == axis else 1 for position in range(size)]
        return body.reshape(value, *dims)


def quantize(body: Body, x: ir.Value, scales: Scales, dtype: ir.DataType) -> ir.Value:
    """Return the levels of `x` in `dtype`, rounded half to even."""
    wide = body.cast(x, FLOAT)
    steps = body.op("Div", wide, scales.factor(body, x))
    return place(body, steps, scales.offset(body, x), dtype)


def place(body: Body, steps: ir.Value, offset: ir.Value | None, dtype: ir.DataType) -> ir.Value:
    """Return steps rounded half to even, moved by `offset`, within the limits of `dtype`."""
    low, high = limits(dtype)
    levels = body.op("Round", steps)
    if offset is not None:
        levels = body.op("Add", levels, offset)
    kept = body.op("Clip", levels, body.scalar(low, levels), body.scalar(high, levels))
    return body.op("Cast", kept, to=int(dtype))


def dequantize(body: Body, levels: ir.Value, scales: Scales) -> ir.Value:
    """Return ``(levels - zero) * scale`` in float32."""
    return body.op("Mul", differences(body, levels, scales), scales.factor(body, levels))


def differences(body: Body, levels: ir.Value, scales: Scales) -> ir.Value:
    """Return ``levels - zero`` in float32."""
    wide, offset = floats(body, levels), scales.offset(body, levels)
    return wide if offset is None else body.op("Sub", wide, offset)


def floats(body: Body, levels: ir.Value) -> ir.Value:
    """Return numbers as float32: those from before they were cast, if that is where they are."""
    array = array_of(levels)
    if array is not None and levels.dtype != FLOAT:
        return body.constant(array.astype(np.float32))
    return source(levels) or body.cast(levels, FLOAT)


def source(levels: ir.Value) -> ir.Value | None:
    """Return the float32 that `levels` were cast from without loss, or None."""
    cast = levels.producer()
    if cast is None or cast.op_type != "Cast" or levels.dtype is None or cast.inputs[0] is None:
        return None
    origin = cast.inputs[0]
    span = _span(origin) if origin.dtype == FLOAT else None
    if span is None or not levels.dtype.is_integer() or levels.dtype.bitwidth > _EXACT_BITS:
        return None
    low, high = limits(levels.dtype)
    fits = low <= span[0] and span[1] <= high
    return origin if fits and _is_integral(origin) else None


def is_zero(value: ir.Value) -> bool:
    """Is it a constant of zeros?"""
    array = array_of(value)
    return array is not None and not np.any(array)


def _span(value: ir.Value | None) -> tuple[float, float] | None:
    """Return the least and the greatest number that a value can hold, if a Clip says so."""
    node = value.producer() if value is not None else None
    if node is None:
        return None
    if node.op_type in MOVABLE:
        return _span(node.inputs[0])
    if node.op_type != "Clip" or len(node.inputs) < 3:
        return None
    low, high = (scalar_of(bound) for bound in node.inputs[1:3])
    return None if low is None or high is None else (low, high)


def _is_integral(value: ir.Value | None) -> bool:
    """Are all numbers of a float value integers, as far as its producers tell?"""
    if value is None:
        return False
    if constant_of(value) is not None:
        array = array_of(value)
        return array is not None and bool(np.all(array == np.round(array.astype(np.float64))))
    node = value.producer()
    if node is None:
        return False
    if node.op_type == "Cast":
        given = node.inputs[0]
        return given is not None and given.dtype is not None and given.dtype.is_integer()
    if node.op_type in ("Clip", "Add", "Sub"):
        return all(_is_integral(given) for given in node.inputs)
    if node.op_type in MOVABLE:
        return _is_integral(node.inputs[0])
    return node.op_type == "Round"


MOVABLE = frozenset(
    {"Reshape", "Transpose", "Flatten", "Squeeze", "Unsqueeze", "Slice", "Gather", "MaxPool"}
)
"""Operators that only pick or move what their first input holds."""
