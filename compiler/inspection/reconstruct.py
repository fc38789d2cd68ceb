"""An ONNX model to look at: the exact one of a host artifact, a picture of any other graph.

A device graph is not ONNX any more, so its ops keep their types in a domain of their own, ``ge``.
What ONNX has no place for (layouts, control edges) stands in the metadata of nodes and values.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any

import onnx
import onnx_ir as ir

from cannc.compiler.core.errors import UsageError
from cannc.compiler.core.graphs import Names
from cannc.compiler.inspection.graphs import desc_dims
from cannc.compiler.om import own
from cannc.compiler.om.attributes import get, kind_of, typed
from cannc.compiler.om.descriptors import real_dtype
from cannc.compiler.om.dtypes import packed_bytes
from cannc.compiler.om.faults import damaged
from cannc.compiler.om.partitions import PartitionType
from cannc.compiler.om.reader import OmFile

DOMAIN = "ge"
_KINDS = {
    "i": ir.AttributeType.INT,
    "b": ir.AttributeType.INT,
    "dt": ir.AttributeType.INT,
    "f": ir.AttributeType.FLOAT,
    "s": ir.AttributeType.STRING,
    "list:i": ir.AttributeType.INTS,
    "list:b": ir.AttributeType.INTS,
    "list:dt": ir.AttributeType.INTS,
    "list:f": ir.AttributeType.FLOATS,
    "list:s": ir.AttributeType.STRINGS,
}
# The compiled kernel, which old files repeat in each op, is no property of the op.
_MAX_TEXT_BYTES = 4096
_MAX_NESTING = 100


def as_onnx(file: OmFile, model: int = 0) -> ir.Model:
    """Return the ONNX model of a host artifact, or a picture of a device graph.

    Args:
        file: The artifact; weights stay mapped from it.
        model: Which of the models in the file, those of a bundle's members counted on.

    Raises:
        ModelError: the graph is broken: codes of `OmFile.definition`, ``OM014``.
        UsageError: ``INS002`` there is no such model in the file.
    """
    holders = [f for f in (file, *file.bundled) if f.find(PartitionType.MODEL_DEF)] or [file]
    models = [each for holder in holders for each in holder.models]
    if not 0 <= model < len(models):
        last = len(models) - 1
        raise UsageError(
            "INS002", f"no model {model}", where="--model", fix=f"the file holds models 0 to {last}"
        )
    chosen = models[model]
    if chosen.is_host:
        return chosen.to_model()
    definition = chosen.definition
    if not definition.graph:
        raise damaged("OM014", "the graph cannot be shown", chosen.path, "there is no graph")
    graph = _Picture(chosen).graph(definition.graph[0], 0)
    graph.opset_imports.update({"": 18, DOMAIN: 1})
    producer = typed(definition.attr, "atc_version", "s", "")
    return ir.Model(
        graph,
        ir_version=10,
        producer_name="cannc inspect",
        doc_string="A picture of a compiled graph: to look at, not to run.",
        metadata_props={"ge.atc_version": producer} if isinstance(producer, str) else {},
    )


class _Picture:
    """The graphs of one model; value names are unique over all of them, as ONNX wants."""

    def __init__(self, file: OmFile) -> None:
        self.file = file
        self.graphs = {graph.name: graph for graph in file.definition.graph}
        self.names = Names()

    def graph(self, source: Any, depth: int) -> ir.Graph:
        if depth > _MAX_NESTING:
            raise self.bad(f"graphs are nested more than {_MAX_NESTING} levels deep")
        return _GraphPicture(self, source, depth).run()

    def nested(self, name: str, depth: int) -> ir.Graph:
        source = self.graphs.pop(name, None)
        if source is None:
            raise self.bad(f"graph '{name}' does not exist or is run by two ops")
        return self.graph(source, depth)

    def bad(self, why: str) -> Exception:
        return damaged("OM014", "the graph cannot be shown", self.file.path, why)


class _GraphPicture:
    """One graph: first the values of all ops, then the nodes between them, sorted."""

    def __init__(self, parent: _Picture, source: Any, depth: int) -> None:
        self.parent, self.source, self.depth = parent, source, depth
        self.values: dict[str, ir.Value] = {}
        self.inputs: list[ir.Value] = []
        self.initializers: list[ir.Value] = []
        self.made: dict[int, list[ir.Value]] = {}

    def run(self) -> ir.Graph:
        ops = list(self.source.op)
        for index, op in enumerate(ops):
            self._define(index, op)
        inner = [(i, op) for i, op in enumerate(ops) if i in self.made]
        nodes = [self._node(op, self.made[i]) for i, op in inner]
        outputs = list(self._outputs(ops, nodes))
        graph = ir.Graph(
            self.inputs,
            outputs,
            nodes=nodes,
            initializers=self.initializers,
            name=self.source.name or "graph",
        )
        try:
            graph.sort()
        except ValueError as error:
            raise self.parent.bad("its ops depend on each other in a circle") from error
        return graph

    def _define(self, index: int, op: Any) -> None:
        """Create what an op gives: a graph input, a constant, or outputs of a node."""
        if op.type == "Data":
            value = self._value(op.name, (*op.output_desc, *op.input_desc)[:1])
            self.inputs.append(value)
            self.values.setdefault(f"{op.name}:0", value)
            return
        if op.type == "NetOutput":
            return
        if op.type == "Const":
            tensor = self._tensor(op)
            if tensor is not None:
                value = self._value(op.name, op.output_desc[:1])
                value.const_value = tensor
                value.type, value.shape = (
                    ir.TensorType(tensor.dtype),
                    ir.Shape(tensor.shape.numpy()),
                )
                self.initializers.append(value)
                self.values.setdefault(f"{op.name}:0", value)
                return
        # A node has at least one output, so that it is part of the picture.
        outputs = [self._value(f"{op.name}:{i}", [d]) for i, d in enumerate(op.output_desc)]
        self.made[index] = outputs or [self._value(f"{op.name}:0", ())]
        for i, value in enumerate(self.made[index]):
            self.values.setdefault(f"{op.name}:{i}", value)

    def _value(self, name: str, descs: Iterable[Any]) -> ir.Value:
        value = ir.Value(name=self.parent.names.fresh(name or "value"))
        for desc in descs:
            dtype, dims = real_dtype(desc), desc_dims(desc)
            value.type = ir.TensorType(dtype) if dtype else None
            if dtype and dims is not None:
                value.shape = ir.Shape([d if isinstance(d, int) and d >= 0 else None for d in dims])
            if desc.layout:
                value.metadata_props["ge.layout"] = desc.layout
        return value

    def _tensor(self, op: Any) -> ir.TensorProtocol | None:
        """Return a constant with its stored shape; None when ONNX cannot express it."""
        if "value" not in op.attr or kind_of(op.attr["value"]) != "t":
            return None
        tensor = op.attr["value"].t
        desc, dims = tensor.desc, tuple(tensor.desc.shape.dim)
        dtype = real_dtype(desc)
        if not dtype or dtype == ir.DataType.STRING or any(dim < 0 for dim in dims):
            return None
        needed = packed_bytes(dtype, math.prod(dims))
        size = len(tensor.data) or desc.weight_size
        # Layouts that ONNX lacks are blocks in an order of their own, with a shape that fits.
        if size != needed or not needed:
            return None
        if tensor.data:
            return _in_memory(tensor.data, dtype, dims, op.name)
        offset = typed(desc.attr, "merged_offset", "i", desc.data_offset)
        region = self.parent.file.weight_region
        if min(offset, size) < 0 or offset + size > region.size:
            why = f"weight '{op.name}' lies at {offset} to {offset + size} of {region.size} bytes"
            raise self.parent.bad(why)
        return ir.ExternalTensor(
            region.path.name,
            region.offset + offset,
            size,
            dtype,
            shape=ir.Shape(dims),
            name=op.name,
            base_dir=region.path.parent,
        )

    def _node(self, op: Any, outputs: list[ir.Value]) -> ir.Node:
        inputs: list[ir.Value | None] = []
        control: list[str] = []
        for edge in op.input:
            name, colon, index = edge.rpartition(":")
            if colon and index.startswith("-"):
                control.append(name)
            else:
                inputs.append(self._read(edge, op) if colon else None)
        attributes = [a for name in sorted(op.attr) if (a := _attribute(name, op.attr[name]))]
        for index, name in enumerate(op.subgraph_name):
            inner = self.parent.nested(name, self.depth + 1)
            attributes.append(ir.AttrGraph(f"subgraph_{index}", inner))
        notes = {"ge.control_inputs": ", ".join(control)} if control else {}
        return ir.Node(
            DOMAIN,
            op.type or "unknown",
            inputs,
            attributes,
            outputs=outputs,
            name=op.name,
            metadata_props=notes,
        )

    def _read(self, edge: str, op: Any) -> ir.Value:
        value = self.values.get(edge)
        if value is None:
            raise self.parent.bad(f"op '{op.name}' reads '{edge}', which nothing produces")
        return value

    def _outputs(self, ops: list[Any], nodes: list[ir.Node]) -> Iterable[ir.Value]:
        """Yield the graph's outputs; each gets a value of its own, since ONNX names them once."""
        seen: set[ir.Value] = set(self.inputs) | set(self.initializers)
        for op in (op for op in ops if op.type == "NetOutput"):
            for edge in (e for e in op.input if not e.rpartition(":")[2].startswith("-")):
                if not edge:
                    continue
                value = self._read(edge, op)
                if value in seen:
                    copy = ir.Node("", "Identity", [value], name=f"{op.name}:{len(nodes)}")
                    copy.outputs[0].name = self.parent.names.fresh(f"{value.name}:output")
                    copy.outputs[0].type, copy.outputs[0].shape = value.type, value.shape
                    nodes.append(copy)
                    value = copy.outputs[0]
                seen.add(value)
                yield value


def _in_memory(
    data: bytes, dtype: ir.DataType, dims: tuple[int, ...], name: str
) -> ir.TensorProtocol:
    proto = onnx.TensorProto(name=name, data_type=dtype.value, dims=dims, raw_data=data)
    return ir.from_proto(proto)


def _attribute(name: str, attr: Any) -> ir.Attr | None:
    """Return an attribute as ONNX has it; None for kinds that it lacks, and for binary data."""
    kind = kind_of(attr)
    if kind not in _KINDS or name.startswith(own.PREFIX):
        return None
    value = get(attr)
    if kind in ("s", "list:s"):
        texts = value if kind == "list:s" else [value]
        # Text that is none, or a whole kernel, would only hide the rest.
        if any(isinstance(text, bytes) or len(text) > _MAX_TEXT_BYTES for text in texts):
            return None
    if kind in ("list:b", "b"):
        value = [int(v) for v in value] if kind == "list:b" else int(value)
    return ir.Attr(name, _KINDS[kind], value)
