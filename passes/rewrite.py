"""The one place where the graph changes, so that provenance can never be forgotten.

Every pass says *what* it replaces with *what*; the rewriter moves names, edges, types and origins.
Three rules hold after each call (D14):

- a value that stands for value ``v`` keeps the name ``v``; graph inputs and outputs never change
  their names, dtypes or declared shapes;
- a new node stands for every original node that it replaces (``cannc.origin``);
- an original value that disappears is recorded as alias, folded or dead, or its node is inside
  another one.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import onnx_ir as ir

from cannc.compiler.core.graphs import Names, Scoped, all_graphs, subgraphs, survey, walk
from cannc.compiler.core.provenance import Alias, Provenance, origins, set_origin
from cannc.compiler.core.runner import Array
from cannc.compiler.core.unit import Rewrite


class Rewriter:
    """Changes one model and keeps its provenance.

    Attributes:
        applied: Rewrites made since construction.
        rewrites: The same place by place, where nodes were replaced or folded.
        unordered: A rewrite may have put a user before its producer; the manager sorts then.
    """

    def __init__(self, model: ir.Model, provenance: Provenance, pass_name: str) -> None:
        """Args: the model, its provenance record, and the name that new values carry."""
        self.model = model
        self.provenance = provenance
        self.pass_name = pass_name
        self.applied = 0
        self.rewrites: list[Rewrite] = []
        self.unordered = False
        self._scopes: dict[ir.Graph, str] = {}
        values: list[str | None] = []
        nodes: list[str | None] = []
        for scope, graph, inner in survey(model.graph):
            self._scopes[graph] = scope
            values += [value.name for value in graph.inputs]
            values += [v.name for v in graph.initializers.values() if not v.is_graph_input()]
            values += [value.name for node in inner for value in node.outputs]
            nodes += [node.name for node in inner]
        self._value_names = Names(values)
        self._node_names = Names(nodes)
        is_nested = len(self._scopes) > 1  # only then can a name stand at two places
        self._shared = (
            {n for n, count in Counter(values).items() if count > 1} if is_nested else set()
        )

    # -- making new things ---------------------------------------------------------------------

    def constant(self, like: ir.Value, tensor: ir.TensorProtocol | Array) -> ir.Value:
        """Return a new initializer in the main graph, named after `like`.

        Accepts lazy tensors: their numbers are not read here.
        """
        if isinstance(tensor, np.ndarray):
            tensor = ir.Tensor(tensor)
        value = _initializer(self._fresh(like.name or "const"), tensor)
        self.model.graph.initializers.add(value)
        return value

    def adopt(self, value: ir.Value) -> None:
        """Make a constant that stands nowhere yet an initializer of the main graph."""
        value.name = self._fresh(value.name or "const")
        self.model.graph.initializers.add(value)

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
        new.name = self._node_names.fresh(f"{base}__{self.pass_name}")
        for index, value in enumerate(new.outputs):
            value.name = self._fresh(base if index == 0 else f"{base}_{index}")
        if like is not None:
            new.outputs[0].type, new.outputs[0].shape = like.type, like.shape
        return new

    def discard(self, nodes: Iterable[ir.Node]) -> None:
        """Let go of new nodes that will not be used after all, and of constants made for them."""
        weights = self.model.graph.initializers
        for node in nodes:
            for index, value in enumerate(node.inputs):
                node.replace_input_with(index, None)
                name = (value.name or "") if value is not None else ""
                if value is not None and not value.uses() and weights.get(name) is value:
                    del weights[name]

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
        graph = graph_of(place)
        fresh = {value for node in new for value in node.outputs}
        union = [name for node in removed for name in _all_origins(node)]
        for node in new:
            set_origin(node, union)
        graph.insert_before(place, new)
        permuted = perms or {}
        for value, stand_in in values.items():
            if value in permuted:
                continue
            if stand_in in fresh:
                self._take_over(value, stand_in)
                self.unordered |= value.producer() is not place
            else:
                self._redirect(place, value, stand_in)
        # Only now do the new values have the names that aliases refer to.
        for value, perm in permuted.items():
            key = self._key(values[value].graph or graph, values[value])
            self.provenance.aliases[self._key(graph, value)] = Alias(key, perm)
        if new:
            new[-1].name = place.name
        self._log(removed, new)
        self._remove(removed, kept={inner for node in new for _, inner in subgraphs(node)})
        self.applied += 1

    def set_attributes(self, node: ir.Node, attributes: Mapping[str, Any]) -> None:
        """Write attributes of a node in place; None removes one."""
        for name, value in attributes.items():
            if value is None:
                del node.attributes[name]
            else:
                (node.attributes[name],) = ir.convenience.convert_attributes({name: value})
        self.applied += 1

    def bypass(self, node: ir.Node, stand_in: ir.Value) -> bool:
        """Remove a node whose first output equals `stand_in`; False if it has to stay.

        It stays when one of its other outputs is used, or when it gives a graph output its name
        and `stand_in` cannot take that name.
        """
        value, *others = node.outputs
        if any(other.uses() or other.is_graph_output() for other in others):
            return False
        if value.is_graph_output() and not _can_become_output(stand_in, graph_of(node)):
            return False
        self.replace([node], [], {value: stand_in})
        return True

    def fold(self, node: ir.Node, tensors: Sequence[ir.TensorProtocol]) -> None:
        """Replace a node by constants, one per output. Graph outputs keep an Identity."""
        graph = graph_of(node)
        self._log([node], [])
        self._mark([node], self.provenance.folded)
        for value, tensor in zip(node.outputs, tensors, strict=True):
            constant = _initializer(value.name or "", tensor)
            if value.is_graph_output():
                constant.name = self._fresh(value.name or "")
                self._hold(node, value, constant)
            else:
                value.name = None
                value.replace_all_uses_with(constant)
            graph.initializers.add(constant)
        self._remove([node])
        self.applied += 1

    def add_beside(self, node: ir.Node, new: Sequence[ir.Node]) -> None:
        """Put new nodes before `node`, which stays; they have its origin."""
        for made in new:
            set_origin(made, origins(node))
        graph_of(node).insert_before(node, new)
        self.applied += 1

    def erase(self, nodes: Iterable[ir.Node], *, folded: bool = False) -> None:
        """Remove nodes of one graph that nothing needs (any more, if constants were `folded`)."""
        removed = list(nodes)
        if removed:
            if folded:
                self._mark(removed, self.provenance.folded)
            self._remove(removed)
            self.applied += 1

    def drop_initializer(self, value: ir.Value, stand_in: ir.Value | None = None) -> None:
        """Remove an initializer that nothing needs, or whose users may read `stand_in` as well."""
        graph = value.graph
        if graph is None or value.is_graph_input() or value.is_graph_output():
            msg = f"'{value.name}' is no initializer of its own, or part of the interface"
            raise ValueError(msg)
        if stand_in is not None:
            value.replace_all_uses_with(stand_in)
        del graph.initializers[value.name or ""]
        self.applied += 1

    def drop_input(self, value: ir.Value) -> None:
        """Take a weight out of the list of graph inputs; it stays an initializer."""
        self.model.graph.inputs.remove(value)
        self.applied += 1

    def rename(self, value: ir.Value, name: str) -> None:
        """Give a value another name, as an alias of its old one. Not for inputs and outputs."""
        graph = value.graph or self.model.graph
        old = self._key(graph, value)
        value.name = name
        self._value_names.add([name])
        self.provenance.aliases[old] = Alias(self._key(graph, value))

    def splice(self, node: ir.Node, body: ir.Graph) -> None:
        """Move the contents of `body` to the place of `node`; its outputs become the node's.

        Args:
            node: An If, or the call of a function.
            body: A branch of `node`, or a private copy of the function's graph whose inputs have
                been connected to the call's.

        Values of a branch keep their names where no other graph uses the same; the contents of a
        function get new ones, and the origin of the call.
        """
        graph = graph_of(node)
        is_branch = body in self._scopes
        inside = walk(body, self._scopes[body]) if is_branch else ()
        keys = {value: scoped.key(value) for scoped in inside for value in scoped.node.outputs}
        results, moved, weights = list(body.outputs), list(body), [*body.initializers.values()]
        body.outputs.clear()
        body.remove(moved)
        for weight in weights:
            del body.initializers[weight.name or ""]
        if is_branch:
            for value in (*weights, *(v for inner in moved for v in inner.outputs)):
                if value.name in self._shared:
                    value.name = self._fresh(value.name or "")
        else:
            self._rename_copy(node, moved, weights)
        for weight in weights:
            graph.initializers.add(weight)
        graph.insert_before(node, moved)
        movable = {value for inner in moved for value in inner.outputs}
        for old, new in zip(node.outputs, results, strict=False):
            if new in movable:
                movable.discard(new)
                self._take_over(old, new)
            else:
                self._redirect(node, old, new)
        self._note_scopes(graph, moved)
        for value, key in keys.items():
            self.provenance.aliases[key] = Alias(self._key(value.graph or graph, value))
        self._remove([node])
        self.applied += 1

    def unroll(
        self,
        node: ir.Node,
        copies: Sequence[ir.Graph],
        values: Mapping[ir.Value, ir.Value],
        before: Sequence[ir.Node] = (),
        after: Sequence[ir.Node] = (),
    ) -> None:
        """Put copies of a body, one after the other, at the place of `node`.

        Args:
            node: A Loop or Scan.
            copies: Private copies of its body, connected to each other; emptied.
            values: Output of `node` -> value that stands for it.
            before: New nodes that come first, with the origin of `node`.
            after: New nodes that come last.

        Each node of a copy keeps the origin of the body's node, under a name of its own.
        """
        graph = graph_of(node)
        for new in (*before, *after):
            set_origin(new, origins(node))
        graph.insert_before(node, before)
        for copy in copies:
            moved, weights = list(copy), [*copy.initializers.values()]
            copy.outputs.clear()
            copy.remove(moved)
            for weight in weights:
                del copy.initializers[weight.name or ""]
                weight.name = self._fresh(weight.name or "const")
                graph.initializers.add(weight)
            self._name_anew(moved)
            graph.insert_before(node, moved)
            self._note_scopes(graph, moved)
        graph.insert_before(node, after)
        movable = {value for value in values.values() if _can_become_output(value, graph)}
        for old, new_value in values.items():
            if new_value in movable:
                movable.discard(new_value)
                self._take_over(old, new_value)
            else:
                self._redirect(node, old, new_value)
        self._remove([node])
        self.applied += 1

    # -- inside --------------------------------------------------------------------------------

    def _log(self, old: Sequence[ir.Node], new: Sequence[ir.Node]) -> None:
        kinds = (tuple(node.op_type for node in nodes) for nodes in (old, new))
        self.rewrites.append(Rewrite(old[-1].name or "", *kinds))

    def _take_over(self, old: ir.Value, new: ir.Value) -> None:
        """Let `new` stand for `old`: name, type, shape, users and place among graph outputs."""
        name = old.name
        new.type = new.type or old.type
        if new.shape is None or (old.is_graph_output() and old.shape is not None):
            new.shape = old.shape
        new.metadata_props.update(old.metadata_props)
        old.name = None
        old.replace_all_uses_with(new, replace_graph_outputs=True)
        new.name = name

    def _redirect(self, place: ir.Node, old: ir.Value, to: ir.Value) -> None:
        """Let users of `old` read `to`, a value that keeps its own name.

        A graph output's name must survive: `to` takes it and its own former name becomes the
        alias, or an Identity carries it where `to` cannot.
        """
        graph = graph_of(place)
        if not old.is_graph_output():
            self.provenance.aliases[self._key(graph, old)] = Alias(self._key(to.graph or graph, to))
            old.replace_all_uses_with(to)
        elif _can_become_output(to, graph):
            former, key = self._key(graph, to), self._key(graph, old)
            self._take_over(old, to)
            self.provenance.aliases[former] = Alias(key)
        else:
            self._hold(place, old, to)

    def _hold(self, place: ir.Node, old: ir.Value, source: ir.Value) -> None:
        """Put an Identity of `source` before `place` that stands for `old`, a graph output."""
        holder = self.node("Identity", [source], like=old)
        set_origin(holder, origins(place))
        graph_of(place).insert_before(place, holder)
        self._take_over(old, holder.outputs[0])
        holder.name = place.name

    def _remove(self, nodes: Sequence[ir.Node], kept: Iterable[ir.Graph] = ()) -> None:
        """Remove nodes with their bodies, except those that live on in other nodes.

        All original values that the nodes stand for are marked dead. Values that live on
        elsewhere keep their better fate: `Provenance.fates` looks for them in the graph first.
        """
        self._mark(nodes, self.provenance.dead)
        graph_of(nodes[0]).remove(nodes, safe=True)
        alive = set(kept)
        gone = [g for node in nodes for _, g in subgraphs(node) if g not in alive]
        for inner in (scoped.node for body in gone for scoped in walk(body)):
            # A removed body must not count as a user of outer values any more.
            for index in range(len(inner.inputs)):
                inner.replace_input_with(index, None)

    def _mark(self, nodes: Iterable[ir.Node], fate: set[str]) -> None:
        for node in nodes:
            for name in _all_origins(node):
                fate.update(self.provenance.nodes[name].outputs)

    def _rename_copy(
        self, call: ir.Node, moved: Sequence[ir.Node], weights: Sequence[ir.Value]
    ) -> None:
        """Give everything in a function's copy a name of its own, and the origin of its call."""
        for value in weights:
            value.name = self._fresh(value.name or "const")
        for inner in self._name_anew(moved, f"{call.name}/"):
            set_origin(inner, origins(call))

    def _name_anew(self, moved: Sequence[ir.Node], prefix: str = "") -> list[ir.Node]:
        """Give copied nodes and all their values names of their own; return all of the nodes."""
        pending, named = list(moved), []
        while pending:
            inner = pending.pop()
            named.append(inner)
            inner.name = self._node_names.fresh(f"{prefix}{inner.name or inner.op_type}")
            for value in inner.outputs:
                value.name = self._fresh(value.name or inner.op_type)
            for _, nested in subgraphs(inner):
                pending += nested
                for value in (*nested.inputs, *nested.initializers.values()):
                    value.name = self._fresh(value.name or "value")
        return named

    def _note_scopes(self, graph: ir.Graph, moved: Iterable[ir.Node]) -> None:
        """Remember where the bodies of nodes stand that have come to `graph`."""
        for inner in moved:
            for name, nested in subgraphs(inner):
                prefix = f"{self._scopes.get(graph, '')}{inner.name}.{name}/"
                self._scopes.update((g, scope) for scope, g in all_graphs(nested, prefix))

    def _key(self, graph: ir.Graph, value: ir.Value) -> str:
        return f"{self._scopes.get(graph, '')}{value.name}"

    def _fresh(self, base: str) -> str:
        stem = base.removesuffix(f"__{self.pass_name}")
        return self._value_names.fresh(f"{stem}__{self.pass_name}")


def scoped_nodes(model: ir.Model) -> list[Scoped]:
    """Return all nodes of all graphs as a list that stays valid while the graph changes."""
    return list(walk(model.graph))


def graph_of(node: ir.Node) -> ir.Graph:
    """Return the graph that a node belongs to."""
    graph = node.graph
    if not isinstance(graph, ir.Graph):
        msg = f"node {node.name} is in no graph"
        raise TypeError(msg)
    return graph


def _initializer(name: str, tensor: ir.TensorProtocol) -> ir.Value:
    return ir.Value(
        name=name,
        shape=tensor.shape,  # type: ignore[arg-type]
        type=ir.TensorType(tensor.dtype),
        const_value=tensor,
    )


def _can_become_output(value: ir.Value, graph: ir.Graph) -> bool:
    producer = value.producer()
    return producer is not None and producer.graph is graph and not value.is_graph_output()


def _all_origins(node: ir.Node) -> list[str]:
    """Return the origins of a node and of everything in its bodies."""
    names = origins(node)
    for _, graph in subgraphs(node):
        names += [name for scoped in walk(graph) for name in origins(scoped.node)]
    return names
