"""The dtype of every value of a model, found without reading weights."""

from __future__ import annotations

import logging

import onnx
import onnx_ir as ir

from cannc.compiler.core.graphs import all_graphs, walk

log = logging.getLogger(__name__)

HALF = frozenset({ir.DataType.FLOAT16, ir.DataType.BFLOAT16})
"""The 16-bit float dtypes."""

DTYPE_ATTRIBUTES = frozenset(
    {"to", "dtype", "output_dtype", "output_datatype", "stash_type", "softmax_precision"}
)
"""Integer attributes of standard operators that hold an ONNX dtype."""

_SMALL_TENSOR_BYTES = 1024


def infer_types(model: ir.Model) -> None:
    """Fill in the types of values that have none, in place. Shapes stay as they are.

    Operators that ONNX does not know (contrib domains) are taken to keep the dtype of their first
    float input, and inference goes on from there.
    """
    _infer(model)
    while _guess(model):
        _infer(model)


def half_of(value: ir.Value) -> ir.DataType | None:
    """Return the dtype of a tensor of 16-bit floats; None for everything else."""
    return value.dtype if isinstance(value.type, ir.TensorType) and value.dtype in HALF else None


def mentions_half(model: ir.Model) -> bool:
    """Tell whether 16-bit floats occur anywhere in the model, judged by where they can begin."""
    graphs = [graph for _, graph in all_graphs(model.graph)]
    values = [v for graph in graphs for v in (*graph.inputs, *graph.initializers.values())]
    tops = [model.graph, *(function.graph for function in model.functions.values())]
    nodes = [scoped.node for graph in tops for scoped in walk(graph)]
    values += [v for node in nodes for v in node.outputs]
    return any(v.type is not None and v.type.dtype in HALF for v in values) or any(
        _attribute_is_half(a) for node in nodes for a in node.attributes.values()
    )


def with_dtype(kind: ir.TypeProtocol, dtype: ir.DataType) -> ir.TypeProtocol:
    """Return a tensor, sequence or optional type with another element dtype."""
    if isinstance(kind, ir.SequenceType):
        return ir.SequenceType(with_dtype(kind.elem_type, dtype), denotation=kind.denotation)
    if isinstance(kind, ir.OptionalType):
        return ir.OptionalType(with_dtype(kind.elem_type, dtype), denotation=kind.denotation)
    return type(kind)(dtype, denotation=kind.denotation)  # type: ignore[call-arg]


def _attribute_is_half(attribute: ir.Attr) -> bool:
    if attribute.is_ref():
        return False
    if attribute.type == ir.AttributeType.TENSOR:
        return attribute.as_tensor().dtype in HALF
    if attribute.type == ir.AttributeType.INT:
        return attribute.name in DTYPE_ATTRIBUTES and attribute.as_int() in HALF
    return attribute.type == ir.AttributeType.TYPE_PROTO and attribute.value.type.dtype in HALF


def _infer(model: ir.Model) -> None:
    proto = ir.to_proto(_weightless(model))
    try:
        inferred = onnx.shape_inference.infer_shapes(proto, check_type=False, strict_mode=False)
    except (RuntimeError, ValueError, onnx.shape_inference.InferenceError) as error:
        # Types that the file declares still stand; a wrong guess shows as onnxruntime's error.
        log.warning("type inference failed: %s", error)
        return
    found = ir.from_proto(inferred)
    pairs = zip(all_graphs(model.graph), all_graphs(found.graph), strict=True)
    for (_, graph), (_, typed) in pairs:
        types = {value.name: value.type for value in values_of(typed)}
        for value in values_of(graph):
            value.type = types.get(value.name) or value.type


def _weightless(model: ir.Model) -> ir.Model:
    """Return a copy in which large initializers are inputs: inference needs no numbers of them."""
    copy = model.clone()
    for _, graph in all_graphs(copy.graph):
        for name, value in [*graph.initializers.items()]:
            tensor = value.const_value
            if tensor is not None and tensor.nbytes > _SMALL_TENSOR_BYTES:
                graph.initializers.pop(name)
                value.const_value = None
                if graph is copy.graph and not value.is_graph_input():
                    graph.inputs.append(value)
    return copy


def values_of(graph: ir.Graph) -> list[ir.Value]:
    """Return a graph's inputs, initializers and node outputs; nested graphs not included."""
    outputs = [value for node in graph for value in node.outputs]
    return [*graph.inputs, *graph.initializers.values(), *outputs]


def _guess(model: ir.Model) -> bool:
    """Type the first output of unknown operators; True if any was typed."""
    guessed = False
    for scoped in walk(model.graph):
        node = scoped.node
        if node.domain in ("", "ai.onnx") or not node.outputs or node.outputs[0].type is not None:
            continue
        floats = [v for v in node.inputs if v is not None and v.dtype is not None]
        source = next(
            (v for v in floats if v.dtype is not None and v.dtype.is_floating_point()), None
        )
        if source is not None and isinstance(source.type, ir.TensorType):
            node.outputs[0].type = source.type
            guessed = True
    return guessed
