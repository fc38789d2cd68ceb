"""A machine with one block of memory: runs a planned model at its offsets, node by node.

What overlaps wrongly gets overwritten and shows in the outputs. Knows nothing of liveness.
"""

from __future__ import annotations

import numpy as np
import onnx
import onnx_ir as ir
from hypothesis import strategies as st
from onnx import helper as h
from onnx.reference import ReferenceEvaluator

from cannc.compiler.core.graphs import all_graphs, subgraphs
from cannc.compiler.memory.planner import Planned

POISON = 0xA5
# Written down here on purpose, not taken from the code under test.
MAY_OVERWRITE = {"Add", "Mul", "Relu", "Tanh", "Neg", "Cast", "Abs", "Exp"}
MAY_SHOW = {"Reshape", "Identity", "Unsqueeze", "Squeeze", "Flatten"}


class Machine:
    """Runs `planned` on feeds.

    Attributes:
        most: Greatest number of bytes that were in use at one node, by looking at the offsets.
    """

    def __init__(self, planned: Planned) -> None:
        self.model, self.places = planned.model, planned.places
        self.memory = np.full(planned.plan.arena_bytes or 0, POISON, np.uint8)
        self.outside: dict[str, np.ndarray] = {}
        self.where: dict[str, tuple[int, np.dtype, tuple[int, ...]]] = {}
        self.most = 0

    def run(self, feeds: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
        graph = self.model.graph
        self.outside |= feeds
        self.outside |= {n: v.const_value.numpy() for n, v in graph.initializers.items()}
        last = {}
        for index, node in enumerate(graph):
            last |= dict.fromkeys(read_names(node), index)
        for index, node in enumerate(graph):
            self.step(node)
            self.count(index, node, last)
        return {value.name: self.read(value.name) for value in graph.outputs}

    def step(self, node: ir.Node) -> None:
        memory = self.places[node.name]
        self.poison(memory.scratch)
        feeds = {name: self.read(name).copy() for name in read_names(node)}
        results = evaluate(node, feeds, self.model)
        for value, array, offset in zip(node.outputs, results, memory.offsets, strict=True):
            if offset < 0:
                self.outside[value.name] = array
                continue
            self.check(node, offset, array)
            raw = np.frombuffer(np.ascontiguousarray(array).tobytes(), np.uint8)
            assert offset + len(raw) <= len(self.memory)
            self.memory[offset : offset + len(raw)] = raw
            self.where[value.name] = offset, array.dtype, array.shape
        self.poison(memory.scratch)

    def check(self, node: ir.Node, offset: int, array: np.ndarray) -> None:
        """A result may lie on an operand only as a whole, for operators where that is right."""
        for name in read_names(node):
            if name not in self.where:
                continue
            start, dtype, shape = self.where[name]
            size = dtype.itemsize * int(np.prod(shape))
            if start + size <= offset or offset + array.nbytes <= start:
                continue
            assert start == offset
            assert size == array.nbytes
            if node.op_type not in MAY_SHOW:
                assert node.op_type in MAY_OVERWRITE
                assert shape == array.shape

    def count(self, index: int, node: ir.Node, last: dict[str, int]) -> None:
        made = {value.name for value in node.outputs}
        used = set()
        for name, (offset, dtype, shape) in self.where.items():
            if last.get(name, -1) >= index or name in made:
                size = dtype.itemsize * int(np.prod(shape))
                used |= {*range(offset // 512, -(-(offset + size) // 512))}
        scratch = self.places[node.name].scratch
        blocks = 0 if scratch is None else scratch[1] // 512
        self.most = max(self.most, (len(used) + blocks) * 512)

    def poison(self, scratch: tuple[int, int] | None) -> None:
        if scratch is not None:
            self.memory[scratch[0] : sum(scratch)] = POISON

    def read(self, name: str) -> np.ndarray:
        if name in self.outside:
            return self.outside[name]
        offset, dtype, shape = self.where[name]
        size = dtype.itemsize * int(np.prod(shape))
        return self.memory[offset : offset + size].view(dtype).reshape(shape)


def read_names(node: ir.Node) -> list[str]:
    """Return what a node reads, graphs inside it included."""
    names = [value.name for value in node.inputs if value is not None]
    for _, inner in subgraphs(node):
        graphs = [graph for _, graph in all_graphs(inner)]
        made = {v.name for g in graphs for n in g for v in n.outputs}
        made |= {v.name for g in graphs for v in g.inputs}
        made |= {name for g in graphs for name in g.initializers}
        read = [v.name for g in graphs for n in g for v in n.inputs if v is not None]
        names += [name for name in read if name not in made]
    return list(dict.fromkeys(names))


def evaluate(node: ir.Node, feeds: dict[str, np.ndarray], model: ir.Model) -> list[np.ndarray]:
    """Run one node by onnx's reference evaluator."""
    inputs = [
        h.make_tensor_value_info(name, h.np_dtype_to_tensor_dtype(array.dtype), array.shape)
        for name, array in feeds.items()
    ]
    outputs = [onnx.ValueInfoProto(name=value.name) for value in node.outputs]
    graph = h.make_graph([ir.to_proto(node)], "one", inputs, outputs)
    imports = [h.make_opsetid(domain, version) for domain, version in model.opset_imports.items()]
    return ReferenceEvaluator(h.make_model(graph, opset_imports=imports)).run(None, feeds)


UNARY = ("Relu", "Tanh", "Neg", "Abs", "Identity", "Transpose", "Reshape", "Unsqueeze", "Half")
BINARY = ("Add", "Concat", "Broadcast")


@st.composite
def graphs(draw: st.DrawFn, most_nodes: int = 14) -> onnx.ModelProto:
    """Return a random graph with views, in-place candidates, branches and several outputs.

    Input ``x`` has shape (16, 24).
    """
    values: list[tuple[str, tuple[int, ...]]] = [("x", (16, 24))]
    nodes: list[onnx.NodeProto] = []
    weights = {"column": np.ones((1, 24), np.float32), "axis": np.array([0], np.int64)}
    for index in range(draw(st.integers(2, most_nodes))):
        out = f"v{index}"
        name, shape = draw(st.sampled_from(values[-4:]))
        op = draw(st.sampled_from((*UNARY, *BINARY)))
        if op in BINARY:
            new, shape = _binary(draw, op, name, shape, values, out)
        else:
            new, shape = _unary(op, name, shape, out, weights)
        nodes += new
        values.append((out, shape))
    inner = values[1:]
    chosen = draw(st.lists(st.sampled_from(inner), min_size=1, max_size=3, unique=True))
    if inner[-1] not in chosen:
        chosen.append(inner[-1])
    graph = h.make_graph(
        nodes,
        "random",
        [h.make_tensor_value_info("x", onnx.TensorProto.FLOAT, (16, 24))],
        [h.make_tensor_value_info(n, onnx.TensorProto.FLOAT, s) for n, s in chosen],
        [onnx.numpy_helper.from_array(array, name) for name, array in weights.items()],
    )
    for index, node in enumerate(graph.node):
        node.name = f"n{index}"
    model = h.make_model(graph, opset_imports=[h.make_opsetid("", 18)], ir_version=10)
    onnx.checker.check_model(model, full_check=True)
    return model


def _binary(draw, op, name, shape, values, out):
    if op == "Broadcast" and shape[-1] == 24:
        return [h.make_node("Mul", [name, "column"], [out])], shape
    if op == "Concat" and np.prod(shape) <= 2000:
        again = draw(st.sampled_from([n for n, s in values if s == shape]))
        return [h.make_node("Concat", [name, again], [out], axis=0)], (2 * shape[0], *shape[1:])
    other = draw(st.sampled_from([n for n, s in values if s == shape]))
    return [h.make_node("Add", [name, other], [out])], shape


def _unary(op, name, shape, out, weights):
    if op == "Transpose":
        perm = [*range(len(shape))][::-1]
        return [h.make_node("Transpose", [name], [out], perm=perm)], shape[::-1]
    if op == "Reshape":
        weights[f"{out}_shape"] = np.array([-1, shape[-1]], np.int64)
        rows = int(np.prod(shape[:-1]))
        return [h.make_node("Reshape", [name, f"{out}_shape"], [out])], (rows, shape[-1])
    if op == "Unsqueeze" and len(shape) < 4:
        return [h.make_node("Unsqueeze", [name, "axis"], [out])], (1, *shape)
    if op == "Half":
        down = h.make_node("Cast", [name], [f"{out}_half"], to=onnx.TensorProto.FLOAT16)
        up = h.make_node("Cast", [f"{out}_half"], [out], to=onnx.TensorProto.FLOAT)
        return [down, up], shape
    op = "Identity" if op == "Unsqueeze" else op
    return [h.make_node(op, [name], [out])], shape
