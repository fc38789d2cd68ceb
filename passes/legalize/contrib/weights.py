"""Constant weights stored as small integers: as floats, or as integers scaled when read."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import onnx_ir as ir

from cannc.compiler.core.runner import Array
from cannc.compiler.core.tensors import DerivedTensor
from cannc.passes.cleanup.constant_region import SMALL_BYTES
from cannc.passes.legalize.contrib.body import Body


@dataclass(frozen=True)
class Quantized:
    """A weight ``(levels - zero) * scale``.

    Attributes:
        levels: int8, lazy.
        scale: Broadcasts to the levels; with `index`, its rows are taken by it along axis 0 first.
            None for one.
        zero: Like `scale`, or None for zero.
        dtype: Dtype of the products.
        index: For each row of the levels, the row of scale and zero; None when there are no groups.
    """

    levels: ir.TensorProtocol
    scale: Array | None
    zero: Array | None
    dtype: ir.DataType
    index: Array | None = None

    def floats(self) -> ir.TensorProtocol:
        """Return the products as a lazy tensor."""

        def multiply(levels: Array) -> Array:
            shifted = levels.astype(np.float32)
            if self.zero is not None:
                shifted = shifted - self._rows(self.zero).astype(np.float32)
            if self.scale is not None:
                shifted = shifted * self._rows(self.scale).astype(np.float32)
            return shifted.astype(self.dtype.numpy())

        return DerivedTensor(self.levels, multiply, self.dtype)

    def place(self, body: Body, *, keep_integers: bool) -> ir.Value:
        """Return the weight as a value of a body.

        Large ones stay integers if wanted: ``Cast -> Add(-zero) -> Mul(scale)``, the form that the
        quantization of this package makes and moves into fused kernels.
        """
        if not keep_integers or self.levels.nbytes <= SMALL_BYTES:
            return body.constant(self.floats())
        value = body.cast(body.constant(self.levels), self.dtype)
        if self.zero is not None and np.any(self.zero):
            value = body.op("Add", value, self._table(body, -self.zero.astype(np.float32)))
        if self.scale is None:
            return value
        return body.op("Mul", value, self._table(body, self.scale))

    def _rows(self, table: Array) -> Array:
        return table if self.index is None or table.ndim == 0 else table[self.index]

    def _table(self, body: Body, table: Array) -> ir.Value:
        value = body.constant(np.ascontiguousarray(table.astype(self.dtype.numpy())))
        if self.index is None or table.ndim == 0:
            return value
        return body.op("Gather", value, body.constant(self.index.astype(np.int64)), axis=0)


def as_int8(
    tensor: ir.TensorProtocol, zero: Array | None
) -> tuple[ir.TensorProtocol, Array | None]:
    """Return 8-bit or 4-bit levels as int8, and the zero points that go with them."""
    if tensor.dtype == ir.DataType.INT8:
        return tensor, zero
    half = 0 if tensor.dtype.is_signed() else 1 << (tensor.dtype.bitwidth - 1)

    def shift(array: Array) -> Array:
        return (array.astype(np.int16) - half).astype(np.int8)

    moved = np.asarray((np.int16(0) if zero is None else zero.astype(np.int16)) - np.int16(half))
    return DerivedTensor(tensor, shift, ir.DataType.INT8), moved
