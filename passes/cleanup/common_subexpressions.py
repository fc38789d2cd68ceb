"""Computes once what several nodes compute alike.

    a = Tanh(x); b = Tanh(x); y = a + b      ->      a = Tanh(x); y = a + a

Alike means: same operator, same inputs, attributes equal in type and value, and for tensors in
dtype, shape and bytes. Random operators and nodes with bodies are left alone. A node in a branch
may use a result of the graphs around it.
"""

from __future__ import annotations

from collections.abc import Hashable

import onnx_ir as ir

from cannc.compiler.core.graphs import subgraphs
from cannc.passes.base import Numerics, Pass, PassContext
from cannc.passes.cleanup.purity import is_deterministic

_LARGE_BYTES = 4096


class CommonSubexpressions(Pass):
    """See the module."""

    name = "common-subexpressions"
    summary = "compute once what several nodes compute alike"
    numerics = Numerics.EXACT

    def run(self, ctx: PassContext) -> None:
        """See `Pass.run`."""
        _merge(ctx, ctx.model.graph, {})


def _merge(ctx: PassContext, graph: ir.Graph, seen: dict[Hashable, ir.Node]) -> None:
    """Merge within a graph and its bodies; `seen` holds the outer nodes and is left as it was."""
    added: list[Hashable] = []
    for node in graph:
        bodies = [inner for _, inner in subgraphs(node)]
        for inner in bodies:
            _merge(ctx, inner, seen)
        if bodies or not node.inputs or not is_deterministic(node, ctx.model):
            continue
        key = _key(node)
        first = seen.get(key)
        if first is None:
            seen[key] = node
            added.append(key)
        elif _may_stand_in(first, node):
            ctx.rewriter.replace([node], [], dict(zip(node.outputs, first.outputs, strict=True)))
    for key in added:
        del seen[key]


def _may_stand_in(first: ir.Node, node: ir.Node) -> bool:
    """Can outputs of `first` take over graph outputs of `node`? A value has only one name."""
    return all(
        not value.is_graph_output() or (first.graph is node.graph and not other.is_graph_output())
        for value, other in zip(node.outputs, first.outputs, strict=True)
    )


def _key(node: ir.Node) -> Hashable:
    attributes = sorted(node.attributes.values(), key=lambda attribute: attribute.name)
    return (
        node.domain or "ai.onnx",
        node.op_type,
        node.overload,
        len(node.outputs),
        tuple(map(id, node.inputs)),
        tuple(_attribute_key(attribute) for attribute in attributes),
    )


def _attribute_key(attribute: ir.Attr) -> Hashable:
    value = attribute.value
    if attribute.type == ir.AttributeType.TENSOR:
        tensor = attribute.as_tensor()
        content = id(tensor) if tensor.nbytes > _LARGE_BYTES else tensor.numpy().tobytes()
        return attribute.name, tensor.dtype, tuple(tensor.shape), content
    if isinstance(value, (list, tuple)):
        value = tuple(value)
    # repr tells -0.0 from 0.0 and finds NaN equal to itself.
    return attribute.name, attribute.type, attribute.ref_attr_name, repr(value)
