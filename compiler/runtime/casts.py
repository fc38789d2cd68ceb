"""Names for new values, and Cast nodes inserted with them."""

from __future__ import annotations

import onnx_ir as ir

from cannc.compiler.core.graphs import all_graphs, unique, walk
from cannc.compiler.runtime.dtypes import values_of

_OPSET = 18


class Names:
    """Names that clash with nothing in any scope: a branch must not shadow an outer value."""

    def __init__(self, model: ir.Model) -> None:
        """Collect the names in use."""
        graphs = [graph for _, graph in all_graphs(model.graph)]
        self._taken = {value.name for graph in graphs for value in values_of(graph)}
        self._taken |= {scoped.node.name for scoped in walk(model.graph)}

    def fresh(self, name: str) -> str:
        """Return `name`, or `name` with a number, that nothing else has."""
        found = unique(name, self._taken)
        self._taken.add(found)
        return found


class Casts(Names):
    """Inserts Cast nodes into one model, in place."""

    def __init__(self, model: ir.Model) -> None:
        """Take over a model."""
        super().__init__(model)
        model.opset_imports.setdefault("", _OPSET)

    def behind(
        self, value: ir.Value, dtype: ir.DataType, name: str, *, outputs: bool = True
    ) -> ir.Value:
        """Let all users of `value` read it as `dtype`; return that new value, called `name`.

        Args:
            value: A node output, graph input or initializer.
            dtype: Dtype that users read.
            name: Name of the new value; take it from `fresh`, or free it before.
            outputs: Replace `value` among the graph's outputs too.
        """
        graph, producer = value.graph, value.producer()
        assert isinstance(graph, ir.Graph)
        users = [*value.uses()]
        node = self._node(value, dtype, name)
        if producer is not None:
            graph.insert_after(producer, node)
        elif len(graph):
            graph.insert_before(graph[0], node)
        else:
            graph.append(node)
        for user, index in users:
            user.replace_input_with(index, node.outputs[0])
        for index, output in enumerate(graph.outputs):
            if outputs and output is value:
                graph.outputs[index] = node.outputs[0]
        return node.outputs[0]

    def output(self, graph: ir.Graph, index: int, dtype: ir.DataType, suffix: str) -> None:
        """Deliver a graph output as `dtype` under its name; inside it goes on as name + suffix."""
        value = graph.outputs[index]
        name, value.name = value.name or "", self.fresh(f"{value.name}{suffix}")
        node = self._node(value, dtype, name)
        graph.append(node)
        graph.outputs[index] = node.outputs[0]

    def _node(self, value: ir.Value, dtype: ir.DataType, name: str) -> ir.Node:
        out = ir.Value(name=name, shape=value.shape, type=ir.TensorType(dtype))
        to = ir.AttrInt64("to", dtype)
        return ir.Node("", "Cast", [value], [to], outputs=[out], name=self.fresh(f"{name}__cast"))
