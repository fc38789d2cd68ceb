"""Building the parts of a cut line: what goes in, what comes out, and the model of each."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

import onnx_ir as ir

from cannc.compiler.core.graphs import subgraphs, walk
from cannc.passes.split.line import Flow, Line


@dataclass(frozen=True)
class Interface:
    """What a part takes and gives.

    Attributes:
        nodes: Its nodes in order, cheap ones on constants included.
        stored: The stored constants that they read.
        inputs: Inputs of the whole model, then values from earlier parts, in order.
        outputs: What later parts read or the whole model gives, in order.
    """

    nodes: list[ir.Node]
    stored: list[ir.Value]
    inputs: list[ir.Value]
    outputs: list[ir.Value]


def interfaces(line: Line, cuts: Sequence[int]) -> list[Interface]:
    """Return the interface of each part between the cuts.

    Outputs of the model that no node of the line makes (a stored constant) come from the first
    part that has them; inputs that nothing reads are taken by the first part (D25: they stay).
    """
    graph = line.model.graph
    edges = [0, *cuts, len(line.nodes)]
    order = {node: index for index, node in enumerate(graph)}
    place = {node: index for index, node in enumerate(line.nodes)}
    unread = [v for v in graph.inputs if not (v.uses() or v.is_initializer())]
    constants = [v for v in graph.outputs if line.is_constant(v)]
    spans = list(pairwise(edges))
    needed = [_needed(line, span) for span in spans]
    recipes = [line.recipe(values) for values in needed]
    made_by = {v: _first_with(v, recipes) for v in constants}
    made: list[list[Flow]] = [[] for _ in spans]
    for flow in line.flows:
        if flow.made >= 0:
            made[bisect_right(cuts, flow.made)].append(flow)
    found = []
    for index, (start, end) in enumerate(spans):
        given = [v for v in dict.fromkeys(constants) if made_by[v] == index]
        nodes, stored = line.recipe([*needed[index], *given])
        own = [*line.nodes[start:end], *nodes]
        taken = {v: None for v in needed[index] if not line.is_constant(v)}
        taken |= dict.fromkeys(unread if index == 0 else [])
        # Inputs with a stored value are constants, but stay visible where they are read (D25).
        taken |= dict.fromkeys(v for v in stored if v.is_graph_input())
        outside = [v for v in taken if v.producer() is None or not _within(place, v, start, end)]
        found.append(
            Interface(
                nodes=sorted(own, key=order.__getitem__),
                stored=sorted(stored, key=lambda v: v.name or ""),
                inputs=_ordered(outside, graph.inputs, order),
                outputs=[
                    *(f.value for f in made[index] if f.is_output or f.last >= end),
                    *given,
                ],
            )
        )
    return found


def part_model(line: Line, interface: Interface, name: str) -> ir.Model:
    """Return the model of one part; weights are shared with the whole model."""
    whole = line.model
    view = ir.GraphView(
        interface.inputs,
        interface.outputs,
        nodes=interface.nodes,
        initializers=interface.stored,
        doc_string=whole.graph.doc_string,
        opset_imports=dict(whole.opset_imports),
        name=name,
        metadata_props=dict(whole.graph.metadata_props),
    )
    graph = view.clone()
    for value in (*graph.inputs, *graph.outputs):
        _drop_invented_dims(value)
    return ir.Model(
        graph,
        ir_version=whole.ir_version or 10,
        producer_name=whole.producer_name,
        producer_version=whole.producer_version,
        functions=[function.clone() for function in _called(whole, interface.nodes)],
        metadata_props=dict(whole.metadata_props),
    )


def _needed(line: Line, span: tuple[int, int]) -> list[ir.Value]:
    return list(dict.fromkeys(v for node in line.nodes[slice(*span)] for v in line.reads(node)))


def _first_with(value: ir.Value, recipes: Sequence[tuple[list[ir.Node], list[ir.Value]]]) -> int:
    """Return the first part that has a constant anyway, else the last part."""
    for index, (nodes, stored) in enumerate(recipes):
        if value.producer() in nodes or value in stored:
            return index
    return len(recipes) - 1


def _within(place: dict[ir.Node, int], value: ir.Value, start: int, end: int) -> bool:
    producer = value.producer()
    return producer is not None and start <= place[producer] < end


def _ordered(
    values: Iterable[ir.Value], inputs: Sequence[ir.Value], order: dict[ir.Node, int]
) -> list[ir.Value]:
    """Sort inputs of the model first, in its order, then what nodes make, in theirs."""
    rank = {value: (0, index, 0) for index, value in enumerate(inputs)}

    def key(value: ir.Value) -> tuple[int, int, int]:
        producer = value.producer()
        return rank[value] if producer is None else (1, order[producer], value.index() or 0)

    return sorted(values, key=key)


def _called(model: ir.Model, nodes: Iterable[ir.Node]) -> list[ir.Function]:
    """Return the functions that nodes call, directly or through other functions."""
    found: dict[ir.OperatorIdentifier, ir.Function] = {}
    pending = [n for node in nodes for n in _with_bodies(node)]
    while pending:
        key = pending.pop().op_identifier()
        if key in model.functions and key not in found:
            found[key] = model.functions[key]
            pending += model.functions[key].all_nodes()
    return [function for key, function in model.functions.items() if key in found]


def _with_bodies(node: ir.Node) -> Iterator[ir.Node]:
    yield node
    for _, body in subgraphs(node):
        yield from (scoped.node for scoped in walk(body))


def _drop_invented_dims(value: ir.Value) -> None:
    """Leave out dims that shape inference made a name for: they say nothing to anybody."""
    if value.shape is not None:
        dims = [None if str(dim).startswith("unk__") else dim for dim in value.shape]
        value.shape = ir.Shape(dims)
