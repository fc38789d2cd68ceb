"""Ops and edges of any artifact in one form, read from a ModelDef or from an ONNX model."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import onnx_ir as ir

from cannc.compiler.core.graphs import all_graphs, subgraphs
from cannc.compiler.inspection.names import graph_dtype, onnx_dtype, tensor_text
from cannc.compiler.om import own
from cannc.compiler.om.attributes import typed

# Ops that stand for the graph's interface and constants.
STRUCTURAL = frozenset({"Data", "Const", "NetOutput"})
_UNKNOWN_RANK = (-2,)


@dataclass(frozen=True)
class Op:
    """One op.

    Attributes:
        name: Its name, unique in the graph.
        type: Op type, with the domain in front unless it is ONNX's own.
        inputs: Where each input comes from: ``op:index``, the name of a graph input or constant,
            ``^op`` for a control edge, ``""`` for an absent optional input.
        outputs: Type and shape of each output.
        graphs: Names of the graphs that it runs.
    """

    name: str
    type: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    graphs: tuple[str, ...] = ()

    def __str__(self) -> str:
        """One line, as ``--graph`` prints it."""
        sources = ", ".join(source or "-" for source in self.inputs)
        results = ", ".join(self.outputs)
        runs = f" runs {', '.join(self.graphs)}" if self.graphs else ""
        return f"{self.name}  {self.type}({sources}) -> {results or 'nothing'}{runs}"


@dataclass(frozen=True)
class Graph:
    """A graph: its name, where its outputs come from, and its ops in file order."""

    name: str
    outputs: tuple[str, ...]
    ops: tuple[Op, ...]


def of_definition(definition: Any) -> tuple[Graph, ...]:
    """Return the graphs of a ModelDef, the root first."""
    return tuple(_of_graph_def(graph) for graph in definition.graph)


def _of_graph_def(graph: Any) -> Graph:
    types = {op.name: op.type for op in graph.op}
    ops = tuple(
        Op(
            op.name,
            op.type,
            tuple(_source(edge, types) for edge in op.input if edge or op.type != "Data"),
            tuple(desc_text(desc) for desc in op.output_desc),
            tuple(op.subgraph_name),
        )
        for op in graph.op
    )
    ends = [op for op in graph.op if op.type == "NetOutput"]
    outputs = [edge for op in ends for edge in op.input] or list(graph.output)
    return Graph(graph.name, tuple(_source(edge, types) for edge in outputs), ops)


def _source(edge: str, types: dict[str, str]) -> str:
    name, colon, index = edge.rpartition(":")
    if not colon:
        return edge
    if index.startswith("-"):
        return f"^{name}"
    return name if types.get(name) in ("Data", "Const") and index == "0" else edge


def desc_text(desc: Any) -> str:
    """Return type, shape and layout of a tensor descriptor."""
    return tensor_text(desc_dtype(desc), desc_dims(desc), desc.layout)


def desc_dtype(desc: Any) -> str:
    """Return the data type of a descriptor, the real one where bytes stand for it."""
    real = typed(desc.attr, own.DTYPE, "s", "")
    known = ir.DataType.__members__.get(real) if isinstance(real, str) else None
    return onnx_dtype(known) if known else graph_dtype(desc.dtype)


def desc_dims(desc: Any) -> tuple[int | str, ...] | None:
    """Return the shape of a descriptor; None when not even the rank is known."""
    dims = tuple(desc.shape.dim)
    return None if dims == _UNKNOWN_RANK else dims


def of_model(model: ir.Model) -> tuple[Graph, ...]:
    """Return the graphs of an ONNX model, the main graph first; nodes must be named."""
    return tuple(
        Graph(
            scope or graph.name or "graph",
            tuple(value_source(value) for value in graph.outputs),
            tuple(_of_node(node, scope) for node in graph),
        )
        for scope, graph in all_graphs(model.graph)
    )


def _of_node(node: ir.Node, scope: str) -> Op:
    return Op(
        node.name or "",
        node_type(node),
        tuple(value_source(value) for value in node.inputs),
        tuple(value_text(value) for value in node.outputs),
        tuple(f"{scope}{node.name}.{name}/" for name, _ in subgraphs(node)),
    )


def node_type(node: ir.Node) -> str:
    """Return the op type with its domain, unless it is ONNX's own."""
    domain = node.domain if node.domain not in ("", "ai.onnx") else ""
    return f"{domain}::{node.op_type}" if domain else node.op_type


def value_source(value: ir.Value | None) -> str:
    """Return where a value comes from; see `Op.inputs`."""
    if value is None:
        return ""
    producer = value.producer()
    return f"{producer.name}:{value.index()}" if producer is not None else value.name or ""


def value_text(value: ir.Value) -> str:
    """Return type and shape of a value."""
    return tensor_text(value_dtype(value), value_dims(value))


def value_dtype(value: ir.Value) -> str:
    """Return the data type of a value; sequences and optionals say what they hold."""
    if value.type is None or isinstance(value.type, ir.TensorType):
        return onnx_dtype(value.dtype)
    kind = type(value.type).__name__.removesuffix("Type").lower()
    return f"{kind} of {onnx_dtype(value.type.dtype)}"


def value_dims(value: ir.Value) -> tuple[int | str, ...] | None:
    """Return the shape of a value with names of symbolic dims, -1 for unnamed ones."""
    if value.shape is None:
        return None
    return tuple(dim if isinstance(dim, int) else dim.value or -1 for dim in value.shape.dims)


def histogram(types: Iterable[str]) -> dict[str, int]:
    """Return type -> count, the most frequent first."""
    counts = Counter(types)
    return dict(sorted(counts.items(), key=lambda entry: (-entry[1], entry[0])))


def op_types(definition: Any) -> Iterator[str]:
    """Yield the type of every op of a ModelDef that does something."""
    for graph in definition.graph:
        yield from (op.type for op in graph.op if op.type not in STRUCTURAL)
