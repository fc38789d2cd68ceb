"""Comparing a model with what its artifact gives back: nothing may be lost on the way."""

from __future__ import annotations

from collections.abc import Iterator

import onnx_ir as ir

from cannc.compiler.core.errors import CanncError
from cannc.compiler.core.graphs import Scoped, all_graphs, walk


def check_same(written: ir.Model, read: ir.Model) -> None:
    """Compare nodes, edges, attributes, interfaces, weights' dtypes and shapes, and metadata.

    Raises:
        CanncError: ``BCK005`` they differ, which is a bug of the writer or the reader.
    """
    for place, before, after in _pairs(written, read):
        if before != after:
            raise CanncError(
                "BCK005",
                "the artifact does not hold the model that was compiled",
                where=place,
                why=f"compiled: {before!r:.200}; read back: {after!r:.200}",
                fix="this is a bug of cannc: please report it with the model",
            )


def _pairs(written: ir.Model, read: ir.Model) -> Iterator[tuple[str, object, object]]:
    yield "opset imports", dict(written.opset_imports), dict(read.opset_imports)
    yield "metadata", dict(written.metadata_props), dict(read.metadata_props)
    yield "functions", _functions(written), _functions(read)
    graphs, found = [*all_graphs(written.graph)], [*all_graphs(read.graph)]
    yield "graphs", [scope for scope, _ in graphs], [scope for scope, _ in found]
    for (scope, before), (_, after) in zip(graphs, found, strict=True):
        place = f"graph '{scope}'" if scope else "main graph"
        yield f"{place}, inputs", _interface(before.inputs), _interface(after.inputs)
        yield f"{place}, outputs", _interface(before.outputs), _interface(after.outputs)
        yield f"{place}, weights", _weights(before), _weights(after)
    nodes, read_nodes = [*walk(written.graph)], [*walk(read.graph)]
    yield "number of nodes", len(nodes), len(read_nodes)
    for one, other in zip(nodes, read_nodes, strict=True):
        yield f"node '{one.scope}{one.node.name}'", _node(one), _node(other)


def _functions(model: ir.Model) -> list[bytes]:
    functions = (ir.to_proto(function) for function in model.functions.values())
    return sorted(proto.SerializeToString(deterministic=True) for proto in functions)


def _interface(values: object) -> list[tuple[str | None, str, str]]:
    return [(v.name, str(v.type), str(v.shape)) for v in values]  # type: ignore[attr-defined]


def _weights(graph: ir.Graph) -> dict[str, tuple[str, str]]:
    tensors = ((name, value.const_value) for name, value in graph.initializers.items())
    return {name: (str(t.dtype), str(t.shape)) for name, t in tensors if t is not None}


def _node(scoped: Scoped) -> tuple[object, ...]:
    node = scoped.node
    nested = (ir.AttributeType.GRAPH, ir.AttributeType.GRAPHS)
    attributes = {
        name: ir.to_proto(attribute).SerializeToString(deterministic=True)
        for name, attribute in sorted(node.attributes.items())
        if attribute.is_ref() or attribute.type not in nested
    }
    edges = [value.name if value is not None else "" for value in node.inputs]
    results = [value.name for value in node.outputs]
    return node.domain, node.op_type, node.name, edges, results, attributes
