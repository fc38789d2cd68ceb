"""Carries a precision plan out: new dtypes, casts at the borders, copies of shared constants."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass

import onnx_ir as ir

from cannc.compiler.core.graphs import all_graphs
from cannc.compiler.core.provenance import origins, set_origin
from cannc.passes.base import PassContext
from cannc.passes.pattern import constant_of
from cannc.passes.precision.plan import Plan
from cannc.passes.precision.slots import DTYPE_ATTRIBUTE, FLOAT, HALF
from cannc.passes.precision.weights import Loss, to_half
from cannc.passes.rewrite import scoped_nodes

_OPSET = 18
"""Imported for the casts when a model has only operators of other domains."""


@dataclass(frozen=True)
class _Edge:
    """An input of a node, or an output of a graph, and the dtype that it has to come in."""

    value: ir.Value
    half: bool
    node: ir.Node | None = None
    graph: ir.Graph | None = None
    index: int = 0


class Retyper:
    """Changes dtypes in place.

    The graph's structure stays, so nothing is replaced: only casts and copies of constants are
    added, which stand for no original node.
    """

    def __init__(self, ctx: PassContext, plan: Plan) -> None:
        self._ctx = ctx
        self._plan = plan
        self._casts: dict[tuple[ir.Value, bool], ir.Value] = {}
        self._nodes = [scoped.node for scoped in scoped_nodes(ctx.model)]

    def run(self) -> None:
        """Apply the plan; everything is decided before the first change."""
        edges = self._edges()
        halves = [value for value in self._all_values() if self._plan.stores_half(value)]
        constants = defaultdict(list)
        casts: list[_Edge] = []
        for edge in edges:
            if constant_of(edge.value) is not None:
                constants[edge.value].append(edge)
            elif self._plan.stores_half(edge.value) != edge.half:
                casts.append(edge)
        halves = [value for value in halves if constant_of(value) is None]
        for value in halves:
            _set_dtype(value)
            self._set_attribute(value.producer())
        # Outputs of graphs first: their cast takes over the name.
        for edge in sorted(casts, key=lambda edge: edge.node is not None):
            self._connect(edge, self._cast(edge))
        for value, users in constants.items():
            self._constant(value, users)
        self._ctx.rewriter.applied += len(halves)

    # -- what has to change --------------------------------------------------------------------

    def _edges(self) -> list[_Edge]:
        edges: list[_Edge] = []
        for node in self._nodes:
            for index, value in enumerate(node.inputs):
                if value is None or value.dtype != FLOAT:
                    continue
                half = self._plan.wants_half(node, index)
                if half is not None:
                    edges.append(_Edge(value, half, node=node, index=index))
        for scope, graph in all_graphs(self._ctx.model.graph):
            for index, value in enumerate(graph.outputs):
                if value.dtype != FLOAT:
                    continue
                half = self._plan.carries_half(value) if scope else value not in self._plan.border
                edges.append(_Edge(value, half, graph=graph, index=index))
        return edges

    def _all_values(self) -> list[ir.Value]:
        graphs = [graph for _, graph in all_graphs(self._ctx.model.graph)]
        inputs = [value for graph in graphs for value in graph.inputs]
        return inputs + [value for node in self._nodes for value in node.outputs]

    # -- values ----------------------------------------------------------------------------------

    def _cast(self, edge: _Edge) -> ir.Value:
        """Return the value in the dtype of the edge; one cast serves all its users."""
        key = (edge.value, edge.half)
        if key in self._casts:
            return self._casts[key]
        value, dtype = edge.value, HALF if edge.half else FLOAT
        cast = self._ctx.rewriter.node("Cast", [value], {"to": int(dtype)}, like=value)
        result, producer = cast.outputs[0], value.producer()
        result.type = ir.TensorType(dtype)
        set_origin(cast, [])
        if producer is not None and producer.graph is not None:
            producer.graph.insert_after(producer, cast)
        else:
            graph = value.graph
            assert graph is not None
            graph.insert_before(graph[0], cast)
        if edge.graph is not None and producer is not None:
            # The name stays where the interface is; the cast belongs to the node before it.
            value.name, result.name = result.name, value.name
            set_origin(cast, origins(producer))
        self._ctx.model.graph.opset_imports.setdefault("", _OPSET)
        self._casts[key] = result
        return result

    def _connect(self, edge: _Edge, value: ir.Value) -> None:
        if edge.node is not None:
            edge.node.replace_input_with(edge.index, value)
        elif edge.graph is not None:
            edge.graph.outputs[edge.index] = value

    def _set_attribute(self, node: ir.Node | None) -> None:
        if node is None or node.domain != "":
            return
        if node.op_type == "ConstantOfShape":
            given = node.attributes.get("value")
            tensor = given.as_tensor() if given else ir.tensor([0.0], dtype=FLOAT)
            node.attributes["value"] = ir.AttrTensor("value", self._half(node.outputs[0], tensor))
        elif node.op_type in DTYPE_ATTRIBUTE:
            name = DTYPE_ATTRIBUTE[node.op_type]
            node.attributes[name] = ir.AttrInt64(name, int(HALF))

    # -- constants -------------------------------------------------------------------------------

    def _constant(self, value: ir.Value, users: list[_Edge]) -> None:
        """Turn a constant to half; where float32 is read as well, there are two of it."""
        halves = [edge for edge in users if edge.half]
        singles = [edge for edge in users if not edge.half]
        if not halves:
            return
        original = constant_of(value)
        assert original is not None
        converted = self._half(value, original)
        self._ctx.rewriter.applied += 1
        if value.is_graph_input() or any(edge.graph is not None for edge in singles):
            self._copy(value, converted, halves)
            return
        self._copy(value, original, singles)
        node = value.producer()
        if node is None:
            value.const_value = converted
        else:
            node.attributes.clear()
            node.attributes["value"] = ir.AttrTensor("value", converted)
        _set_dtype(value)

    def _copy(self, value: ir.Value, tensor: ir.TensorProtocol, users: list[_Edge]) -> None:
        if users:
            twin = self._ctx.rewriter.constant(value, tensor)
            for edge in users:
                self._connect(edge, twin)

    def _half(self, value: ir.Value, tensor: ir.TensorProtocol) -> ir.TensorProtocol:
        converted, loss = to_half(tensor)
        self._tell(value, loss)
        return converted

    def _tell(self, value: ir.Value, loss: Loss) -> None:
        if loss.clipped:
            self._ctx.note(
                f"constant '{value.name}': {loss.clipped} of {loss.size} numbers clipped to +-65504"
            )
        if loss.flushed:
            self._ctx.note(f"constant '{value.name}' is not zero but becomes zero in float16")


def _set_dtype(value: ir.Value) -> None:
    # Type objects may be shared between values, so a new one is made.
    value.type = _halved(value.type)


def _halved(kind: ir.TypeProtocol | None) -> ir.TypeProtocol:
    if isinstance(kind, (ir.SequenceType, ir.OptionalType)):
        return type(kind)(_halved(kind.elem_type))
    return ir.TensorType(HALF)
