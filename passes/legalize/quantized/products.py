"""Matrix products and convolutions of integers, in float32 and exact.

Float32 adds integers without rounding as long as every partial sum stays within 2^24. The bound is
proven from the constant weights (or from the dtypes and the length of the sums); where it is passed
the sum is cut into parts that keep it, added as int32.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx_ir as ir

from cannc.compiler.core.runner import Array
from cannc.compiler.core.tensors import DerivedTensor, read, released
from cannc.passes.legalize.contrib.body import Body, ObstacleError, dtype_of, width_of
from cannc.passes.legalize.contrib.weights import Quantized, as_int8
from cannc.passes.legalize.quantized.levels import FLOAT, Scales, differences, limits
from cannc.passes.pattern import array_of, constant_of

INT32 = ir.DataType.INT32
_EXACT = 1 << 24
_MAX_PARTS = 32


@dataclass(frozen=True)
class Product:
    """A sum of products of levels.

    Attributes:
        op_type: MatMul or Conv.
        a: Levels: the left side, or the image.
        a_zero: One zero point, or None.
        b: Levels: the right side, or the kernel.
        b_zero: Like `a_zero`, or one for each column or output channel.
        attributes: Of the node.
    """

    op_type: str
    a: ir.Value
    a_zero: ir.Value | None
    b: ir.Value
    b_zero: ir.Value | None
    attributes: Mapping[str, Any]

    @property
    def axes(self) -> tuple[int, int]:
        """The axis of `a` and the one of `b` along which a sum can be cut."""
        return (-1, -2) if self.op_type == "MatMul" else (1, 1)

    def build(self, body: Body) -> ir.Value:
        """Return the sums: float32 if one part is exact, else int32."""
        tensor = constant_of(self.b)
        weight = None if tensor is None else self._weight(tensor)
        sizes = self._variable_sizes() if weight is None else self._constant_sizes(weight)
        a = differences(body, self.a, Scales(self.a, self.a_zero))
        if weight is not None:
            keep = self.op_type == "MatMul"
            parts = _cut(weight, sizes, self.axes[1])
            bs = [part.place(body, keep_integers=keep) for part in parts]
        else:
            axis = -1 if self.op_type == "MatMul" else 0
            b = differences(body, self.b, Scales(self.b, self.b_zero, axis))
            bs = body.split(b, self.axes[1], *sizes) if len(sizes) > 1 else [b]
        if len(sizes) == 1:
            return body.op(self.op_type, a, bs[0], **self.attributes)
        cut = body.split(a, self.axes[0], *sizes)
        sums = [
            body.cast(body.op(self.op_type, *pair, **self.attributes), INT32)
            for pair in zip(cut, bs, strict=True)
        ]
        total = sums[0]
        for part in sums[1:]:
            total = body.op("Add", total, part)
        return total

    def _weight(self, tensor: ir.TensorProtocol) -> Quantized:
        zero = None
        if self.b_zero is not None:
            given = constant_of(self.b_zero)
            if given is None:
                raise ObstacleError("the zero point of constant weights is not constant")
            zero = read(given)
        levels, zero = as_int8(tensor, zero)
        if zero is not None and zero.size == 1:
            zero = zero.reshape(())
        elif zero is not None and self.op_type == "Conv":
            zero = zero.reshape(-1, *[1] * (len(levels.shape) - 1))
        return Quantized(levels, None, zero, FLOAT)

    def _reach(self) -> int:
        """Return the largest distance of a left level from its zero point."""
        low, high = limits(dtype_of(self.a))
        zero = array_of(self.a_zero) if self.a_zero is not None else np.zeros(())
        if zero is None:
            return high - low
        return int(max(high - zero.min().astype(int), zero.max().astype(int) - low))

    def _constant_sizes(self, weight: Quantized) -> list[int]:
        """Return the sizes of the parts of the sum, by the numbers of the weights."""
        with released(weight.levels) as levels:
            zero = np.int32(0) if weight.zero is None else weight.zero.astype(np.int32)
            magnitude = np.abs(levels.astype(np.int32) - zero)
        if self.op_type == "Conv":
            magnitude = magnitude.reshape(*magnitude.shape[:2], -1).sum(axis=2).T
        # The first of the last two axes is summed over now, each column is a sum of its own.
        length, reach = magnitude.shape[-2], self._reach()
        for parts in range(1, min(length, _MAX_PARTS) + 1):
            sizes = _even(length, parts)
            starts = np.cumsum([0, *sizes[:-1]])
            sums = np.add.reduceat(magnitude, starts, axis=-2)
            if int(sums.max(initial=0)) * reach <= _EXACT:
                self._check_groups(parts)
                return sizes
        raise ObstacleError(f"its sums need more than {_MAX_PARTS} parts to stay exact in float32")

    def _variable_sizes(self) -> list[int]:
        if self.op_type == "Conv":
            length = math.prod(width_of(self.b, axis) for axis in range(1, len(self.b.shape or ())))
        else:
            length = width_of(self.b, -2)
        low, high = limits(dtype_of(self.b))
        parts = -(-length // max(_EXACT // (self._reach() * (high - low)), 1))
        if parts > _MAX_PARTS:
            raise ObstacleError(f"sums of {length} products are not exact in float32")
        self._check_groups(parts)
        return _even(width_of(self.b, self.axes[1]), parts)

    def _check_groups(self, parts: int) -> None:
        group = self.attributes.get("group")
        if parts > 1 and group is not None and group.as_int() != 1:
            raise ObstacleError("its sums are not exact in float32, and groups cannot be cut")


def _even(length: int, parts: int) -> list[int]:
    """Return the sizes of `parts` parts of about equal size."""
    edges = [length * index // parts for index in range(parts + 1)]
    return [edges[index + 1] - edges[index] for index in range(parts)]


def _cut(weight: Quantized, sizes: list[int], axis: int) -> list[Quantized]:
    """Return the parts of a weight along an axis; zero points lie along another one."""
    if len(sizes) == 1:
        return [weight]
    parts = []
    start = 0
    for size in sizes:
        shape = list(weight.levels.shape.numpy())
        shape[axis] = size
        take = range(start, start + size)

        def part(array: Array, take: range = take) -> Array:
            return np.take(array, take, axis=axis)

        levels = DerivedTensor(weight.levels, part, weight.levels.dtype, ir.Shape(shape))
        parts.append(Quantized(levels, weight.scale, weight.zero, weight.dtype))
        start += size
    return parts
