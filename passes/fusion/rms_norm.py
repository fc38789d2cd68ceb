"""RMSNorm written out -> npu::NPURmsNorm.

Before:  x * rsqrt(mean(x^2) + eps) * gamma    (square as Pow or Mul; Sqrt, Reciprocal, Div, Pow;
         with or without gamma; with the casts to float32 and back of half-precision exports)
After:   NPURmsNorm(x, gamma)                  when eps is 1e-6
         NPURmsNorm(x * s, gamma), s = sqrt(1e-6 / eps)   otherwise (D10)

The kernel fixes epsilon at 1e-6. The rescaling is exact: with x' = s x,
``x' / sqrt(mean(x'^2) + 1e-6) = s x / sqrt(s^2 mean(x^2) + s^2 eps) = x / sqrt(mean(x^2) + eps)``.

In float16 s < 1 (eps above 1e-6) costs at most 2^-25 of x' per element, thus 3e-5 of the result,
where everything in the row is tiny; s > 1 could overflow and is refused.

Gamma may be any tensor of exactly the normalized dims, a computed ``1 + w`` (Gemma) too.
"""

from __future__ import annotations

import math
from typing import ClassVar

import numpy as np
import onnx_ir as ir

from cannc.passes.base import Numerics, PassContext
from cannc.passes.fusion.base import (
    FusionPass,
    choose,
    dtype_problem,
    kernel_problem,
    maybe_cast,
    square,
    tail_axes,
    width_problem,
)
from cannc.passes.fusion.norms import Tail, and_cast, over_root, weighted
from cannc.passes.pattern import Match, op, scalar, scalar_of, var

KERNEL_EPSILON = 1e-6

_X = maybe_cast(var("x"))
_SHIFTED = op("Add", op("ReduceMean", square(_X), name="mean", rest=True), scalar(name="epsilon"))
_UNIT = over_root(_X, _SHIFTED)
_FORMS = (*and_cast(weighted(_UNIT)), *and_cast(_UNIT))


class FuseRmsNorm(FusionPass):
    """See the module."""

    name: ClassVar[str] = "fuse-rms-norm"
    summary: ClassVar[str] = "RMSNorm written out -> NPURmsNorm, whatever its epsilon"
    numerics: ClassVar[Numerics] = Numerics.REASSOCIATED
    roots: ClassVar[frozenset[str]] = frozenset({"Mul", "Div", "Cast"})
    anchors: ClassVar[frozenset[str]] = frozenset({"ReduceMean"})
    reach: ClassVar[int] = 7
    emits: ClassVar[tuple[str, ...]] = ("NPURmsNorm",)

    def fuse(self, ctx: PassContext, node: ir.Node) -> None:
        """Fuse the RMSNorm that ends in `node`."""
        match = choose(ctx, _FORMS, node, lambda match: _problem(ctx, match))
        if match is None:
            return
        tail = _tail(match)
        assert isinstance(tail, Tail)
        result = node.outputs[0]
        new, gamma = tail.fit(ctx, match.values.get("gamma"), result, 1.0)
        x = match["x"]
        scale = _scale(match)
        if scale is not None:
            factor = ctx.rewriter.constant(x, np.array(scale, tail.dtype.numpy()))
            scaled = ctx.rewriter.node("Mul", [x, factor])
            scaled.outputs[0].type, scaled.outputs[0].shape = x.type, x.shape
            new.append(scaled)
            x = scaled.outputs[0]
            if scale > 1:
                ctx.note(
                    f"{node.name}: its input is multiplied by {scale:.4g} because the kernel's "
                    f"epsilon is 1e-6; in half precision values over {65504 / scale:.4g} overflow"
                )
        fused = ctx.rewriter.node("NPURmsNorm", [x, gamma], domain="npu", like=result)
        ctx.rewriter.replace(match.nodes, [*new, fused], {result: fused.outputs[0]})


def _problem(ctx: PassContext, match: Match) -> str | None:
    x = match["x"]
    why = dtype_problem(match, x)
    if why is not None:
        return "" if match.root.op_type == "Cast" else why
    tail = _tail(match)
    if isinstance(tail, str):
        return tail
    return (
        tail.weight_problem(match.values.get("gamma"))
        or width_problem(match, x)
        or _epsilon_problem(match, tail.dtype)
        or kernel_problem(ctx, "NPURmsNorm", tail.dtype)
    )


def _tail(match: Match) -> Tail | str:
    x = match["x"]
    count = tail_axes(match.named["mean"], x)
    if count is None:
        return "the mean is not over the last axes, or drops them"
    return Tail.of(x, count)


def _scale(match: Match) -> float | None:
    """Return the factor in front of the kernel; None when epsilon is the kernel's own."""
    epsilon = scalar_of(match["epsilon"])
    assert epsilon is not None
    if epsilon == np.float16(KERNEL_EPSILON) or math.isclose(epsilon, KERNEL_EPSILON, rel_tol=1e-3):
        return None
    return math.sqrt(KERNEL_EPSILON / epsilon)


def _epsilon_problem(match: Match, dtype: ir.DataType) -> str | None:
    epsilon = scalar_of(match["epsilon"])
    if epsilon is None or not epsilon > 0:
        return f"epsilon is {epsilon}; the kernel's is 1e-6 and no scaling makes up for that"
    scale = _scale(match)
    if dtype == ir.DataType.FLOAT16 and scale is not None and scale > 1:
        return f"epsilon {epsilon:.3g} needs the input scaled by {scale:.3g}: may overflow float16"
    return None
