"""Drops weights from the list of graph inputs.

    g(x, w = {1.0, 2.0}) => y      ->      g(x) => y, w an initializer

Files of IR version 3 list every weight as an input; nobody feeds them (D25). Real inputs stay, read
or not.
"""

from __future__ import annotations

from cannc.passes.base import Numerics, Pass, PassContext


class ConstantInputs(Pass):
    """See the module."""

    name = "constant-inputs"
    summary = "weights that are also listed as inputs are weights only"
    numerics = Numerics.EXACT

    def run(self, ctx: PassContext) -> None:
        """See `Pass.run`."""
        graph = ctx.model.graph
        for value in [v for v in graph.inputs if v.name in graph.initializers]:
            ctx.rewriter.drop_input(value)
