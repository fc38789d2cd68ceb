"""Attributes of ONNX nodes <-> attributes of ops.

Numbers, strings, their lists and tensors have a kind of their own in AttrDef. Rare kinds (types,
strings that are not text, documented attributes) travel as serialized AttributeProto. Graphs are
handled by their owner, since they become graphs of the model.
"""

from __future__ import annotations

from typing import Any

import onnx
import onnx_ir as ir

from cannc.compiler.core.errors import ModelError
from cannc.compiler.om import own
from cannc.compiler.om.attributes import get, kind_of, put_list, typed
from cannc.compiler.om.weights import (
    INLINE_BELOW_BYTES,
    WeightRegion,
    WeightWriter,
    encode_tensor,
)

A = ir.AttributeType
_SCALARS = {A.INT: "i", A.FLOAT: "f", A.STRING: "s"}
_LISTS = {A.INTS: "i", A.FLOATS: "f", A.STRINGS: "s"}
_GRAPHS = (A.GRAPH, A.GRAPHS)
_FROM_KIND = {
    **{kind: attribute_type for attribute_type, kind in _SCALARS.items()},
    **{f"list:{kind}": attribute_type for attribute_type, kind in _LISTS.items()},
}


def encode_attributes(op: Any, node: ir.Node, weights: WeightWriter) -> None:
    """Store the attributes of a node in its op; graphs are left to the caller."""
    rare: list[bytes] = []
    for name in sorted(node.attributes):
        attribute = node.attributes[name]
        if name.startswith(own.PREFIX):
            raise ModelError(
                "OM022",
                f"attribute name '{name}' is reserved",
                where=f"node '{node.name}'",
                fix="rename the attribute",
            )
        if attribute.type in _GRAPHS and not attribute.is_ref() and attribute.value:
            continue
        if not _encode_plain(op.attr, attribute, weights):
            proto: onnx.AttributeProto = ir.to_proto(attribute)
            rare.append(proto.SerializeToString(deterministic=True))
    if rare:
        put_list(op.attr, own.ATTRIBUTE_PROTOS, "bt", rare)


def _encode_plain(attrs: Any, attribute: ir.Attr, weights: WeightWriter) -> bool:
    """Store an attribute under its own name; False when it has a rare kind."""
    kind, value = attribute.type, attribute.value
    if attribute.is_ref() or attribute.doc_string:
        return False
    if kind in _SCALARS and not (kind == A.STRING and isinstance(value, bytes)):
        setattr(attrs[attribute.name], _SCALARS[kind], _encoded(value))
    elif kind in _LISTS:
        put_list(attrs, attribute.name, _LISTS[kind], value)
    elif kind == A.TENSOR:
        _encode_tensor(attrs[attribute.name].t, value, weights)
    elif kind == A.TENSORS:
        put_list(attrs, attribute.name, "t", ())
        for tensor in value:
            _encode_tensor(attrs[attribute.name].list.t.add(), tensor, weights)
    else:
        return False
    return True


def _encode_tensor(target: Any, tensor: ir.TensorProtocol, weights: WeightWriter) -> None:
    large = tensor.dtype != ir.DataType.STRING and tensor.nbytes >= INLINE_BELOW_BYTES
    encode_tensor(target, tensor, weights if large else None)
    target.desc.name = tensor.name or ""


def decode_attributes(op: Any, region: WeightRegion) -> list[ir.Attr]:
    """Return the ONNX attributes of an op; graphs are left to the caller.

    Raises:
        ModelError: ``OM008`` a tensor is broken.
        ValueError: an attribute has a kind that ONNX lacks.
    """
    attributes = [
        _decode(name, op.attr[name], region) for name in op.attr if not name.startswith(own.PREFIX)
    ]
    for data in typed(op.attr, own.ATTRIBUTE_PROTOS, "list:bt", []):
        proto = onnx.AttributeProto.FromString(data)
        if proto.HasField("g") or proto.graphs:
            message = f"attribute '{proto.name}' holds a whole graph"
            raise ValueError(message)
        attributes.append(ir.from_proto(proto))
    return attributes


def _decode(name: str, attr: Any, region: WeightRegion) -> ir.Attr:
    kind = kind_of(attr)
    if kind in _FROM_KIND:
        return ir.Attr(name, _FROM_KIND[kind], get(attr))
    if kind == "t":
        return ir.AttrTensor(name, region.inline(attr.t, attr.t.desc.name))
    if kind == "list:t":
        return ir.AttrTensors(name, [region.inline(t, t.desc.name) for t in attr.list.t])
    message = f"attribute '{name}' has kind '{kind}', which ONNX lacks"
    raise ValueError(message)


def _encoded(value: int | float | str) -> int | float | bytes:
    return value.encode() if isinstance(value, str) else value
