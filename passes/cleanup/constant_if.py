"""Replaces an If whose condition is known by the branch that it takes.

    y = If(true, then: {a = f(x); a}, else: ...)      ->      y = f(x)

Weights of the branch move along. Values of the branch stay traceable under their own names.
"""

from __future__ import annotations

from cannc.passes.base import Numerics, Pass, PassContext
from cannc.passes.pattern import array_of
from cannc.passes.rewrite import scoped_nodes


class ConstantIf(Pass):
    """See the module."""

    name = "constant-if"
    summary = "replace an If with a known condition by the branch that it takes"
    numerics = Numerics.EXACT

    def run(self, ctx: PassContext) -> None:
        """See `Pass.run`."""
        # From the inside out, so that an inner If does not vanish with its branch first.
        for node in reversed([scoped.node for scoped in scoped_nodes(ctx.model)]):
            if node.op_type != "If" or node.domain not in ("", "ai.onnx"):
                continue
            condition = array_of(node.inputs[0])
            if condition is None or condition.size != 1:
                continue
            taken = "then_branch" if bool(condition.reshape(())) else "else_branch"
            ctx.rewriter.splice(node, node.attributes[taken].as_graph())
