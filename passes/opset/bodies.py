"""Operators that ONNX itself defines by others, written out by that definition."""

from __future__ import annotations

from typing import Any

import onnx
import onnx_ir as ir

from cannc.passes.cleanup.inline_functions import instantiate
from cannc.passes.opset.edit import TARGET_OPSET, Edit


def has_body(op_type: str, opset: int) -> bool:
    """Is the operator unknown at opset 18, but defined by others in `opset`?"""
    schema: Any = schema_of(op_type, opset)
    return bool(
        schema is not None
        and schema_of(op_type, TARGET_OPSET) is None
        and (schema.has_function or schema.has_context_dependent_function)
    )


def expand_by_definition(edit: Edit) -> None:
    """Replace a node by the body that its schema gives: Attention, RotaryEmbedding, AffineGrid."""
    opset = edit.ctx.model.opset_imports[""]
    schema: Any = schema_of(edit.node.op_type, opset)  # onnx's stubs lack half of its members
    assert schema is not None
    proto = onnx.FunctionProto()
    if schema.has_context_dependent_function:
        version = _latest(schema.context_dependent_function_opset_versions, opset)
        node = ir.to_proto(edit.node).SerializeToString()
        types = [_type(value) for value in edit.node.inputs]
        body = schema.get_context_dependent_function_with_opset_version(version, node, types)
    else:
        version = _latest(schema.function_opset_versions, opset)
        body = schema.get_function_with_opset_version(version)
    proto.ParseFromString(body)
    produced = {name for node in proto.node for name in node.output}
    while proto.output[-1] not in produced:
        # Trailing outputs that the call does not list are declared, but not computed.
        proto.output.pop()
    function = ir.from_proto(proto)
    for name, formal in schema.attributes.items():
        if formal.default_value.type != onnx.AttributeProto.UNDEFINED:
            function.attributes[name] = ir.serde.deserialize_attribute(formal.default_value)
    graph = instantiate(edit.node, function)
    edit.ctx.rewriter.splice(edit.node, graph)


def schema_of(op_type: str, opset: int) -> onnx.defs.OpSchema | None:
    """Return the schema of the default domain, or None when the operator is unknown there."""
    try:
        schema = onnx.defs.get_schema(op_type, opset, "")
    except onnx.defs.SchemaError:
        return None
    return None if schema.deprecated else schema


def _latest(versions: list[int], opset: int) -> int:
    return max((v for v in versions if v <= opset), default=min(versions))


def _type(value: ir.Value | None) -> bytes:
    if value is None or value.type is None:
        return onnx.TypeProto().SerializeToString()
    return ir.to_proto(value).type.SerializeToString()
