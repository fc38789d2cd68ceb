"""Conv + BatchNormalization, or + Mul, Div, Add, Sub of a constant per channel -> Conv.

Before:  y = W * x + b;  (y - mean) / sqrt(var + eps) * scale + B      or  y * c,  y / c,  y +- c
After:   one convolution with  W' = a W,  b' = a b + d
         a = scale / sqrt(var + eps), d = B - a mean                   or  a = c,  1 / c,  d = +-c

ATC does this only on some chips, and not for every depthwise convolution (ge-fusions.md section 1).
ConvTranspose as well; batch norms also into Gemm and 2-D MatMul (which becomes Gemm): with a 2-D
input their channels are the columns. In training mode the statistics are computed, so nothing is
folded. Chains (Conv, Add, BatchNormalization) fold one after the other.
"""

from __future__ import annotations

from typing import ClassVar

import numpy as np
import onnx_ir as ir

from cannc.compiler.core.shapes import rank
from cannc.passes.base import Numerics, PassContext
from cannc.passes.fusion.base import FusionPass
from cannc.passes.fusion.linear import CONVOLUTIONS, LINEAR, Linear, Vector
from cannc.passes.pattern import array_of, constant_of

_FIRST_OPERAND_ONLY = frozenset({"Sub", "Div", "BatchNormalization"})


class FuseConvBatchNorm(FusionPass):
    """See the module."""

    name: ClassVar[str] = "fuse-conv-batchnorm"
    summary: ClassVar[str] = "Conv, Gemm + BatchNormalization; Conv + constant per channel"
    numerics: ClassVar[Numerics] = Numerics.REASSOCIATED
    roots: ClassVar[frozenset[str]] = frozenset({"BatchNormalization", "Mul", "Div", "Add", "Sub"})
    backwards: ClassVar[bool] = False

    def fuse(self, ctx: PassContext, node: ir.Node) -> None:
        """Fold `node` into the layer in front of it."""
        is_norm = node.op_type == "BatchNormalization"
        index = _layer_input(node, LINEAR if is_norm else CONVOLUTIONS)
        if index is None or not (is_norm or constant_of(node.inputs[1 - index]) is not None):
            return
        reason = _fold(ctx, node, index)
        if reason is not None:
            ctx.refuse(node, reason)


def _layer_input(node: ir.Node, kinds: frozenset[str]) -> int | None:
    """Return which operand of `node` is computed by a layer of these kinds."""
    for index in (0,) if node.op_type in _FIRST_OPERAND_ONLY else (0, 1):
        value = node.inputs[index]
        producer = value.producer() if value is not None else None
        if producer is not None and producer.op_type in kinds and not producer.domain:
            return index
    return None


def _fold(ctx: PassContext, node: ir.Node, index: int) -> str | None:
    value = node.inputs[index]
    producer = value.producer() if value is not None else None
    assert producer is not None
    if producer.op_type == "MatMul" and {rank(v) for v in producer.inputs} != {2}:
        return f"the channels of the batch norm are not the columns of {producer.name}"
    layer = Linear.of(producer)
    if isinstance(layer, str):
        return layer
    terms = (
        _batch_norm(node)
        if node.op_type == "BatchNormalization"
        else _arithmetic(node, node.inputs[1 - index], layer)
    )
    if isinstance(terms, str):
        return terms
    return layer.consumed_elsewhere(node) or layer.fold(ctx, node, *terms)


def _batch_norm(node: ir.Node) -> tuple[Vector, Vector] | str:
    """Return factor and offset per channel of a batch norm, or why it has none."""
    training = node.attributes.get_int("training_mode", 0)
    if training or any(value.uses() or value.is_graph_output() for value in node.outputs[1:]):
        return "the batch norm is in training mode"
    arrays = [array_of(value) for value in node.inputs[1:5]]
    if any(array is None for array in arrays):
        return "a parameter of the batch norm is not constant"
    scale, bias, mean, variance = (np.asarray(array, np.float64) for array in arrays)
    with np.errstate(invalid="ignore", divide="ignore"):
        factor = scale / np.sqrt(variance + node.attributes.get_float("epsilon", 1e-5))
    return factor, bias - mean * factor


def _arithmetic(
    node: ir.Node, constant: ir.Value | None, layer: Linear
) -> tuple[Vector, Vector] | str:
    """Return factor and offset per channel of Mul, Div, Add or Sub, or why it has none."""
    numbers = layer.per_channel(constant)
    if numbers is None:
        return "the constant does not run along the channels"
    zeros, ones = np.zeros_like(numbers), np.ones_like(numbers)
    with np.errstate(divide="ignore"):
        terms = {
            "Mul": (numbers, zeros),
            "Div": (1 / numbers, zeros),
            "Add": (ones, numbers),
            "Sub": (ones, -numbers),
        }
    return terms[node.op_type]
