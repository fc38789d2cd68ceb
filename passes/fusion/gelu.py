"""GELU in its written-out forms -> one fused operator.

erf:      x * 0.5 * (1 + erf(x / sqrt 2))                                  -> npu::NPUGeluV2
tanh:     x * 0.5 * (1 + tanh(sqrt(2/pi) * (x + 0.044715 x^3)))            -> npu::NPUGeluV2 tanh
          x * sigmoid(2 sqrt(2/pi) * (x + 0.044715 x^3)), since 0.5 (1 + tanh z) = sigmoid(2 z)
quick:    x * sigmoid(1.702 x)                                             -> npu::NPUFastGelu
ONNX Gelu (opset 20), which ATC's parser does not know                     -> npu::NPUGeluV2

The three factors come in every order, 0.5 also as a division by 2 or multiplied out, the cube as
Pow or as a product, x^3 with an x factored out.
"""

from __future__ import annotations

import math
from typing import ClassVar

import onnx_ir as ir

from cannc.passes.base import Numerics, PassContext
from cannc.passes.fusion.base import (
    FusionPass,
    choose,
    dtype_of,
    kernel_problem,
    near,
    scaled_product,
    square,
    width_problem,
)
from cannc.passes.pattern import Match, Op, Pattern, one_of, op, var

_X = var("x")
_ROOT_TWO = math.sqrt(2)
_SLOPE = math.sqrt(2 / math.pi)
_CUBIC = 0.044715


def _gated(gate: Pattern) -> tuple[Op, ...]:
    """Return patterns of x * 0.5 * (1 + gate)."""
    inner = op("Add", op("Mul", gate, near(0.5)), near(0.5))
    return (*scaled_product(_X, op("Add", gate, near(1)), 0.5), op("Mul", _X, inner))


def _bent(slope: float) -> Pattern:
    """Return patterns of slope * (x + 0.044715 x^3)."""
    cube = one_of(op("Pow", _X, near(3)), op("Mul", _X, square(_X)))
    small_cube = one_of(
        op("Mul", cube, near(_CUBIC)), op("Mul", _X, op("Mul", square(_X), near(_CUBIC)))
    )
    small_square = one_of(
        op("Mul", square(_X), near(_CUBIC)), op("Mul", _X, op("Mul", _X, near(_CUBIC)))
    )
    one_plus = op("Add", small_square, near(1))
    return one_of(
        op("Mul", op("Add", _X, small_cube), near(slope)),
        op("Add", op("Mul", _X, near(slope)), op("Mul", cube, near(slope * _CUBIC))),
        op("Mul", op("Mul", _X, near(slope)), one_plus),
        op("Mul", op("Mul", _X, one_plus), near(slope)),
        op("Mul", _X, op("Mul", one_plus, near(slope))),
    )


_HALF_ROOT = one_of(op("Div", _X, near(_ROOT_TWO)), op("Mul", _X, near(1 / _ROOT_TWO)))
_ERF = _gated(op("Erf", _HALF_ROOT))
_TANH = (
    *_gated(op("Tanh", _bent(_SLOPE))),
    op("Mul", _X, op("Sigmoid", _bent(2 * _SLOPE))),
)
_QUICK = (op("Mul", _X, op("Sigmoid", op("Mul", _X, near(1.702)))),)

_FORMS: tuple[tuple[tuple[Op, ...], str, dict[str, str]], ...] = (
    (_ERF, "NPUGeluV2", {"approximate": "none"}),
    (_TANH, "NPUGeluV2", {"approximate": "tanh"}),
    (_QUICK, "NPUFastGelu", {}),
)


class FuseGelu(FusionPass):
    """See the module."""

    name: ClassVar[str] = "fuse-gelu"
    summary: ClassVar[str] = "GELU (erf, tanh, quick) written out -> NPUGeluV2, NPUFastGelu"
    numerics: ClassVar[Numerics] = Numerics.REASSOCIATED
    roots: ClassVar[frozenset[str]] = frozenset({"Mul", "Div", "Gelu"})
    anchors: ClassVar[frozenset[str]] = frozenset({"Erf", "Tanh", "Sigmoid", "Gelu"})
    reach: ClassVar[int] = 4
    emits: ClassVar[tuple[str, ...]] = ("NPUGeluV2", "NPUFastGelu")

    def fuse(self, ctx: PassContext, node: ir.Node) -> None:
        """Fuse the GELU that ends in `node`."""
        if node.op_type == "Gelu":
            _fuse_node(ctx, node)
            return
        for patterns, op_type, attributes in _FORMS:
            if _fuse_form(ctx, node, patterns, op_type, attributes):
                return


def _fuse_form(
    ctx: PassContext,
    node: ir.Node,
    patterns: tuple[Op, ...],
    op_type: str,
    attributes: dict[str, str],
) -> bool:
    def problem(match: Match) -> str | None:
        x = match["x"]
        return width_problem(match, x) or kernel_problem(ctx, op_type, dtype_of(x))

    match = choose(ctx, patterns, node, problem)
    if match is None:
        return False
    result = node.outputs[0]
    fused = ctx.rewriter.node(op_type, [match["x"]], attributes, domain="npu", like=result)
    ctx.rewriter.replace(match.nodes, [fused], {result: fused.outputs[0]})
    return True


def _fuse_node(ctx: PassContext, node: ir.Node) -> None:
    x, result = node.inputs[0], node.outputs[0]
    why = kernel_problem(ctx, "NPUGeluV2", dtype_of(x))
    if why is not None:
        ctx.refuse(node, why)
        return
    attributes = {"approximate": node.attributes.get_string("approximate", "none")}
    fused = ctx.rewriter.node("NPUGeluV2", [x], attributes, domain="npu", like=result)
    ctx.rewriter.replace([node], [fused], {result: fused.outputs[0]})
