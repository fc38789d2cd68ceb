"""Removes what no graph output needs.

    y = Relu(x); d = Sqrt(y); output y      ->      y = Relu(x); output y

Nodes, initializers, functions and opset imports, in branches and loop bodies as well. Graph inputs
stay, and so does an initializer that is a graph input: without it the caller would have to feed it.
"""

from __future__ import annotations

import onnx_ir as ir

from cannc.compiler.core.graphs import all_graphs, subgraphs, walk
from cannc.passes.base import Numerics, Pass, PassContext


class DeadCode(Pass):
    """See the module."""

    name = "dead-code"
    summary = "remove nodes, weights, functions and opset imports that nothing needs"
    numerics = Numerics.EXACT

    def run(self, ctx: PassContext) -> None:
        """See `Pass.run`."""
        _sweep(ctx, ctx.model.graph)
        for _, graph in all_graphs(ctx.model.graph):
            for value in list(graph.initializers.values()):
                used = value.uses() or value.is_graph_input() or value.is_graph_output()
                if not used:
                    ctx.rewriter.drop_initializer(value)
        _drop_functions(ctx)
        _drop_imports(ctx)


def _sweep(ctx: PassContext, graph: ir.Graph) -> None:
    """Remove dead nodes from the last to the first, so that one walk finds whole chains."""
    for node in reversed(graph):
        if not any(value.uses() or value.is_graph_output() for value in node.outputs):
            ctx.rewriter.erase([node])
            continue
        for _, inner in subgraphs(node):
            _sweep(ctx, inner)


def _drop_functions(ctx: PassContext) -> None:
    functions = ctx.model.functions
    pending = [scoped.node.op_identifier() for scoped in walk(ctx.model.graph)]
    called: set[ir.OperatorIdentifier] = set()
    while pending:
        identifier = pending.pop()
        if identifier in functions and identifier not in called:
            called.add(identifier)
            pending += [node.op_identifier() for node in functions[identifier].all_nodes()]
    for identifier in [known for known in functions if known not in called]:
        del functions[identifier]
        ctx.rewriter.applied += 1


def _drop_imports(ctx: PassContext) -> None:
    """Drop opset imports that no node needs; some parsers refuse a file with several (E16005)."""
    used = {scoped.node.domain for scoped in walk(ctx.model.graph)} | {"", "ai.onnx"}
    imports = ctx.model.graph.opset_imports
    for domain in [known for known in imports if known not in used]:
        del imports[domain]
        ctx.rewriter.applied += 1
