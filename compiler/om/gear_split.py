"""Turning the graphs of a model into a root graph that chooses, and one copy of them per gear.

The copies differ in shapes and names only; their constants lie at the same places, so gears cost
graph, not weights. Each descriptor keeps the dims that the model declares, so `gear_merge` can give
the model back.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
import onnx_ir as ir

from cannc.compiler.core.errors import ModelError
from cannc.compiler.om import gears as layout
from cannc.compiler.om import own
from cannc.compiler.om.attributes import put, put_list, typed
from cannc.compiler.om.descriptors import bind, fill
from cannc.compiler.om.gears import Dims, GearPlan, suffix
from cannc.compiler.om.proto import GraphDef, TensorDescriptor
from cannc.compiler.om.weights import WeightWriter, encode_tensor


def split(definition: Any, plan: GearPlan, weights: WeightWriter) -> None:
    """Change the definition that `encode_model` made, in place.

    Raises:
        ModelError: ``OM026`` a name or an attribute of the model is one that gears need.
    """
    graphs = [_copy(graph) for graph in definition.graph]
    _check_free(graphs)
    del definition.graph[:]
    put(definition.attr, own.GEARS, len(plan.gears.gears))
    definition.graph.add()
    branches = []
    for number, shapes in enumerate(plan.shapes):
        copies = [_copy(graph) for graph in graphs]
        _bind_graph(copies[0], {graph.name: graph for graph in copies}, shapes, "", ())
        for copy in copies:
            _rename(copy, number)
        _mark_interface(copies[0])
        definition.graph.extend(copies)
        branches.append(copies[0])
    _Root(definition.graph[0], graphs[0], branches, plan).build(weights)


def _copy(graph: Any) -> Any:
    copy = GraphDef()
    copy.CopyFrom(graph)
    return copy


def _check_free(graphs: list[Any]) -> None:
    for graph in graphs:
        for op in graph.op:
            taken = [op.name] if graph is graphs[0] and op.name in layout.ROOT_NAMES else []
            taken += [name for name in layout.GEAR_ATTRS if name in op.attr]
            if taken:
                raise ModelError(
                    "OM026",
                    f"the name '{taken[0]}' is needed to store gears",
                    where=f"graph '{graph.name}', op '{op.name}'",
                    fix="rename it in the model",
                )


def _bind_graph(
    graph: Any,
    graphs: Mapping[str, Any],
    shapes: Mapping[str, Dims],
    scope: str,
    outer: tuple[Any, ...],
) -> None:
    """Give every descriptor of a graph, and of the graphs inside it, the shape of the gear.

    `outer` are the bound input descriptors of the op that owns the graph.
    """
    made: dict[str, Any] = {}
    for op in graph.op:
        slot = typed(op.attr, own.CAPTURE, "i", None)
        for desc, edge in zip(op.input_desc, op.input, strict=True):
            if edge:
                bind(desc, tuple(made[edge].shape.dim))
        defaults = [op.name] if op.type in ("Data", "Const") else []
        names = typed(op.attr, own.OUTPUTS, "list:s", defaults)
        for index, (desc, name) in enumerate(zip(op.output_desc, names, strict=True)):
            dims = tuple(outer[slot].shape.dim) if slot is not None else shapes.get(scope + name)
            if dims is not None and name:
                bind(desc, dims)
            made[f"{op.name}:{index}"] = desc
        if op.type == "Data":
            bind(op.input_desc[0], tuple(op.output_desc[0].shape.dim))
        node = typed(op.attr, own.NAME, "s", op.name)
        for key, name in zip(_keys(op), op.subgraph_name, strict=True):
            inner = f"{scope}{node}.{key}/"
            _bind_graph(graphs[name], graphs, shapes, inner, tuple(op.input_desc))


def _keys(op: Any) -> list[str]:
    """Return the key of each graph inside an op, as `core.graphs.subgraphs` gives it."""
    counts: dict[str, int] = {}
    keys = []
    for owner in typed(op.attr, own.GRAPHS, "list:s", []):
        name = owner.removesuffix("[]")
        if name == owner:
            keys.append(name)
        else:
            keys.append(f"{name}{counts.setdefault(name, 0)}")
            counts[name] += 1
    return keys


def _rename(graph: Any, number: int) -> None:
    end = suffix(number)
    graph.name += end
    for index, edge in enumerate(graph.input):
        graph.input[index] = _moved(edge, end)
    for op in graph.op:
        op.name += end
        for index, edge in enumerate(op.input):
            op.input[index] = _moved(edge, end)
        for names in (op.src_name, op.subgraph_name):
            names[:] = [name + end for name in names]
        put(op.attr, layout.LABEL, f"Batch_{number}")


def _moved(edge: str, end: str) -> str:
    name, _, index = edge.rpartition(":")
    return f"{name}{end}:{index}" if name else edge


def _mark_interface(graph: Any) -> None:
    """Say which input and output of the choosing op each Data and result stands for."""
    for op in graph.op:
        if op.type == "Data":  # input 0 of the choosing op is the choice
            put(op.attr, layout.PARENT_INDEX, op.attr["index"].i + 1)
        if op.type == "NetOutput":
            for index, desc in enumerate(op.input_desc):
                put(desc.attr, layout.PARENT_INDEX, index)


class _Root:
    """Builds the graph that chooses between the gears."""

    def __init__(self, target: Any, model: Any, branches: list[Any], plan: GearPlan) -> None:
        self.target, self.model, self.branches, self.plan = target, model, branches, plan
        target.name = model.name

    def build(self, weights: WeightWriter) -> None:
        gears = self.plan.gears
        data = [op for op in self.model.op if op.type == "Data"]
        for op in data:
            self._data(op)
        row = len(gears.gears[0].sizes)
        choice = self._op(layout.SHAPE_DATA, "Data")
        choice.input.append("")
        choice.is_input_const.append(False)
        put(choice.attr, "index", len(data))
        put(choice.attr, layout.INSERTED, True)
        for descs in (choice.input_desc, choice.output_desc):
            fill(descs.add(), ir.DataType.INT32, (row,))
        self.target.input.append(f"{choice.name}:0")
        table = self._op(layout.TABLE, "Const")
        rows = np.array([gear.sizes for gear in gears.gears], np.int32).reshape(-1)
        encode_tensor(table.attr["value"].t, ir.tensor(rows, name=layout.TABLE), weights)
        table.output_desc.add().CopyFrom(table.attr["value"].t.desc)
        index = self._op(layout.INDEX, "MapIndex")
        self._connect(index, choice)
        self._connect(index, table)
        fill(index.output_desc.add(), ir.DataType.INT32, ())
        self._case(index, data)

    def _op(self, name: str, op_type: str) -> Any:
        op = self.target.op.add()
        op.name, op.type, op.id = name, op_type, len(self.target.op) - 1
        return op

    def _data(self, op: Any) -> None:
        """Copy an input: its descriptor holds its largest shape (as ATC's does, per input)."""
        copy = self._op(op.name, "Data")
        number = copy.id
        copy.CopyFrom(op)
        copy.id = number
        self.target.input.append(f"{op.name}:0")
        dims = list(op.output_desc[0].shape.dim)
        if any(dim < 0 for dim in dims):
            put_list(copy.attr, layout.OPEN_DIMS, "i", dims)
        forms = [branch.op[op.id].output_desc[0] for branch in self.branches]
        largest = max(forms, key=lambda desc: math.prod(desc.shape.dim))
        for descs in (copy.input_desc, copy.output_desc):
            bind(descs[0], tuple(largest.shape.dim))

    def _connect(self, op: Any, source: Any, index: int = 0) -> None:
        op.input.append(f"{source.name}:{index}")
        op.is_input_const.append(source.type == "Const")
        op.input_desc.add().CopyFrom(source.output_desc[index])

    def _case(self, index: Any, data: list[Any]) -> None:
        gears = self.plan.gears
        case = self._op(layout.CASE, "Case")
        self._connect(case, index)
        inputs = {op.name: op for op in self.target.op}
        for op in data:
            self._connect(case, inputs[op.name])
        put(case.attr, layout.BATCH_NUM, len(gears.gears))
        for number, gear in enumerate(gears.gears):
            put_list(case.attr, f"{layout.SIZES}{number}", "i", gear.sizes)
        put_list(case.attr, layout.ORDER, "s", gears.order)
        put(case.attr, layout.INSERTED, True)
        put(case.attr, layout.KIND, int(gears.kind))
        case.subgraph_name.extend(branch.name for branch in self.branches)
        ends = [next(op for op in b.op if op.type == "NetOutput") for b in self.branches]
        for desc in ends[gears.largest].input_desc:
            case.output_desc.add().CopyFrom(_plain(desc))
        end = self._op(next(op.name for op in self.model.op if op.type == "NetOutput"), "NetOutput")
        for number in range(len(case.output_desc)):
            self._connect(end, case, number)
            end.src_name.append(case.name)
            end.src_index.append(number)
        shapes = [
            f"{gear},{output},{','.join(map(str, branch_end.input_desc[output].shape.dim))}"
            for output in range(len(case.output_desc))
            for gear, branch_end in enumerate(ends)
        ]
        put_list(end.attr, layout.OUTPUT_DIMS, "s", shapes)


def _plain(desc: Any) -> Any:
    """Return a copy of a result's descriptor for outside the gear that makes it."""
    copy = TensorDescriptor()
    copy.CopyFrom(desc)
    del copy.attr[layout.PARENT_INDEX]
    copy.data_offset = copy.weight_size = 0
    return copy
