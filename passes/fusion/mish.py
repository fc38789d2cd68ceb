"""Mish written out -> npu::NPUMish.

Before:  x * tanh(softplus(x))     (Softplus, or log(1 + exp(x)))
After:   NPUMish(x)

ONNX's own Mish (opset 18) stays: ATC's parser maps it to the same kernel.
"""

from __future__ import annotations

from typing import ClassVar

import onnx_ir as ir

from cannc.passes.base import Numerics, PassContext
from cannc.passes.fusion.base import (
    FusionPass,
    choose,
    dtype_of,
    kernel_problem,
    near,
    width_problem,
)
from cannc.passes.pattern import Match, one_of, op, var

_X = var("x")
_SOFTPLUS = one_of(op("Softplus", _X), op("Log", op("Add", op("Exp", _X), near(1))))
_FORMS = (op("Mul", _X, op("Tanh", _SOFTPLUS)),)


class FuseMish(FusionPass):
    """See the module."""

    name: ClassVar[str] = "fuse-mish"
    summary: ClassVar[str] = "x * tanh(softplus(x)) -> NPUMish"
    numerics: ClassVar[Numerics] = Numerics.REASSOCIATED
    roots: ClassVar[frozenset[str]] = frozenset({"Mul"})
    anchors: ClassVar[frozenset[str]] = frozenset({"Tanh"})
    reach: ClassVar[int] = 1
    emits: ClassVar[tuple[str, ...]] = ("NPUMish",)

    def fuse(self, ctx: PassContext, node: ir.Node) -> None:
        """Fuse the Mish that ends in `node`."""

        def problem(match: Match) -> str | None:
            x = match["x"]
            return width_problem(match, x) or kernel_problem(ctx, "NPUMish", dtype_of(x))

        match = choose(ctx, _FORMS, node, problem)
        if match is not None:
            result = node.outputs[0]
            fused = ctx.rewriter.node("NPUMish", [match["x"]], domain="npu", like=result)
            ctx.rewriter.replace(match.nodes, [fused], {result: fused.outputs[0]})
