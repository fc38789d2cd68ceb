"""The table of quantized operators, and the pass that writes them in float32.

Before:  QuantizeLinear(x, s, z) -> DequantizeLinear(q, s, z)
After:   Div(x, s) -> Round -> Add(z) -> Clip -> Sub(z) -> Mul(s)

What only moves levels (Reshape, MaxPool, ...) moves floats instead, so that no integers are left
between two quantized operators.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

import onnx_ir as ir

from cannc.passes.base import Numerics, PassContext
from cannc.passes.legalize.contrib.body import Body, dtype_of
from cannc.passes.legalize.contrib.writing import Expansion, WriteOut
from cannc.passes.legalize.quantized import functions, integer, linear
from cannc.passes.legalize.quantized.levels import MOVABLE, source
from cannc.passes.rewrite import scoped_nodes

_DOMAIN = "com.microsoft"
_CONV = integer.CONV_ATTRIBUTES
_QUANTIZE = Expansion(
    linear.quantize_linear,
    3,
    attributes=("axis", "block_size", "output_dtype", "precision", "saturate"),
)
_DEQUANTIZE = Expansion(
    linear.dequantize_linear, 3, attributes=("axis", "block_size", "output_dtype")
)
_QLINEAR_CONV = Expansion(integer.qlinear_conv, 9, attributes=(*_CONV, "channels_last"))

_ONNX: dict[str, Expansion] = {
    "ConvInteger": Expansion(integer.conv_integer, 4, attributes=_CONV),
    "DequantizeLinear": _DEQUANTIZE,
    "DynamicQuantizeLinear": Expansion(linear.dynamic_quantize_linear, 1, 3),
    "MatMulInteger": Expansion(integer.matmul_integer, 4),
    "QLinearConv": _QLINEAR_CONV,
    "QLinearMatMul": Expansion(integer.qlinear_matmul, 8),
    "QuantizeLinear": _QUANTIZE,
}
_MICROSOFT: dict[str, Expansion] = {
    "DequantizeLinear": _DEQUANTIZE,
    "DynamicQuantizeMatMul": Expansion(integer.dynamic_quantize_matmul, 5),
    "MatMulIntegerToFloat": Expansion(integer.matmul_integer_to_float, 7),
    "QAttention": Expansion(
        functions.attention,
        9,
        2,
        (
            "num_heads", "unidirectional", "scale", "mask_filter_value", "do_rotary",
            "past_present_share_buffer",
        ),
    ),
    "QGemm": Expansion(functions.gemm, 9, attributes=("alpha", "transA", "transB")),
    "QLinearAdd": Expansion(functions.add, 8),
    "QLinearAveragePool": Expansion(
        functions.average_pool,
        5,
        attributes=(
            "auto_pad", "ceil_mode", "channels_last", "count_include_pad", "kernel_shape", "pads",
            "strides",
        ),
    ),
    "QLinearConcat": Expansion(functions.concat, 1 << 16, attributes=("axis",)),
    "QLinearConv": _QLINEAR_CONV,
    "QLinearGlobalAveragePool": Expansion(
        functions.global_average_pool, 5, attributes=("channels_last",)
    ),
    "QLinearLeakyRelu": Expansion(functions.leaky_relu, 5, attributes=("alpha",)),
    "QLinearMul": Expansion(functions.multiply, 8),
    "QLinearSigmoid": Expansion(functions.sigmoid, 5),
    "QLinearSoftmax": Expansion(functions.softmax, 5, attributes=("axis", "opset")),
    "QLinearWhere": Expansion(functions.where, 9),
    "QuantizeLinear": _QUANTIZE,
}  # fmt: skip


def _move_floats(body: Body) -> None:
    """Apply an operator that only moves levels to the floats that they were cast from."""
    levels, *rest = body.node.inputs
    assert levels is not None
    result = body.op(body.node.op_type, source(levels), *rest, **body.node.attributes)
    body.put(body.op("Cast", result, to=int(dtype_of(levels))))


_MOVE = Expansion(_move_floats, 1 << 16, attributes=None)


class LowerQuantized(WriteOut):
    """See the module."""

    name: ClassVar[str] = "lower-quantized"
    summary: ClassVar[str] = "quantized operators and dequantized weights written in float32"
    numerics: ClassVar[Numerics] = Numerics.REASSOCIATED
    table: ClassVar[Mapping[tuple[str, str], Expansion]] = {
        **{("", op_type): expansion for op_type, expansion in _ONNX.items()},
        **{(_DOMAIN, op_type): expansion for op_type, expansion in _MICROSOFT.items()},
    }

    def run(self, ctx: PassContext) -> None:
        """See `Pass.run`."""
        before = ctx.rewriter.applied
        super().run(ctx)
        if ctx.rewriter.applied > before:
            _sweep(ctx)

    def _expansion(self, ctx: PassContext, node: ir.Node) -> Expansion | None:
        if node.op_type in MOVABLE and node.domain in ("", "ai.onnx"):
            levels = node.inputs[0]
            moves = levels is not None and source(levels) is not None
            return _MOVE if moves and _is_only_output(node) else None
        return super()._expansion(ctx, node)


def _is_only_output(node: ir.Node) -> bool:
    return not any(value.uses() or value.is_graph_output() for value in node.outputs[1:])


def _sweep(ctx: PassContext) -> None:
    """Remove casts to integers that nothing reads any more: they are no operator of the model."""
    for scoped in reversed(scoped_nodes(ctx.model)):
        node = scoped.node
        is_read = any(value.uses() or value.is_graph_output() for value in node.outputs)
        if node.op_type == "Cast" and not is_read and source(node.outputs[0]) is not None:
            ctx.rewriter.erase([node])
