"""From a graph and the shapes of its values to the steps and tensors of a program."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence

import onnx_ir as ir

from cannc.compiler.core.graphs import all_graphs, subgraphs
from cannc.compiler.memory.effects import is_elementwise, is_random, viewed
from cannc.compiler.memory.liveness import peak
from cannc.compiler.memory.program import Program, Step, Tensor, aligned
from cannc.compiler.memory.sizing import Form, Forms, Shape
from cannc.compiler.om.dtypes import packed_bytes


def build_program(graph: ir.Graph, forms: Sequence[Forms], scope: str = "") -> Program:
    """Return the program of a graph.

    Args:
        graph: The graph.
        forms: Forms of all values, one mapping per gear; each tensor gets its greatest size.
        scope: Scope of the graph, see `core.graphs.Scoped`.
    """
    return _Builder(graph, forms, scope).program


def form_bytes(form: Form) -> int | None:
    """Return the bytes of a tensor, or None for what has no fixed size: strings, sequences."""
    if form.dtype in (None, ir.DataType.STRING, ir.DataType.UNDEFINED):
        return None
    return packed_bytes(form.dtype, math.prod(form.shape))


class _Builder:
    def __init__(self, graph: ir.Graph, forms: Sequence[Forms], scope: str) -> None:
        self.graph, self.all_forms, self.scope = graph, forms, scope
        self.program = Program()
        self.producer: dict[ir.Value, int] = {}
        self.root: dict[ir.Value, ir.Value] = {}
        self.measured: dict[ir.Value, tuple[Shape, int | None]] = {}
        nodes = list(graph)
        for node in nodes:
            self._trace(node)
        # A tensor that a view shows to the caller is written there in the first place; views of
        # what lies outside the arena lie outside too (where they are copies, in another buffer).
        self.outside = {self._root(value) for value in (*graph.inputs, *graph.outputs)}
        last_random: tuple[int, ...] = ()
        for index, node in enumerate(nodes):
            random = is_random(node)
            self._step(index, node, last_random if random else ())
            last_random = (index,) if random else last_random
        self._interface()

    def _root(self, value: ir.Value) -> ir.Value:
        return self.root.get(value, value)

    def _trace(self, node: ir.Node) -> None:
        """Note whether the node only shows another value."""
        source = viewed(node)
        if source is None:
            return
        root, output = self._root(source), node.outputs[0]
        if self._measure(output)[1] != self._measure(root)[1]:
            return
        self.root[output] = root

    def _measure(self, value: ir.Value) -> tuple[Shape, int | None]:
        """Return the shape with the most bytes over all gears, and the bytes."""
        if value not in self.measured:
            sizes = [
                (size, form.shape)
                for form in self._everywhere(value)
                if form is not None and (size := form_bytes(form)) is not None
            ]
            known = len(sizes) == len(self.all_forms)
            size, shape = max(sizes) if known else (None, ())
            self.measured[value] = shape, size
        return self.measured[value]

    def _everywhere(self, value: ir.Value) -> list[Form | None]:
        """Return the form of a value in every gear."""
        key = f"{self.scope}{value.name}"
        return [forms.get(key) for forms in self.all_forms]

    def _step(self, index: int, node: ir.Node, after: tuple[int, ...]) -> None:
        read_values = [value for value in node.inputs if value is not None]
        for _, inner in subgraphs(node):
            read_values += captured(inner)
        needs = {self.producer[v] for v in read_values if v in self.producer} | set(after)
        reads = {self.program.place[v] for v in read_values if v in self.program.place}
        writes = [w for value in node.outputs if (w := self._write(value, node)) is not None]
        for value in node.outputs:
            self.producer[value] = index
        self.program.steps.append(
            Step(
                node,
                tuple(sorted(reads)),
                tuple(writes),
                self._reuse(node, writes),
                self._scratch(node),
                tuple(sorted(needs)),
            )
        )

    def _write(self, value: ir.Value, node: ir.Node) -> int | None:
        """Give an output its tensor; return it when this step makes it."""
        root = self._root(value)
        if root is not value:
            if root in self.program.place:
                self.program.place[value] = self.program.place[root]
            return None
        if value in self.outside or node.op_type == "Constant":
            return None
        shape, size = self._measure(value)
        if size is None:
            self.program.unsized.append(value.name or "")
            return None
        if size == 0:
            return None
        self.program.place[value] = len(self.program.tensors)
        self.program.tensors.append(Tensor(value, shape, size))
        return len(self.program.tensors) - 1

    def _reuse(self, node: ir.Node, writes: list[int]) -> tuple[tuple[int, int], ...]:
        if not writes or not is_elementwise(node):
            return ()
        out = self.program.tensors[writes[0]]
        found = []
        for value in node.inputs:
            if value is None or value not in self.program.place:
                continue
            read = self.program.place[value]
            # The same shape, so no broadcasting, and as many bytes for every element.
            if (
                self._shapes(value) == self._shapes(out.value)
                and self._measure(value)[1] == out.size
            ):
                found.append((writes[0], read))
        return tuple(dict.fromkeys(found))

    def _shapes(self, value: ir.Value) -> list[Shape | None]:
        return [form and form.shape for form in self._everywhere(value)]

    def _scratch(self, node: ir.Node) -> int:
        """Return the greatest need of the graphs inside a node, their interface included."""
        most = 0
        for name, inner in subgraphs(node):
            scope = f"{self.scope}{node.name}.{name}/"
            program = build_program(inner, self.all_forms, scope)
            self.program.unsized += [f"{scope}{one}" for one in program.unsized]
            need = peak(program) + program.input_bytes + program.output_bytes
            most = max(most, need)
        return most

    def _interface(self) -> None:
        given = [v for v in self.graph.inputs if v.name not in self.graph.initializers]
        self.program.input_bytes = self._total(given)
        self.program.output_bytes = self._total(dict.fromkeys(self.graph.outputs))

    def _total(self, values: Iterable[ir.Value]) -> int:
        total = 0
        for value in values:
            size = self._measure(value)[1]
            if size is None:
                self.program.unsized.append(value.name or "")
            else:
                total += aligned(size)
        return total


def captured(graph: ir.Graph) -> list[ir.Value]:
    """Return the values of enclosing graphs that a graph, or one inside it, reads."""
    inner = [g for _, g in all_graphs(graph)]
    own = {value for g in inner for value in (*g.inputs, *g.initializers.values())}
    own |= {value for g in inner for node in g for value in node.outputs}
    return [value for value in dict.fromkeys(_read(inner)) if value not in own]


def _read(graphs: list[ir.Graph]) -> Iterator[ir.Value]:
    for graph in graphs:
        for node in graph:
            yield from (value for value in node.inputs if value is not None)
        yield from graph.outputs
