"""Folding ``y * factor + offset`` per output channel into the layer that computes y.

With y = W x + b:  ``(W x + b) * factor + offset = (factor W) x + (b * factor + offset)``.

Weights stay lazy and are never changed in place: another layer may use the same tensor.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import onnx_ir as ir

from cannc.compiler.core.runner import Array
from cannc.compiler.core.tensors import DerivedTensor, read
from cannc.passes.base import PassContext
from cannc.passes.pattern import array_of, constant_of

Vector = npt.NDArray[np.float64]

CONVOLUTIONS = frozenset({"Conv", "ConvTranspose"})
LINEAR = CONVOLUTIONS | {"Gemm", "MatMul"}


@dataclass(frozen=True)
class Linear:
    """A layer with constant weight and bias.

    Attributes:
        node: Conv, ConvTranspose, Gemm or MatMul (2-D).
        weight: Its weight.
        bias: One number per channel; zeros when there is none.
        layout: Shape that a per-channel vector takes to broadcast over the weight.
        rank: Number of dimensions of the output.
    """

    node: ir.Node
    weight: ir.TensorProtocol
    bias: Vector
    layout: tuple[int, ...]
    rank: int

    @property
    def channels(self) -> int:
        """Number of output channels; axis 1 of the output."""
        return len(self.bias)

    @classmethod
    def of(cls, node: ir.Node) -> Linear | str:
        """Read a layer, or return why nothing can be folded into it."""
        weight = constant_of(node.inputs[1])
        if weight is None:
            return f"the weight of {node.name} is not constant"
        shape = tuple(int(n) for n in weight.shape)  # type: ignore[arg-type]
        layout, channels = _layout(node, shape)
        bias = np.zeros(channels)
        if len(node.inputs) > 2 and node.inputs[2] is not None:
            given = _vector(node.inputs[2], (1, channels))
            if given is None:
                return f"the bias of {node.name} is not a constant per channel"
            bias = given * node.attributes.get_float("beta", 1.0)
        return cls(node, weight, bias, layout, len(shape))

    def per_channel(self, value: ir.Value | None) -> Vector | None:
        """Return a constant operand of the output as one number per channel, else None."""
        return _vector(value, (1, self.channels, *(1,) * (self.rank - 2)))

    def consumed_elsewhere(self, user: ir.Node) -> str | None:
        """Return why the layer's own output has to stay visible, or None."""
        value = self.node.outputs[0]
        if self.node.graph is not user.graph:
            return f"{self.node.name} stands outside this branch or body"
        if value.is_graph_output():
            return f"inner value {value.name} is a graph output"
        if any(other is not user for other, _ in value.uses()):
            return f"inner value {value.name} is used elsewhere too"
        return None

    def fold(self, ctx: PassContext, user: ir.Node, factor: Vector, offset: Vector) -> str | None:
        """Put ``y * factor + offset``, computed by `user`, into the layer.

        Returns:
            Why that is not possible; None when it is done.
        """
        with np.errstate(invalid="ignore"):
            bias = self.bias * factor + offset
        if not (np.isfinite(factor).all() and np.isfinite(bias).all()):
            return "a factor is not finite"
        weight = self._scaled_weight(factor)
        dtype = self.weight.dtype.numpy()
        if self.weight.dtype == ir.DataType.FLOAT16:
            with np.errstate(over="ignore"):
                parts = (read(weight), bias.astype(dtype))
            if not all(np.isfinite(part).all() for part in parts):
                return "the folded weights exceed float16"
        x, old_weight = self.node.inputs[0], self.node.inputs[1]
        assert old_weight is not None
        inputs = [x, old_weight, ctx.rewriter.constant(user.outputs[0], bias.astype(dtype))]
        if not np.all(factor == 1):
            inputs[1] = ctx.rewriter.constant(old_weight, weight)
        attributes = {k: v for k, v in self.node.attributes.items() if k != "beta"}
        op_type = "Gemm" if self.node.op_type == "MatMul" else self.node.op_type
        result = user.outputs[0]
        new = ctx.rewriter.node(op_type, inputs, attributes, like=result)
        ctx.rewriter.replace([self.node, user], [new], {result: new.outputs[0]})
        return None

    def _scaled_weight(self, factor: Vector) -> ir.TensorProtocol:
        dtype = self.weight.dtype
        wide = np.float64 if dtype == ir.DataType.DOUBLE else np.float32
        shape = ir.Shape(self.weight.shape)  # type: ignore[arg-type]
        groups = self.node.attributes.get_int("group", 1)
        layout, factors = self.layout, factor.astype(wide)

        def scale(array: Array) -> Array:
            shape = (groups, -1, *array.shape[1:]) if len(layout) > array.ndim else array.shape
            scaled = np.multiply(array.astype(wide).reshape(shape), factors.reshape(layout))
            result: Array = scaled.reshape(array.shape).astype(dtype.numpy())
            return result

        return DerivedTensor(self.weight, scale, dtype, shape)


def _vector(value: ir.Value | None, dims: tuple[int, ...]) -> Vector | None:
    """Return a constant that broadcasts to `dims`, all 1 but one, as a vector; else None."""
    array = array_of(value)
    if array is None or array.ndim > len(dims):
        return None
    aligned = dims[len(dims) - array.ndim :]
    if any(n not in (1, wanted) for n, wanted in zip(array.shape, aligned, strict=True)):
        return None
    return np.broadcast_to(array.astype(np.float64).reshape(-1), (max(dims),)).copy()


def _layout(node: ir.Node, shape: tuple[int, ...]) -> tuple[tuple[int, ...], int]:
    """Return how a vector over output channels lies over the weight, and its length."""
    spatial = (1,) * (len(shape) - 2)
    if node.op_type == "Conv":
        return (-1, 1, *spatial), shape[0]
    if node.op_type == "ConvTranspose":
        groups = node.attributes.get_int("group", 1)
        return (groups, 1, shape[1], *spatial), shape[1] * groups
    if node.attributes.get_int("transB", 0):
        return (-1, 1), shape[0]
    return (1, -1), shape[-1]
