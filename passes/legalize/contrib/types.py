"""Types of values, inferred one node at a time, while a pass moves through the graph."""

from __future__ import annotations

from collections.abc import Mapping

import onnx
import onnx_ir as ir

from cannc.compiler.core.graphs import subgraphs
from cannc.passes.pattern import constant_of

_KNOWN_ELEMENTS = 64
"""Constants up to this size take part with their numbers (axes, target shapes)."""


def infer_outputs(node: ir.Node, imports: Mapping[str, int]) -> None:
    """Fill in dtype and shape of a node's outputs where its schema tells them.

    Leaves alone what is known already, nodes with bodies, and nodes whose inputs are unknown:
    inference of the whole model has had its say about those.
    """
    if all(value.dtype is not None and value.shape is not None for value in node.outputs):
        return
    schema = _schema(node, imports)
    inputs = [value for value in node.inputs if value is not None]
    if schema is None or subgraphs(node) or any(value.type is None for value in inputs):
        return
    types = {value.name or "": ir.to_proto(value).type for value in inputs}
    data = {
        value.name or "": ir.to_proto(tensor)
        for value in inputs
        if (tensor := constant_of(value)) is not None and tensor.size <= _KNOWN_ELEMENTS
    }
    opsets = [onnx.helper.make_opsetid(domain, version) for domain, version in imports.items()]
    try:
        found = onnx.shape_inference.infer_node_outputs(
            schema, ir.to_proto(node), types, data, opset_imports=opsets
        )
    except (onnx.shape_inference.InferenceError, RuntimeError, ValueError):
        return  # an invalid node; whoever runs the model will be told
    for value in node.outputs:
        proto = found.get(value.name or "")
        if proto is None or value.is_graph_output():
            continue  # what the interface declares stays as it is
        value.type = value.type or ir.serde.deserialize_type_proto_for_type(proto)
        value.shape = value.shape or ir.serde.deserialize_type_proto_for_shape(proto)


def _schema(node: ir.Node, imports: Mapping[str, int]) -> onnx.defs.OpSchema | None:
    version = imports.get(node.domain)
    if version is None or not onnx.defs.has(node.op_type, node.domain):
        return None
    try:
        return onnx.defs.get_schema(node.op_type, version, node.domain)
    except onnx.defs.SchemaError:
        return None
