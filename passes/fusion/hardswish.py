"""HardSwish written out -> HardSwish (opset 14), which ATC maps to one kernel.

Before:  x * min(max(x + 3, 0), 6) / 6     (Clip, or Min and Max; the three factors in any order)
         x * HardSigmoid(x), alpha = 1/6, beta = 1/2
After:   HardSwish(x)
"""

from __future__ import annotations

from typing import ClassVar

import numpy as np
import onnx_ir as ir

from cannc.passes.base import Numerics, PassContext
from cannc.passes.fusion.base import FusionPass, choose, near, scaled_product, width_problem
from cannc.passes.pattern import Match, one_of, op, var

_X = var("x")
_SHIFTED = op("Add", _X, near(3))
_CLIPPED = one_of(
    op("Clip", _SHIFTED, near(0), near(6)),
    op("Min", op("Max", _SHIFTED, near(0)), near(6)),
    op("Max", op("Min", _SHIFTED, near(6)), near(0)),
    op("Min", op("Relu", _SHIFTED), near(6)),
)
_FORMS = (
    *scaled_product(_X, _CLIPPED, 1 / 6),
    op("Mul", _X, op("HardSigmoid", _X, name="gate")),
)


class FuseHardSwish(FusionPass):
    """See the module."""

    name: ClassVar[str] = "fuse-hardswish"
    summary: ClassVar[str] = "x * clip(x + 3, 0, 6) / 6 -> HardSwish"
    numerics: ClassVar[Numerics] = Numerics.REASSOCIATED
    roots: ClassVar[frozenset[str]] = frozenset({"Mul", "Div"})
    anchors: ClassVar[frozenset[str]] = frozenset({"Clip", "Min", "Max", "HardSigmoid"})
    reach: ClassVar[int] = 3
    min_opset: ClassVar[int] = 14

    def fuse(self, ctx: PassContext, node: ir.Node) -> None:
        """Fuse the HardSwish that ends in `node`."""
        match = choose(ctx, _FORMS, node, _problem)
        if match is not None:
            result = node.outputs[0]
            fused = ctx.rewriter.node("HardSwish", [match["x"]], like=result)
            ctx.rewriter.replace(match.nodes, [fused], {result: fused.outputs[0]})


def _problem(match: Match) -> str | None:
    gate = match.named.get("gate")
    if gate is not None:
        given = [gate.attributes.get_float("alpha", 0.2), gate.attributes.get_float("beta", 0.5)]
        if not np.allclose(given, [1 / 6, 0.5], rtol=1e-5):
            return f"HardSigmoid has alpha {given[0]:.4g} and beta {given[1]:.4g}"
    return width_problem(match, match["x"])
