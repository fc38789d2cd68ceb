"""Which nodes of a graph work between chosen values."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from functools import cached_property

import onnx_ir as ir

from cannc.compiler.core.graphs import subgraphs, walk
from cannc.compiler.core.provenance import origins

_CARRIERS = frozenset({"Cast", "Reshape", "Transpose", "Identity", "Squeeze", "Unsqueeze"})


@dataclass(frozen=True)
class Region:
    """The nodes that compute one value from other chosen values; the producer comes first."""

    nodes: tuple[ir.Node, ...]

    @cached_property
    def stands_for(self) -> tuple[str, ...]:
        """Names of the original nodes that the region does the work of."""
        names = [name for node in reversed(self.nodes) for name in origins(node)]
        return tuple(dict.fromkeys(names))

    def node_for(self, original: str) -> str:
        """Return the name of the node that does an original one's work, else of the producer.

        The producer itself may be a Cast or Reshape that a pass put around that node.
        """
        standing = [node for node in self.nodes if original in origins(node)] or [*self.nodes]
        workers = [node for node in standing if node.op_type not in _CARRIERS]
        return (workers or standing)[0].name or ""


def regions(model: ir.Model, chosen: Collection[str]) -> dict[str, Region]:
    """Return the region of every chosen value of the main graph that a node computes."""
    wanted = frozenset(chosen)
    found: dict[str, Region] = {}
    for node in model.graph:
        for value in node.outputs:
            if value.name in wanted:
                found[value.name] = Region(tuple(_upstream(node, wanted)))
    return found


def _upstream(start: ir.Node, chosen: frozenset[str]) -> list[ir.Node]:
    """Return `start` and all nodes before it, up to the chosen values."""
    nodes = {start: None}
    pending = [start]
    while pending:
        for value in reads(pending.pop()):
            producer = value.producer()
            if producer is None or value.name in chosen or producer.graph is not start.graph:
                continue
            if producer not in nodes:
                nodes[producer] = None
                pending.append(producer)
    return [*nodes]


def reads(node: ir.Node) -> list[ir.Value]:
    """Return the values that a node reads, those captured by its branches and bodies included."""
    values = [value for value in node.inputs if value is not None]
    for _, graph in subgraphs(node):
        for scoped in walk(graph):
            values += [value for value in scoped.node.inputs if value is not None]
    return values
