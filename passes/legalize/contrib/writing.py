"""The pass that walks over the graph and writes operators out by a table of bodies."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import ClassVar

import onnx_ir as ir

from cannc.compiler.core.graphs import all_graphs
from cannc.passes.base import Pass, PassContext
from cannc.passes.legalize.base import opset_of
from cannc.passes.legalize.contrib.body import Body, ObstacleError
from cannc.passes.legalize.contrib.types import infer_outputs
from cannc.passes.rewrite import scoped_nodes

_MIN_OPSET = 11


@dataclass(frozen=True)
class Expansion:
    """How an operator is written out, and the part of its signature for which that is right.

    Attributes:
        build: Builds the body and puts it; raises `ObstacleError` when it cannot.
        inputs: Inputs beyond these must be absent.
        outputs: Outputs beyond these must be unused.
        attributes: Attributes that `build` honours; any other one is refused. None for all.
        until: Opset of the domain from which on the operator is another one, or None.
    """

    build: Callable[[Body], None]
    inputs: int
    outputs: int = 1
    attributes: tuple[str, ...] | None = ()
    until: int | None = None

    def obstacle(self, node: ir.Node) -> str | None:
        """Return what of the node's form is not honoured, or None."""
        for name in node.attributes:
            if self.attributes is not None and name not in self.attributes:
                return f"attribute {name} is unknown here"
        for index, value in enumerate(node.inputs):
            if index >= self.inputs and value is not None:
                return f"input {index} ({value.name}) has no counterpart"
        for index, value in enumerate(node.outputs):
            if index >= self.outputs and (value.uses() or value.is_graph_output()):
                return f"output {index} ({value.name}) has no counterpart"
        return None


class WriteOut(Pass):
    """Writes out the operators of a table in one walk; types are completed on the way.

    Attributes:
        table: ``(domain, operator)`` -> how it is written out.
        reasons: Domain -> why none of its other operators can be.
    """

    table: ClassVar[Mapping[tuple[str, str], Expansion]]
    reasons: ClassVar[Mapping[str, str]] = {}

    def run(self, ctx: PassContext) -> None:
        """See `Pass.run`."""
        nodes = [scoped.node for scoped in scoped_nodes(ctx.model)]
        if any(self._is_meant(ctx, node) for node in nodes):
            for node in nodes:
                if node.graph is not None:  # not replaced together with one before it
                    self._visit(ctx, node)
        ctx.rewriter.applied += drop_unused_imports(ctx.model)

    def _visit(self, ctx: PassContext, node: ir.Node) -> None:
        expansion = self._expansion(ctx, node)
        if expansion is not None:
            _write(ctx, node, expansion)
        elif self._is_meant(ctx, node):
            ctx.refuse(node, self.reasons[node.domain])
        else:
            infer_outputs(node, ctx.model.opset_imports)

    def _is_meant(self, ctx: PassContext, node: ir.Node) -> bool:
        return node.domain in self.reasons or self._expansion(ctx, node) is not None

    def _expansion(self, ctx: PassContext, node: ir.Node) -> Expansion | None:
        found = self.table.get(("" if node.domain == "ai.onnx" else node.domain, node.op_type))
        if found is None or node.op_identifier() in ctx.model.functions:
            return None
        late = found.until is not None and opset_of(ctx.model) >= found.until
        return None if late else found


def _write(ctx: PassContext, node: ir.Node, expansion: Expansion) -> None:
    body = Body(ctx, node)
    reason = expansion.obstacle(node)
    if body.opset < _MIN_OPSET:
        reason = f"it is written in operators of opset {_MIN_OPSET}, the model has {body.opset}"
    if reason is None:
        try:
            expansion.build(body)
        except ObstacleError as obstacle:
            body.abandon()
            reason = str(obstacle)
    if reason is not None:
        ctx.refuse(node, reason)


def drop_unused_imports(model: ir.Model) -> int:
    """Forget opsets of domains that no node is of, since old parsers want one; return how many."""
    graphs = [model.graph, *(function.graph for function in model.functions.values())]
    used = {node.domain for top in graphs for _, graph in all_graphs(top) for node in graph}
    used |= {domain for domain, _, _ in model.functions}
    unused = [domain for domain in model.opset_imports if domain not in used | {"", "ai.onnx"}]
    for domain in unused:
        del model.opset_imports[domain]
    return len(unused)
