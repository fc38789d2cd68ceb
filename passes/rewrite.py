"""The one place where the graph changes, so that provenance can never be forgotten.

Every pass says *what* it replaces with *what*; the rewriter moves names, edges, types and origins.
Three rules hold after each call (D14):

- a value that stands for value ``v`` keeps the name ``v``; graph inputs and outputs never change;
- a new node stands for every original node that it replaces (``cannc.origin``);
- an original value that disappears is recorded as alias, folded or dead, or its node is inside
  another one.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import onnx_ir as ir

from cannc.compiler.core.graphs import Scoped, all_graphs, unique, walk
from cannc.compiler.core.provenance import Alias, Provenance, origins, set_origin
from cannc.compiler.core.runner import Array


class Rewriter:
    """Changes one model and keeps its provenance.

    Attributes:
        applied: Rewrites made since construction.
        unordered: A rewrite may have put a user before its producer; the manager sorts then.
    """

    def __init__(self, model: ir.Model, provenance: Provenance, pass_name: str) -> None:
        """Args: the model, its provenance record, and the name that new values carry."""
        self.model = model
        self.provenance = provenance
        self.pass_name = pass_name
        self.applied = 0
        self.unordered = False
        self._value_names: set[str] = set()
        self._node_names: set[str] = set()
        self._scopes: dict[ir.Graph, str] = {}
        for scope, graph in all_graphs(model.graph):
            self._scopes[graph] = scope
            self._value_names.update(v.name or "" for v in graph.inputs)
            self._value_names.update(graph.initializers)
        for scoped in walk(model.graph):
            self._node_names.add(scoped.node.name or "")
            self._value_names.update(v.name or "" for v in scoped.node.outputs)

    # -- making new things ---------------------------------------------------------------------

    def constant(self, like: ir.Value, tensor: ir.TensorProtocol | Array) -> ir.Value:
        """Return a new initializer in the main graph, named after `like`.

        Accepts lazy tensors: their numbers are not read here.
        """
        if isinstance(tensor, np.ndarray):
            tensor = ir.Tensor(tensor)
        value = ir.Value(
            name=self._fresh(like.name or "const"),
            shape=tensor.shape,  # type: ignore[arg-type]
            type=ir.TensorType(tensor.dtype),
            const_value=tensor,
        )
        self.model.graph.initializers.add(value)
        return value

    def node(
        self,
        op_type: str,
        inputs: Sequence[ir.Value | None],
        attributes: Mapping[str, Any] | None = None,
        *,
        domain: str = "",
        num_outputs: int = 1,
        like: ir.Value | None = None,
    ) -> ir.Node:
        """Return a new node that is not in the graph yet; give it to `replace`.

        Args:
            op_type: Operator name.
            inputs: Input values; None for a skipped optional input.
            attributes: Plain Python values or ``ir.Attr``.
            domain: Operator domain.
            num_outputs: Number of outputs.
            like: Value whose name, dtype and shape the first output starts from.
        """
        attrs = ir.convenience.convert_attributes(dict(attributes or {}))
        new = ir.Node(domain, op_type, inputs, attrs, num_outputs=num_outputs)
        base = (like.name if like is not None else None) or op_type
        new.name = self._fresh_node(f"{base}__{self.pass_name}")
        for index, value in enumerate(new.outputs):
            value.name = self._fresh(base if index == 0 else f"{base}_{index}")
        if like is not None:
            new.outputs[0].type, new.outputs[0].shape = like.type, like.shape
        return new

    # -- changing the graph --------------------------------------------------------------------

    def replace(
        self,
        old: Iterable[ir.Node],
        new: Sequence[ir.Node],
        values: Mapping[ir.Value, ir.Value],
        *,
        perms: Mapping[ir.Value, tuple[int, ...]] | None = None,
    ) -> None:
        """Put `new` nodes in the place of `old` ones.

        Args:
            old: Nodes to remove, all of one graph, the last one last in graph order: the new
                nodes go to its place. Their outputs may be used only by each other, or be keys of
                `values`.
            new: Nodes to insert, in order, where the last old node stood.
            values: Old value -> value that stands for it: an output of a new node (takes over
                name, dtype and shape) or a value that exists already (becomes its alias).
            perms: For aliases whose layout differs, see `Alias.perm`.

        New nodes stand for all old ones; the last new node keeps the name of the last old node,
        since device dumps are matched by node name.
        """
        removed = list(dict.fromkeys(old))
        place = removed[-1]
        graph = _graph_of(place)
        union = [name for node in removed for name in origins(node)]
        graph.insert_before(place, new)
        fresh = {value for node in new for value in node.outputs}
        for node in new:
            set_origin(node, union)
        for value, stand_in in values.items():
            perm = (perms or {}).get(value)
            if stand_in in fresh and perm is None:
                self._take_over(value, stand_in)
            else:
                self._redirect(graph, value, stand_in, perm)
        if new:
            new[-1].name = place.name
        else:
            self._mark(removed, self.provenance.dead)
        graph.remove(removed, safe=True)
        self.unordered |= any(value.producer() is not place for value in values)
        self.applied += 1

    def bypass(self, node: ir.Node, stand_in: ir.Value) -> bool:
        """Remove a node whose single output equals `stand_in`; False if it has to stay.

        It stays when it gives a graph output its name and `stand_in` cannot take that name.
        """
        (value,) = node.outputs
        graph = _graph_of(node)
        if value.is_graph_output() and not self._can_become_output(stand_in, graph):
            return False
        self.replace([node], [], {value: stand_in})
        return True

    def fold(self, node: ir.Node, tensors: Sequence[ir.TensorProtocol]) -> None:
        """Replace a node by constants, one per output. Graph outputs keep an Identity."""
        graph = _graph_of(node)
        self._mark([node], self.provenance.folded)
        for value, tensor in zip(node.outputs, tensors, strict=True):
            name, is_output = value.name or "", value.is_graph_output()
            constant = ir.Value(
                name=name,
                shape=tensor.shape,  # type: ignore[arg-type]
                type=ir.TensorType(tensor.dtype),
                const_value=tensor,
            )
            if is_output:
                constant.name = self._fresh(name)
                holder = self.node("Identity", [constant], like=value)
                graph.insert_before(node, holder)
                set_origin(holder, origins(node))
                self._take_over(value, holder.outputs[0])
            else:
                value.name = None
                value.replace_all_uses_with(constant)
            graph.initializers.add(constant)
        graph.remove(node, safe=True)
        self.applied += 1

    def erase(self, nodes: Iterable[ir.Node]) -> None:
        """Remove nodes that nothing needs."""
        removed = list(nodes)
        if not removed:
            return
        self._mark(removed, self.provenance.dead)
        _graph_of(removed[0]).remove(removed, safe=True)
        self.applied += 1

    def rename(self, value: ir.Value, name: str) -> None:
        """Give a value another name, as an alias of its old one. Not for inputs and outputs."""
        graph = value.graph or self.model.graph
        old = self._key(graph, value)
        value.name = name
        self._value_names.add(name)
        self.provenance.aliases[old] = Alias(self._key(graph, value))

    # -- inside --------------------------------------------------------------------------------

    def _take_over(self, old: ir.Value, new: ir.Value) -> None:
        """Let `new` stand for `old`: name, type, shape, users and place among graph outputs."""
        name = old.name
        new.type, new.shape = new.type or old.type, new.shape or old.shape
        new.metadata_props.update(old.metadata_props)
        old.name = None
        old.replace_all_uses_with(new, replace_graph_outputs=True)
        new.name = name

    def _redirect(
        self, graph: ir.Graph, old: ir.Value, to: ir.Value, perm: tuple[int, ...] | None
    ) -> None:
        """Let users of `old` read `to`, a value that keeps its own name."""
        old_key = self._key(graph, old)
        if old.is_graph_output():
            # The name must survive: `to` takes it, and its own former name becomes the alias.
            former, name = self._key(to.graph or graph, to), old.name
            old.name = None
            old.replace_all_uses_with(to, replace_graph_outputs=True)
            to.name = name
            if former != old_key:
                self.provenance.aliases[former] = Alias(old_key)
            return
        old.replace_all_uses_with(to)
        self.provenance.aliases[old_key] = Alias(self._key(to.graph or graph, to), perm)

    def _can_become_output(self, value: ir.Value, graph: ir.Graph) -> bool:
        return (
            value.producer() is not None
            and _graph_of(value.producer()) is graph  # type: ignore[arg-type]
            and not value.is_graph_output()
        )

    def _mark(self, nodes: Iterable[ir.Node], fate: set[str]) -> None:
        """Add all original values that `nodes` stand for to `fate`.

        A value that lives on elsewhere keeps its better fate: `Provenance.fates` looks for it in
        the graph first.
        """
        for node in nodes:
            for name in origins(node):
                fate.update(self.provenance.nodes[name].outputs)

    def _key(self, graph: ir.Graph, value: ir.Value) -> str:
        return f"{self._scopes.get(graph, '')}{value.name}"

    def _fresh(self, base: str) -> str:
        name = unique(f"{base.split('__', 1)[0]}__{self.pass_name}", self._value_names)
        self._value_names.add(name)
        return name

    def _fresh_node(self, base: str) -> str:
        name = unique(base, self._node_names)
        self._node_names.add(name)
        return name


def scoped_nodes(model: ir.Model) -> list[Scoped]:
    """Return all nodes of all graphs as a list that stays valid while the graph changes."""
    return list(walk(model.graph))


def _graph_of(node: ir.Node) -> ir.Graph:
    graph = node.graph
    if not isinstance(graph, ir.Graph):
        msg = f"node {node.name} is in no graph"
        raise TypeError(msg)
    return graph
