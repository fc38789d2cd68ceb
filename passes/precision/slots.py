"""Which inputs and outputs of a node can be float16: what the operator's definition allows.

Knowledge comes from ONNX's own schemas (type constraints) and, for fused operators, from type
inference over the function body that states their meaning (D7): documented float32 outputs such as
the rstd of a norm come out as float32 there.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from typing import TypeAlias

import onnx
import onnx_ir as ir

from cannc.compiler.core.graphs import subgraphs, walk

FLOAT, HALF = ir.DataType.FLOAT, ir.DataType.FLOAT16
CONTROL_FLOW = frozenset({"If", "Loop", "Scan"})

DTYPE_ATTRIBUTE = {
    "Cast": "to",
    "RandomNormal": "dtype",
    "RandomNormalLike": "dtype",
    "RandomUniform": "dtype",
    "RandomUniformLike": "dtype",
    "EyeLike": "dtype",
    "Bernoulli": "dtype",
    "SequenceEmpty": "dtype",
    "BlackmanWindow": "output_datatype",
    "HammingWindow": "output_datatype",
    "HannWindow": "output_datatype",
    "MelWeightMatrix": "output_datatype",
}
"""Operators whose output dtype is an attribute -> its name."""

_Formal: TypeAlias = onnx.defs.OpSchema.FormalParameter
_HALVES = frozenset({"tensor(float16)", "seq(tensor(float16))", "optional(tensor(float16))"})

_FLOAT_NODES = frozenset({"BitCast", "MeanVarianceNormalization"})
"""One reads bits, the other's definition in ONNX has a float32 constant in it."""
_FLOAT_SLOTS = frozenset(
    {
        ("Resize", "roi"),
        ("Resize", "scales"),
        ("BatchNormalization", "scale"),
        ("BatchNormalization", "B"),
        ("BatchNormalization", "mean"),
        ("BatchNormalization", "input_mean"),
        ("BatchNormalization", "var"),
        ("BatchNormalization", "input_var"),
    }
)
"""Inputs that stay float32 where the schema lets them differ from the data: they are a handful of
numbers, and kernels take them as float32."""


@dataclass(frozen=True)
class Slots:
    """Whether each input and output of a node can be float16, given that it is a float32 value."""

    inputs: tuple[bool, ...]
    outputs: tuple[bool, ...]


class SlotTable:
    """Answers `Slots` for the nodes of one model."""

    def __init__(self, model: ir.Model) -> None:
        self._functions = model.functions
        self._opsets = model.graph.opset_imports
        self._known: dict[tuple[str, int, int], Slots] = {}
        self._inferred: dict[tuple[object, ...], Slots | None] = {}

    def of(self, node: ir.Node) -> Slots | None:
        """Return the slots of a node, or None when its operator is unknown. Not for If and Loop."""
        if node.op_identifier() in self._functions:
            return self._of_function(node)
        schema = self.schema(node)
        unknown = any(v is not None and v.dtype is None for v in node.inputs)
        if schema is None or unknown or node.op_type in _FLOAT_NODES:
            return None
        key = (node.op_type, len(node.inputs), len(node.outputs))
        if key not in self._known:
            self._known[key] = _slots(schema, *key)
        return self._known[key]

    def schema(self, node: ir.Node) -> onnx.defs.OpSchema | None:
        """Return the ONNX schema at the model's opset; None outside the default domain."""
        if node.domain not in ("", "ai.onnx"):
            return None
        return _schema(node.op_type, self._opsets.get("", 1))

    def _of_function(self, node: ir.Node) -> Slots | None:
        key = (
            node.op_identifier(),
            tuple(v.dtype if v is not None else None for v in node.inputs),
            tuple(repr(a) for a in node.attributes.values()),
            len(node.outputs),
        )
        if key not in self._inferred:
            types = [HALF if v is not None and v.dtype == FLOAT else _dtype(v) for v in node.inputs]
            found = function_types(self._functions[node.op_identifier()], node, types)
            slots = None
            if found is not None:
                slots = Slots(tuple(True for _ in types), tuple(t == HALF for t in found))
            self._inferred[key] = slots
        return self._inferred[key]


def _slots(schema: onnx.defs.OpSchema, op_type: str, inputs: int, outputs: int) -> Slots:
    result = {schema.outputs[0].type_str} if schema.outputs else set()
    pinned = {f.type_str for f in schema.inputs if (op_type, f.name) in _FLOAT_SLOTS} - result

    def allowed(formals: Sequence[_Formal], count: int) -> tuple[bool, ...]:
        chosen = [_formal(formals, index) for index in range(count)]
        return tuple(f.type_str not in pinned and _can_be_half(f) for f in chosen)

    return Slots(allowed(schema.inputs, inputs), allowed(schema.outputs, outputs))


