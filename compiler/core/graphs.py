"""Walks over a model's nested graphs, and the stable names that everything else relies on."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple

import onnx_ir as ir

_GRAPH_TYPES = frozenset({ir.AttributeType.GRAPH, ir.AttributeType.GRAPHS})


class Scoped(NamedTuple):
    """A node with the place where it stands.

    Attributes:
        node: The node.
        scope: ``""`` in the main graph, else ``"<node>.<attribute>/"`` per nesting level. Branches
            may reuse value names, so ``scope + value name`` is what identifies a value.
        graph: The graph that the node belongs to.
    """

    node: ir.Node
    scope: str
    graph: ir.Graph

    def key(self, value: ir.Value) -> str:
        """Return the model-wide key of one of this node's outputs."""
        return f"{self.scope}{value.name}"


def subgraphs(node: ir.Node) -> list[tuple[str, ir.Graph]]:
    """Return ``(attribute name, graph)`` for each body or branch of a node."""
    found: list[tuple[str, ir.Graph]] = []
    # Called for every node at every walk, so the plain dict is read: views of UserDict are slow.
    for name, attribute in node.attributes.data.items():
        if attribute.type not in _GRAPH_TYPES or attribute.is_ref():
            continue
        if attribute.type == ir.AttributeType.GRAPH:
            found.append((name, attribute.as_graph()))
        else:
            found += [(f"{name}{i}", graph) for i, graph in enumerate(attribute.as_graphs())]
    return found


def walk(graph: ir.Graph, scope: str = "") -> Iterator[Scoped]:
    """Yield every node of a graph and of its nested graphs, in order, outer before inner."""
    for node in graph:
        yield Scoped(node, scope, graph)
        if node.attributes.data:
            for name, inner in subgraphs(node):
                yield from walk(inner, f"{scope}{node.name}.{name}/")


def all_graphs(graph: ir.Graph, scope: str = "") -> Iterator[tuple[str, ir.Graph]]:
    """Yield ``(scope, graph)`` for a graph and all graphs nested in it."""
    yield scope, graph
    for node in graph:
        if node.attributes.data:
            for name, inner in subgraphs(node):
                yield from all_graphs(inner, f"{scope}{node.name}.{name}/")


def node_count(model: ir.Model) -> int:
    """Return the number of nodes that do something: all graphs, Constant nodes left out."""
    return sum(scoped.node.op_type != "Constant" for scoped in walk(model.graph))


class Surveyed(NamedTuple):
    """A graph with its scope (see `Scoped`) and a list of its nodes at the time of the survey."""

    scope: str
    graph: ir.Graph
    nodes: list[ir.Node]


def survey(graph: ir.Graph, scope: str = "") -> list[Surveyed]:
    """Return a graph and all graphs nested in it, outer before inner.

    Cheaper than several walks where much is asked about one state of the graph.
    """
    nodes = list(graph)
    found = [Surveyed(scope, graph, nodes)]
    for node in nodes:
        if node.attributes.data:
            for name, inner in subgraphs(node):
                found += survey(inner, f"{scope}{node.name}.{name}/")
    return found


def name_nodes(model: ir.Model) -> None:
    """Give every node a unique, stable name.

    Unnamed nodes get the name that ATC itself would give: ``<op_type>_<counter>``, one counter
    over all unnamed nodes in graph order, main graph first (pyacl.md section 8, D14), so that a
    device's dumps can be matched by name. Later ones of equal names get a suffix: ATC refuses
    duplicates (E13009).
    """
    top_first = [*model.graph]
    top_first += [s.node for s in walk(model.graph) if s.scope]
    names = Names(node.name for node in top_first)
    seen: set[str] = set()
    counter = 0
    for node in top_first:
        if not node.name:
            name = f"{node.op_type}_{counter}"
            counter += 1
        elif node.name in seen:
            name = node.name
        else:
            seen.add(node.name)
            continue
        node.name = names.fresh(name)
        seen.add(node.name)


def name_outputs(model: ir.Model) -> None:
    """Name skipped outputs: one empty output name makes ATC wire it to every empty input."""
    names = Names(
        value.name
        for _, graph in all_graphs(model.graph)
        for value in [*graph.inputs, *graph.initializers.values()]
    )
    for scoped in walk(model.graph):
        names.add(value.name for value in scoped.node.outputs)
    for scoped in walk(model.graph):
        for index, value in enumerate(scoped.node.outputs):
            if not value.name:
                value.name = names.fresh(f"{scoped.node.name}__unused{index}")


class Names:
    """Names in use; gives out new ones in constant time, however many share a stem."""

    def __init__(self, taken: Iterable[str | None] = ()) -> None:
        """Args: names that are in use already; None and "" are ignored."""
        self._taken = {name for name in taken if name}
        self._suffix: dict[str, int] = {}

    def __contains__(self, name: str) -> bool:
        return name in self._taken

    def add(self, names: Iterable[str | None]) -> None:
        """Mark more names as in use."""
        self._taken.update(name for name in names if name)

    def fresh(self, name: str) -> str:
        """Return `name`, or `name` with a numeric suffix that makes it new; it is then in use."""
        candidate = name
        while candidate in self._taken:
            self._suffix[name] = self._suffix.get(name, 0) + 1
            candidate = f"{name}_{self._suffix[name]}"
        self._taken.add(candidate)
        return candidate


def unique(name: str, taken: set[str] | set[str | None]) -> str:
    """Return `name`, or `name` with the smallest numeric suffix that is not taken."""
    if name not in taken:
        return name
    suffix = 1
    while f"{name}_{suffix}" in taken:
        suffix += 1
    return f"{name}_{suffix}"
