"""Types and shapes of all values; symbolic dimension names are kept."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Mapping, Sequence

import onnx
import onnx_ir as ir

from cannc.compiler.core.graphs import subgraphs, walk

log = logging.getLogger(__name__)

_KNOWN_BYTES = 1024
"""Constants up to this size take part in inference with their numbers (axes, target shapes)."""


def infer_shapes(model: ir.Model) -> bool:
    """Fill in types and shapes, in place. What cannot be inferred stays unknown.

    Shapes that the file declares for inner values are dropped first: after an edit they may be
    stale. Only those of operators that nobody defines are kept. What it declares for graph outputs
    stays, except where it contradicts the inferred number of a dim. Weights are not copied.

    Returns:
        Whether any shape is known better than before.
    """
    declared = _forget(model)
    try:
        inferred = onnx.shape_inference.infer_shapes(_skeleton(model), data_prop=True)
    except (onnx.shape_inference.InferenceError, RuntimeError, ValueError) as error:
        log.warning("shapes are unknown: %s", error)
        return False
    _apply(model.graph, inferred.graph)
    for value, shape in declared.items():
        if value.is_graph_output() and value.graph is model.graph:
            _reconcile(value, shape)
    return any(_known(value.shape) > _known(shape) for value, shape in declared.items())


class ShapeTrial:
    """Shape inference of one model at several shapes of its inputs.

    Only what shape inference can see counts; shapes that the file declares for inner values do not.
    The model is not changed, weights are not copied.
    """

    def __init__(self, model: ir.Model) -> None:
        """Prepare `model`, which is what takes long."""
        copy = model.clone()
        _forget(copy)
        self._proto = _skeleton(copy)

    def conflict(self, inputs: Mapping[str, Sequence[int]]) -> str | None:
        """Return which node cannot take the shapes that reach it, or None.

        Args:
            inputs: Input name -> its shape; other inputs keep the shape that they declare.
        """
        trial = onnx.ModelProto()
        trial.CopyFrom(self._proto)
        for info in trial.graph.input:
            if info.name in inputs:
                ir.serde.serialize_shape_into(info.type, ir.Shape(inputs[info.name]))
        try:
            onnx.shape_inference.infer_shapes(trial, strict_mode=True, data_prop=True)
        except (onnx.shape_inference.InferenceError, RuntimeError, ValueError) as error:
            return " ".join(str(error).split())
        return None


def shapes_complete(model: ir.Model) -> bool:
    """Is nothing left that inference could find: is every dim a number or a name of the model?"""
    return all(
        value.shape is not None and all(_is_settled(dim) for dim in value.shape)
        for scoped in walk(model.graph)
        for value in scoped.node.outputs
    )


def static_shape(value: ir.Value | None) -> tuple[int, ...] | None:
    """Return the shape as integers, or None when it is unknown or has symbolic dims."""
    if value is None or value.shape is None or not value.shape.is_static():
        return None
    return tuple(int(dim) for dim in value.shape.numpy())


def rank(value: ir.Value | None) -> int | None:
    """Return the number of dimensions, or None when unknown."""
    return None if value is None or value.shape is None else len(value.shape)


def _forget(model: ir.Model) -> dict[ir.Value, ir.Shape | None]:
    """Drop the shapes that can be inferred; return what they were."""
    declared: dict[ir.Value, ir.Shape | None] = {}
    for scoped in walk(model.graph):
        if _is_undefined(scoped.node, model):
            continue
        for value in scoped.node.outputs:
            declared[value] = value.shape
            value.shape = None
    return declared


def _skeleton(model: ir.Model) -> onnx.ModelProto:
    """Return the model with large weights as inputs and nothing declared for inner values."""
    proto = onnx.ModelProto(ir_version=model.ir_version)
    for domain, version in model.opset_imports.items():
        proto.opset_import.add(domain=domain, version=version)
    proto.functions.extend(ir.to_proto(function) for function in model.functions.values())
    graph = proto.graph
    weights = model.graph.initializers
    for value in model.graph.inputs:
        if value.name not in weights:
            _declare(graph.input.add(), value.name, value)
    for value in weights.values():
        _add_constant(graph, value, value.const_value)
    for node in model.graph:
        tensor = node.attributes.get_tensor("value") if node.op_type == "Constant" else None
        if tensor is not None and tensor.nbytes > _KNOWN_BYTES:
            _add_constant(graph, node.outputs[0], tensor)
        else:
            ir.serde.serialize_node_into(graph.node.add(), node)
            for value in node.outputs:
                if value.shape is not None:
                    _declare(graph.value_info.add(), value.name, value)
    for value in model.graph.outputs:
        _declare(graph.output.add(), value.name, value)
    return proto


def _add_constant(
    graph: onnx.GraphProto, value: ir.Value, tensor: ir.TensorProtocol | None
) -> None:
    if tensor is None:
        _declare(graph.input.add(), value.name, value)
    elif tensor.nbytes <= _KNOWN_BYTES:
        ir.serde.serialize_tensor_into(graph.initializer.add(), tensor)
        graph.initializer[-1].name = value.name or ""
    else:
        _declare(graph.input.add(), value.name, tensor)


def _declare(
    info: onnx.ValueInfoProto, name: str | None, like: ir.Value | ir.TensorProtocol
) -> None:
    info.name = name or ""
    kind = like.type if isinstance(like, ir.Value) else ir.TensorType(like.dtype)
    if kind is not None:
        ir.serde.serialize_type_into(info.type, kind)
        if like.shape is not None:
            ir.serde.serialize_shape_into(info.type, like.shape)


def _apply(graph: ir.Graph, inferred: onnx.GraphProto) -> None:
    values = {value.name: value for node in graph for value in node.outputs}
    for info in (*inferred.value_info, *inferred.output, *inferred.input):
        value = values.get(info.name)
        if value is not None:
            value.type = ir.serde.deserialize_type_proto_for_type(info.type) or value.type
            value.shape = ir.serde.deserialize_type_proto_for_shape(info.type)
    bodies = {(name, key): body for name, key, body in _bodies(inferred.node)}
    for node in graph:
        for key, inner in subgraphs(node):
            _apply(inner, bodies[node.outputs[0].name or "", key])


def _bodies(nodes: Iterable[onnx.NodeProto]) -> Iterator[tuple[str, str, onnx.GraphProto]]:
    """Yield (first output of the node, key as `subgraphs` gives it, body)."""
    for node in nodes:
        for attribute in node.attribute:
            if attribute.type == onnx.AttributeProto.GRAPH:
                yield node.output[0], attribute.name, attribute.g
            for index, body in enumerate(attribute.graphs):
                yield node.output[0], f"{attribute.name}{index}", body


def _reconcile(value: ir.Value, declared: ir.Shape | None) -> None:
    """Keep what is declared for a graph output, unless a dim is proven to be another number."""
    inferred = value.shape
    if declared is None:
        return
    if inferred is not None and _contradicts(declared, inferred):
        log.warning("output '%s' is declared as %s but is %s", value.name, declared, inferred)
        return
    value.shape = declared


def _contradicts(declared: ir.Shape, inferred: ir.Shape) -> bool:
    return len(declared) != len(inferred) or any(
        isinstance(a, int) and isinstance(b, int) and a != b
        for a, b in zip(declared, inferred, strict=True)
    )


def _is_undefined(node: ir.Node, model: ir.Model) -> bool:
    """Is it an operator that neither ONNX nor the model defines?"""
    if node.domain in ("", "ai.onnx") or node.op_identifier() in model.functions:
        return False
    return not onnx.defs.has(node.op_type, node.domain)


def _is_settled(dim: int | ir.SymbolicDim) -> bool:
    # onnx's inference calls dims that it knows nothing about unk__0, unk__1, ...
    return isinstance(dim, int) or (dim.value is not None and not dim.value.startswith("unk__"))


def _known(shape: ir.Shape | None) -> int:
    """How much is known: the rank counts one, every number one."""
    return 0 if shape is None else 1 + sum(isinstance(dim, int) for dim in shape)