def function_types(
    function: ir.Function, node: ir.Node, dtypes: list[ir.DataType | None]
) -> list[ir.DataType] | None:
    """Return the dtypes of a call's outputs for input dtypes, or None when they do not follow."""
    types = []
    for dtype in dtypes:
        proto = onnx.TypeProto()
        if dtype is not None:
            proto.tensor_type.elem_type = int(dtype)
        types.append(proto)
    attributes = [ir.to_proto(attribute) for attribute in node.attributes.values()]
    try:
        found = onnx.shape_inference.infer_function_output_types(
            ir.to_proto(function), types, attributes
        )
    except (RuntimeError, onnx.shape_inference.InferenceError):
        # Inference says so where a body does not type-check with these inputs.
        return None
    result = [ir.DataType(t.tensor_type.elem_type) for t in found]
    return None if ir.DataType.UNDEFINED in result else result


def fill_types(model: ir.Model, table: SlotTable) -> None:
    """Give values of unknown dtype the one that their producer's definition says."""
    for scoped in walk(model.graph):
        node = scoped.node
        _fill_body(node)
        if all(value.dtype is not None for value in node.outputs):
            continue
        schema = table.schema(node)
        if node.op_identifier() in model.functions:
            function = model.functions[node.op_identifier()]
            inferred = function_types(function, node, [_dtype(v) for v in node.inputs])
            found: Sequence[ir.DataType | None] | None = inferred
        else:
            found = _from_schema(node, schema)
        for index, (value, dtype) in enumerate(zip(node.outputs, found or [], strict=False)):
            if value.type is None and dtype is not None:
                of_sequence = schema is not None and _is_sequence(_formal(schema.outputs, index))
                tensor = ir.TensorType(dtype)
                value.type = ir.SequenceType(tensor) if of_sequence else tensor


def _fill_body(node: ir.Node) -> None:
    """Give inputs of a Loop's or Scan's body the dtype of the operands that they receive."""
    if node.op_type not in ("Loop", "Scan"):
        return
    for _, body in subgraphs(node):
        # Scan of opset 8 has one operand more; nobody looks into its body.
        for value, operand in zip(body.inputs, node.inputs, strict=False):
            if value.type is None and operand is not None and operand.dtype is not None:
                value.type = ir.TensorType(operand.dtype)


def _from_schema(
    node: ir.Node, schema: onnx.defs.OpSchema | None
) -> list[ir.DataType | None] | None:
    if schema is None or any(True for _ in subgraphs(node)):
        return None
    if node.op_type in DTYPE_ATTRIBUTE:
        given = node.attributes.get(DTYPE_ATTRIBUTE[node.op_type])
        if given is not None or not node.inputs:
            return [ir.DataType(given.as_int()) if given else FLOAT]
    bound: dict[str, ir.DataType] = {}
    for index, value in enumerate(node.inputs):
        if value is not None and value.dtype is not None:
            bound.setdefault(_formal(schema.inputs, index).type_str, value.dtype)
    concrete = {f"tensor({name})": dtype for name, dtype in _NAMES.items()}
    types = [_formal(schema.outputs, index).type_str for index in range(len(node.outputs))]
    return [bound.get(t) or concrete.get(t) for t in types]


def carried(node: ir.Node) -> list[tuple[ir.Value, ...]]:
    """Return the groups of values of an If, Loop or Scan that must share one dtype.

    A group holds an output of the node, the outputs of the bodies that feed it, and the body input
    that carries it round; body inputs that only receive slices of a scanned input stand alone.
    """
    bodies = [graph for _, graph in subgraphs(node)]
    if node.op_type == "If":
        return [
            (value, *(body.outputs[i] for body in bodies)) for i, value in enumerate(node.outputs)
        ]
    (body,) = bodies
    if node.op_type == "Loop":
        states, results = list(body.inputs[2:]), list(body.outputs[1:])
    else:
        scans = node.attributes["num_scan_inputs"].as_int()
        states, results = list(body.inputs[: len(body.inputs) - scans]), list(body.outputs)
    groups: list[tuple[ir.Value, ...]] = [
        (value, results[i], *states[i : i + 1]) for i, value in enumerate(node.outputs)
    ]
    return groups + [(value,) for value in body.inputs if value not in states]


def _formal(formals: Sequence[_Formal], index: int) -> _Formal:
    """Return the formal parameter of an actual one; the last one may be variadic."""
    return formals[min(index, len(formals) - 1)]


def _can_be_half(formal: _Formal) -> bool:
    return not _HALVES.isdisjoint(formal.types)


def _is_sequence(formal: _Formal) -> bool:
    return all(kind.startswith("seq(") for kind in formal.types)


@cache
def _schema(op_type: str, opset: int) -> onnx.defs.OpSchema | None:
    try:
        return onnx.defs.get_schema(op_type, opset)
    except onnx.defs.SchemaError:
        return None


def _dtype(value: ir.Value | None) -> ir.DataType | None:
    return None if value is None else value.dtype


_NAMES = {
    "float": FLOAT,
    "float16": HALF,
    "int64": ir.DataType.INT64,
    "int32": ir.DataType.INT32,
    "bool": ir.DataType.BOOL,
}
