"""Norm reductions written out where ATC's parser has no plugin for them.

Before:  ReduceL2(x, axes)                      After:  Sqrt(ReduceSum(x * x, axes))
         ReduceL1(x, axes)                              ReduceSum(|x|, axes)
         ReduceSumSquare(x, axes) at opset 18           ReduceSum(x * x, axes)

ReduceL1 and ReduceL2 are registered up to opset 17; ReduceSumSquare is at 18, but there its axes
input has no counterpart (onnx-ops-audit.md). The formulas are the operators' own definitions.
"""

from __future__ import annotations

import onnx_ir as ir

from cannc.passes.base import Numerics, PassContext
from cannc.passes.legalize.base import Cure, is_registered, opset_of

_AXES_INPUT_SINCE = 18


class ExpandReduceNorms(Cure):
    """See the module."""

    name = "expand-reduce-norms"
    summary = "ReduceL1, ReduceL2 and ReduceSumSquare written with ReduceSum"
    numerics = Numerics.REASSOCIATED
    op_types = frozenset({"ReduceL1", "ReduceL2", "ReduceSumSquare"})

    def cure(self, ctx: PassContext, node: ir.Node) -> None:
        """Write the reduction out if the parser cannot take it."""
        squares = node.op_type == "ReduceSumSquare"
        has_axes_input = len(node.inputs) > 1 and node.inputs[1] is not None
        takes = not (squares and has_axes_input) and is_registered(ctx.model, node.op_type)
        if takes:
            return
        if opset_of(ctx.model) < _AXES_INPUT_SINCE:
            ctx.refuse(node, "below opset 18 its axes are an attribute: bring the model to 18")
            return
        x, result = node.inputs[0], node.outputs[0]
        if x is None or x.dtype is None or not x.dtype.is_floating_point():
            ctx.refuse(node, "only floating-point reductions are written out")
            return
        if node.op_type == "ReduceL1":
            part = ctx.rewriter.node("Abs", [x])
        else:
            part = ctx.rewriter.node("Mul", [x, x])
        part.outputs[0].type, part.outputs[0].shape = x.type, x.shape
        total = ctx.rewriter.node(
            "ReduceSum", [part.outputs[0], *node.inputs[1:]], node.attributes, like=result
        )
        new = [part, total]
        if node.op_type == "ReduceL2":
            new.append(ctx.rewriter.node("Sqrt", [total.outputs[0]], like=result))
        ctx.rewriter.replace([node], new, {result: new[-1].outputs[0]})
