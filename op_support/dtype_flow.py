"""Dtypes of values, followed through the graph by the ONNX standard's type constraints.

Cheaper than shape inference by an order of magnitude, and enough to judge kernels by dtype.
"""

from __future__ import annotations

from functools import cache

import onnx.defs
import onnx_ir as ir

from cannc.compiler.core.graphs import walk

_TYPE_ATTRIBUTES = ("to", "dtype")
_DTYPES = {int(dtype): dtype for dtype in ir.DataType}


def flow(model: ir.Model) -> dict[int, ir.DataType]:
    """Return the identity of each value whose dtype could be followed -> its dtype."""
    known: dict[int, ir.DataType] = {}
    imports = {domain or "ai.onnx": version for domain, version in model.opset_imports.items()}
    for scoped in walk(model.graph):
        node = scoped.node
        version = imports.get(node.domain or "ai.onnx", 0)
        rules = _output_rules(node.domain, node.op_type, version)
        for value, rule in zip(node.outputs, rules, strict=False):
            dtype = value.dtype or _apply(rule, node, known)
            if dtype is not None:
                known[id(value)] = dtype
    return known


def _apply(
    rule: int | ir.DataType | None, node: ir.Node, known: dict[int, ir.DataType]
) -> ir.DataType | None:
    for name in _TYPE_ATTRIBUTES:
        attribute = node.attributes.get(name)
        if attribute is not None and attribute.type == ir.AttributeType.INT:
            return None if attribute.is_ref() else _DTYPES.get(attribute.as_int())
    stored = node.attributes.get("value")
    if stored is not None and stored.type == ir.AttributeType.TENSOR and not stored.is_ref():
        return stored.as_tensor().dtype
    if isinstance(rule, ir.DataType) or rule is None:
        return rule
    source = node.inputs[rule] if rule < len(node.inputs) else None
    if source is None:
        return None
    return source.dtype or known.get(id(source))


@cache
def _output_rules(domain: str, op_type: str, version: int) -> tuple[int | ir.DataType | None, ...]:
    """Return per output: the input whose dtype it has, its only dtype, or None."""
    if domain not in ("", "ai.onnx") or version < 1:
        return ()
    try:
        schema = onnx.defs.get_schema(op_type, version, "")
    except onnx.defs.SchemaError:
        return ()
    inputs = [port.type_str for port in schema.inputs]
    only = {
        constraint.type_param_str: constraint.allowed_type_strs[0]
        for constraint in schema.type_constraints
        if len(constraint.allowed_type_strs) == 1
    }
    return tuple(_rule(port.type_str, inputs, only) for port in schema.outputs)


def _rule(type_str: str, inputs: list[str], only: dict[str, str]) -> int | ir.DataType | None:
    if type_str in inputs:
        return inputs.index(type_str)
    text = only.get(type_str, type_str)
    if not text.startswith("tensor("):
        return None
    name = text.removeprefix("tensor(").removesuffix(")").upper()
    return ir.DataType.__members__.get(name)
