"""LayerNorm written out -> LayerNormalization (opset 17).

Before:  d = x - mean(x);  d / sqrt(mean(d^2) + eps) * gamma + beta
         (d computed once or twice; square as Pow or Mul; Sqrt, Reciprocal, Div, Pow; with or
         without gamma and beta; casts to float32 inside, around the square only or around all)
         or, from TensorFlow:  m = gamma / sqrt(mean(d^2) + eps);  x * m + (beta - mean(x) * m)
After:   LayerNormalization(x, gamma, beta), axis = -k, epsilon = eps

Both means run over the last k axes and keep them. Gamma and beta get exactly the shape of these
axes and the dtype of x; the operator keeps its statistics in float32 (stash_type 1), which is what
exporters' casts are for.
"""

from __future__ import annotations

from typing import ClassVar

import onnx_ir as ir

from cannc.passes.base import Numerics, PassContext
from cannc.passes.fusion.base import (
    FusionPass,
    choose,
    dtype_problem,
    maybe_cast,
    square,
    tail_axes,
    width_problem,
)
from cannc.passes.fusion.norms import Tail, and_cast, over_root, weighted
from cannc.passes.pattern import Match, op, scalar, scalar_of, var

_X = maybe_cast(var("x"))
_MEAN = op("ReduceMean", _X, name="mean", rest=True)
_CENTRED = op("Sub", _X, _MEAN)
_VARIANCE = op("ReduceMean", square(maybe_cast(_CENTRED)), name="variance", rest=True)
_SHIFTED = op("Add", _VARIANCE, scalar(name="epsilon"))
_UNIT = over_root(maybe_cast(_CENTRED), maybe_cast(_SHIFTED))
_SCALED = weighted(_UNIT)
_MOVED = tuple(op("Add", maybe_cast(form), maybe_cast(var("beta"))) for form in _SCALED)

_FACTOR = op("Mul", op("Reciprocal", op("Sqrt", _SHIFTED)), maybe_cast(var("gamma")))
_AFFINE = op(
    "Add",
    op("Mul", _X, _FACTOR),
    op("Sub", maybe_cast(var("beta")), op("Mul", _MEAN, _FACTOR)),
)
_FORMS = tuple(form for group in ((*_MOVED, _AFFINE), _SCALED, _UNIT) for form in and_cast(group))


class FuseLayerNorm(FusionPass):
    """See the module."""

    name: ClassVar[str] = "fuse-layer-norm"
    summary: ClassVar[str] = "LayerNorm written out -> LayerNormalization"
    numerics: ClassVar[Numerics] = Numerics.REASSOCIATED
    roots: ClassVar[frozenset[str]] = frozenset({"Add", "Mul", "Div", "Cast"})
    anchors: ClassVar[frozenset[str]] = frozenset({"ReduceMean"})
    reach: ClassVar[int] = 10
    min_opset: ClassVar[int] = 17

    def fuse(self, ctx: PassContext, node: ir.Node) -> None:
        """Fuse the LayerNorm that ends in `node`."""
        match = choose(ctx, _FORMS, node, _problem)
        if match is None:
            return
        tail = _tail(match)
        assert isinstance(tail, Tail)
        result = node.outputs[0]
        new, gamma = tail.fit(ctx, match.values.get("gamma"), result, 1.0)
        inputs = [match["x"], gamma]
        if "beta" in match.values:
            nodes, beta = tail.fit(ctx, match["beta"], result, 0.0)
            new += nodes
            inputs.append(beta)
        attributes = {"axis": -len(tail.dims), "epsilon": scalar_of(match["epsilon"])}
        fused = ctx.rewriter.node("LayerNormalization", inputs, attributes, like=result)
        ctx.rewriter.replace(match.nodes, [*new, fused], {result: fused.outputs[0]})


def _problem(match: Match) -> str | None:
    x = match["x"]
    why = dtype_problem(match, x)
    if why is not None:
        return "" if match.root.op_type == "Cast" else why
    tail = _tail(match)
    if isinstance(tail, str):
        return tail
    if tail.dtype == ir.DataType.DOUBLE:
        return "LayerNormalization keeps its statistics in float32, the graph has float64"
    epsilon = scalar_of(match["epsilon"])
    if epsilon is None or epsilon < 0:
        return f"epsilon is {epsilon}"
    return (
        tail.weight_problem(match.values.get("gamma"))
        or tail.weight_problem(match.values.get("beta"))
        or width_problem(match, x)
    )


def _tail(match: Match) -> Tail | str:
    x = match["x"]
    counts = {tail_axes(match.named[name], x) for name in ("mean", "variance")}
    count = counts.pop()
    if count is None or counts:
        return "the means are not over the same last axes, or drop them"
    return Tail.of(x, count)
