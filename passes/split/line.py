"""A model's main graph as a line of nodes that can be cut between any two of them.

Nodes that only work on constants and are cheap (dequantizing a weight, building a mask table) have
no place in the line: each part that reads their result computes it itself, so it crosses no cut.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import accumulate

import onnx_ir as ir

from cannc.compiler.core.graphs import all_graphs, subgraphs, walk
from cannc.passes.cleanup.purity import is_deterministic

_COSTLY = frozenset({"Conv", "ConvTranspose", "Einsum", "GRU", "Gemm", "LSTM", "MatMul", "RNN"})


@dataclass(frozen=True)
class Flow:
    """A value and where it is needed.

    Attributes:
        value: Made by a node of the line, or a graph input, or a constant.
        made: Position of the node that makes it; -1 for inputs and constants.
        uses: Positions of the nodes that read it, ascending.
    """

    value: ir.Value
    made: int
    uses: tuple[int, ...]

    @property
    def is_output(self) -> bool:
        """Is it an output of the whole model?"""
        return self.value.is_graph_output()

    @property
    def last(self) -> int:
        """Position of the last reader; -1 without any."""
        return self.uses[-1] if self.uses else -1


class Line:
    """The nodes of a model in order, and what flows between them.

    Attributes:
        model: The model; not changed.
        nodes: Those that have a place, in topological order.
        flows: What nodes of the line make or take from the model's inputs.
        weights: Stored constants that nodes of the line read, directly or through cheap nodes.
    """

    def __init__(self, model: ir.Model) -> None:
        """Lay out a model whose types and shapes have been inferred."""
        self.model = model
        self._live = _live_nodes(model.graph)
        self._reads = {node: reads(node, model.graph) for node in model.graph}
        self._cheap = self._cheap_nodes()
        self.nodes: list[ir.Node] = [node for node in model.graph if node not in self._cheap]
        self._sources: dict[ir.Value, frozenset[ir.Value]] = {}
        uses: dict[ir.Value, list[int]] = {}
        constants: dict[ir.Value, list[int]] = {}
        for position, node in enumerate(self.nodes):
            for value in self._reads[node]:
                if not self.is_constant(value):
                    uses.setdefault(value, []).append(position)
                for weight in self._stored(value):
                    constants.setdefault(weight, []).append(position)
        made = {v: place for place, node in enumerate(self.nodes) for v in node.outputs}
        values = [*(v for v in model.graph.inputs if not v.is_initializer()), *made]
        self.flows = [Flow(v, made.get(v, -1), tuple(uses.get(v, ()))) for v in values]
        self.weights = [
            Flow(v, -1, tuple(dict.fromkeys(places))) for v, places in constants.items()
        ]

    def is_constant(self, value: ir.Value) -> bool:
        """Is it stored, or made by a cheap node from stored constants?"""
        return value.is_initializer() or value.producer() in self._cheap

    def reads(self, node: ir.Node) -> list[ir.Value]:
        """Return what a node of the main graph reads, its bodies included."""
        return self._reads[node]

    def recipe(self, values: Iterable[ir.Value]) -> tuple[list[ir.Node], list[ir.Value]]:
        """Return the cheap nodes and the stored constants that the constants among these need."""
        nodes: dict[ir.Node, None] = {}
        stored: dict[ir.Value, None] = {}
        pending = [value for value in values if self.is_constant(value)]
        while pending:
            value = pending.pop()
            producer = value.producer()
            if producer is None:
                stored[value] = None
            elif producer not in nodes:
                nodes[producer] = None
                pending += self._reads[producer]
        return list(nodes), list(stored)

    def cuts(self) -> list[int]:
        """Return the positions where a cut is possible: before the node of that position.

        Only tensors of known dtype and rank can cross, and each side needs a node that matters.
        """
        size = len(self.nodes)
        change = [0] * (size + 1)
        for flow in self.flows:
            if flow.made >= 0 and flow.last > flow.made and not _can_cross(flow.value):
                change[flow.made + 1] += 1
                change[flow.last + 1] -= 1
        blocked = list(accumulate(change))
        live = [place for place, node in enumerate(self.nodes) if node in self._live]
        return [place + 1 for place in live[:-1] if not blocked[place + 1]]

    def stuck(self) -> list[str]:
        """Return the names of values that cannot cross a cut, the farthest reaching first."""
        held = [f for f in self.flows if 0 <= f.made < f.last and not _can_cross(f.value)]
        held.sort(key=lambda flow: flow.made - flow.last)
        return [flow.value.name or "" for flow in held]

    def _cheap_nodes(self) -> set[ir.Node]:
        cheap: set[ir.Node] = set()
        for node in self.model.graph:
            fixed = all(v.is_initializer() or v.producer() in cheap for v in self._reads[node])
            if fixed and node in self._live and _is_cheap(node, self.model):
                cheap.add(node)
        return cheap

    def _stored(self, value: ir.Value) -> frozenset[ir.Value]:
        """Return the stored constants behind a constant; nothing for any other value."""
        if not self.is_constant(value):
            return frozenset()
        if value.is_initializer():
            return frozenset({value})
        if value not in self._sources:
            self._sources[value] = frozenset(self.recipe([value])[1])
        return self._sources[value]


def reads(node: ir.Node, graph: ir.Graph) -> list[ir.Value]:
    """Return the values of `graph` that its node reads, each once, its bodies included."""
    found: dict[ir.Value, None] = {value: None for value in node.inputs if value is not None}
    for _, body in subgraphs(node):
        inner = [v for scoped in walk(body) for v in scoped.node.inputs if v is not None]
        inner += [v for _, nested in all_graphs(body) for v in nested.outputs]
        found.update({value: None for value in inner if value.graph is graph})
    return list(found)


def _live_nodes(graph: ir.Graph) -> set[ir.Node]:
    """Return the nodes that an output depends on."""
    live: set[ir.Node] = set()
    pending: list[ir.Value] = [*graph.outputs]
    while pending:
        node = pending.pop().producer()
        if node is not None and node not in live:
            live.add(node)
            pending += reads(node, graph)
    return live


def _is_cheap(node: ir.Node, model: ir.Model) -> bool:
    if node.op_type == "Constant":
        return True
    if node.op_type in _COSTLY or subgraphs(node):
        return False
    return all(_can_cross(v) for v in node.outputs) and is_deterministic(node, model)


def _can_cross(value: ir.Value) -> bool:
    is_tensor = isinstance(value.type, ir.TensorType)
    return is_tensor and value.dtype is not None and value.shape is not None


def best(cuts: Sequence[int], crossing: Sequence[int], first: int, last: int) -> int | None:
    """Return the possible cut in [first, last] that the fewest bytes cross.

    The last one of equals: layers begin with what reads weights and end with what does not.
    """
    inside = cuts[bisect_left(cuts, first) : bisect_right(cuts, last)]
    return min(inside, key=lambda cut: (crossing[cut], -cut), default=None)
