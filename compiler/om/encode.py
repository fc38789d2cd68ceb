"""ONNX model -> ModelDef: one op per node, nothing serialized whole (D12).

Each graph becomes Data ops (inputs), Const ops (initializers), one op per node and a NetOutput op.
Graphs inside nodes become further graphs of the ModelDef; what they read from outside is passed to
them explicitly: further inputs of the node, further Data ops inside.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import onnx
import onnx_ir as ir

from cannc.compiler.core.errors import ModelError
from cannc.compiler.core.graphs import subgraphs, unique
from cannc.compiler.om import own
from cannc.compiler.om.attributes import put, put_list, put_prefixed, typed
from cannc.compiler.om.descriptors import absent, describe, put_value_notes
from cannc.compiler.om.memory import OpMemory, put_memory
from cannc.compiler.om.node_attributes import encode_attributes
from cannc.compiler.om.proto import ModelDef, TensorDescriptor
from cannc.compiler.om.weights import WeightWriter, encode_tensor

OM_IR_VERSION = 2
RESERVED_TYPES = frozenset({"Data", "Const", "NetOutput"})
OUTPUT_OP = "Node_Output"


def encode_model(
    model: ir.Model, name: str, weights: WeightWriter, memory: Mapping[str, OpMemory]
) -> Any:
    """Return the ModelDef of a model; its tensors are written to `weights` on the way.

    `memory` tells, for nodes of the main graph by name, where their results lie in the arena.

    Raises:
        ModelError: ``OM020`` the model holds something that the container cannot express.
    """
    definition = ModelDef(name=name, version=OM_IR_VERSION)
    _put_model_attributes(definition.attr, model)
    encoder = _Encoder(definition, weights)
    encoder.graph(model.graph, model.graph.name or name, captures=[])
    for op in definition.graph[0].op:
        if op.type not in RESERVED_TYPES:
            put_memory(op, memory.get(typed(op.attr, own.NAME, "s", op.name)))
    return definition


def _put_model_attributes(attrs: Any, model: ir.Model) -> None:
    put(attrs, own.IR_VERSION, model.ir_version)
    producer = {"name": model.producer_name, "version": model.producer_version}
    put_prefixed(attrs, own.PRODUCER, {k: v for k, v in producer.items() if v})
    if model.domain:
        put(attrs, own.MODEL_DOMAIN, model.domain)
    if model.model_version:
        put(attrs, own.MODEL_VERSION, model.model_version)
    own.put_notes(attrs, model.doc_string, model.metadata_props)
    put_prefixed(attrs, own.OPSET, model.graph.opset_imports)
    if model.functions:
        put_list(attrs, own.FUNCTIONS, "bt", map(_function_bytes, model.functions.values()))
    if model.device_configurations:
        raise unsupported("model", "placement of nodes on several devices")


def _function_bytes(function: ir.Function) -> bytes:
    for node in function.all_nodes():
        for attribute in node.attributes.values():
            if isinstance(attribute.value, ir.ExternalTensor):
                raise unsupported(f"function {function.name}", "a tensor in another file")
    proto: onnx.FunctionProto = ir.to_proto(function)
    return proto.SerializeToString(deterministic=True)


def unsupported(where: str, what: str) -> ModelError:
    """Return the error for what the container has no place for."""
    return ModelError(
        "OM020",
        f"an offline model cannot hold {what}",
        where=where,
        fix="remove it from the model before compiling",
    )


@dataclass
class _Source:
    """Where a value comes from inside one graph."""

    edge: str
    desc: Any
    constant: bool = False


class _Encoder:
    """State for one model: the definition under construction and the weights."""

    def __init__(self, definition: Any, weights: WeightWriter) -> None:
        self.definition = definition
        self.weights = weights
        self._graph_names: set[str] = set()

    def graph(self, graph: ir.Graph, name: str, captures: list[tuple[str, int, Any]]) -> str:
        """Append a graph; `captures` are name, parent input index, descriptor. Return its name."""
        target = self.definition.graph.add()
        target.name = unique(name, self._graph_names)
        self._graph_names.add(target.name)
        if graph.name and graph.name != target.name:
            put(target.attr, own.NAME, graph.name)
        own.put_notes(target.attr, graph.doc_string, graph.metadata_props)
        _GraphEncoder(self, graph, target).run(captures)
        return str(target.name)


class _GraphEncoder:
    """Writes one graph. Values are found by name, as ONNX's scoping does."""

    def __init__(self, parent: _Encoder, graph: ir.Graph, target: Any) -> None:
        self.parent, self.graph, self.target = parent, graph, target
        self.sources: dict[str, _Source] = {}
        self.taken: set[str] = set()

    def run(self, captures: list[tuple[str, int, Any]]) -> None:
        inputs = [v for v in self.graph.inputs if v.name not in self.graph.initializers]
        # Names that users see (inputs, nodes) are kept; constants give way.
        data_names = [self._claim(value.name or "input") for value in inputs]
        nodes = [(node, self._claim(node.name or node.op_type)) for node in self.graph]
        for index, (value, name) in enumerate(zip(inputs, data_names, strict=True)):
            self._data(name, value.name or "", index, describe(value))
        for index, (value_name, slot, desc) in enumerate(captures, len(inputs)):
            op = self._data(self._claim(value_name), value_name, index, desc)
            put(op.attr, own.CAPTURE, slot)
        for value in self.graph.initializers.values():
            self._const(value)
        for node, name in nodes:
            for index, value in enumerate(node.outputs):
                if value.name:
                    self.sources[value.name] = _Source(f"{name}:{index}", describe(value))
        for node, name in nodes:
            self._node(node, name)
        self._net_output()

    def _claim(self, name: str) -> str:
        name = unique(name, self.taken)
        self.taken.add(name)
        return name

    def _op(self, name: str, op_type: str) -> Any:
        op = self.target.op.add()
        op.name, op.type, op.id = name, op_type, len(self.target.op) - 1
        return op

    def _data(self, name: str, value_name: str, index: int, desc: Any) -> Any:
        op = self._op(name, "Data")
        put(op.attr, "index", index)
        op.input.append("")
        op.is_input_const.append(False)
        op.input_desc.add().CopyFrom(desc)
        op.output_desc.add().CopyFrom(desc)
        self.target.input.append(f"{name}:0")
        self._named(op, value_name, desc)
        return op

    def _const(self, value: ir.Value) -> None:
        name = value.name or ""
        if value.const_value is None:
            raise unsupported(f"initializer '{name}'", "an initializer without data")
        op = self._op(self._claim(name), "Const")
        encode_tensor(op.attr["value"].t, value.const_value, self.parent.weights)
        desc = op.output_desc.add()
        desc.CopyFrom(op.attr["value"].t.desc)
        for key in (own.DOC, *(k for k in desc.attr if k.startswith(own.META))):
            if key in desc.attr:
                del desc.attr[key]  # those of the tensor; the value has its own
        put_value_notes(desc, value)
        if value in self.graph.inputs:
            put(op.attr, own.INPUT, list(self.graph.inputs).index(value))
        self._named(op, name, desc, constant=True)

    def _named(self, op: Any, value_name: str, desc: Any, *, constant: bool = False) -> None:
        """Register the only output of an op that is not a node."""
        if value_name != op.name:
            put_list(op.attr, own.OUTPUTS, "s", [value_name])
        self.sources[value_name] = _Source(f"{op.name}:0", desc, constant)

    def _node(self, node: ir.Node, name: str) -> None:
        if node.device_configurations:
            raise unsupported(f"node '{name}'", "placement of nodes on several devices")
        op = self._op(name, node.op_type)
        if node.op_type in RESERVED_TYPES:
            op.type = f"{node.domain or 'onnx'}.{node.op_type}"
            put(op.attr, own.OP_TYPE, node.op_type)
        if node.name != name:
            put(op.attr, own.NAME, node.name or "")
        for key, text in ((own.DOMAIN, node.domain), (own.OVERLOAD, node.overload)):
            if text:
                put(op.attr, key, text)
        own.put_notes(op.attr, node.doc_string, node.metadata_props)
        encode_attributes(op, node, self.parent.weights)
        for value in node.inputs:
            self._connect(op, None if value is None else value.name)
        self._nested(op, node)
        put_list(op.attr, own.OUTPUTS, "s", [value.name or "" for value in node.outputs])
        for value in node.outputs:
            op.output_desc.add().CopyFrom(self.sources[value.name].desc if value.name else absent())

    def _nested(self, op: Any, node: ir.Node) -> None:
        """Append the graphs inside a node, and what they capture as further inputs."""
        inner = list(subgraphs(node))
        captured = list(dict.fromkeys(n for _, graph in inner for n in free_names(graph)))
        first = len(op.input)
        for value_name in captured:
            self._connect(op, value_name)
        if captured:
            put(op.attr, own.CAPTURES, len(captured))
        slots = {
            value_name: (value_name, slot, _without_place(op.input_desc[slot]))
            for slot, value_name in enumerate(captured, first)
        }
        names = []
        for attribute in node.attributes.values():
            if attribute.type not in (ir.AttributeType.GRAPH, ir.AttributeType.GRAPHS):
                continue
            is_list = attribute.type == ir.AttributeType.GRAPHS
            for graph in attribute.as_graphs() if is_list else (attribute.as_graph(),):
                names.append(f"{attribute.name}[]" if is_list else attribute.name)
                used = [slots[n] for n in free_names(graph)]
                inner_name = f"{self.target.name}/{op.name}/{attribute.name}"
                op.subgraph_name.append(self.parent.graph(graph, inner_name, used))
        if names:
            put_list(op.attr, own.GRAPHS, "s", names)

    def _connect(self, op: Any, value_name: str | None) -> None:
        """Append one input: edge, descriptor, and for constants where the data is."""
        if not value_name:
            op.input.append("")
            op.is_input_const.append(False)
            op.input_desc.add().CopyFrom(absent())
            return
        source = self.sources.get(value_name)
        if source is None:
            raise ModelError(
                "OM021",
                f"'{value_name}' is read but produced by nothing",
                where=f"graph '{self.target.name}', node '{op.name}'",
                fix="the model is broken; check it with cannc.check",
            )
        op.input.append(source.edge)
        op.is_input_const.append(source.constant)
        op.input_desc.add().CopyFrom(source.desc)

    def _net_output(self) -> None:
        op = self._op(self._claim(OUTPUT_OP), "NetOutput")
        for value in self.graph.outputs:
            self._connect(op, value.name)
            node, _, index = op.input[-1].rpartition(":")
            op.src_name.append(node)
            op.src_index.append(int(index or 0))


def _without_place(desc: Any) -> Any:
    """Return a copy of a descriptor that does not say where a constant's data is."""
    copy = TensorDescriptor()
    copy.CopyFrom(desc)
    copy.data_offset = copy.weight_size = 0
    return copy


def free_names(graph: ir.Graph) -> list[str]:
    """Return the names that a graph reads from enclosing graphs, in order of first use."""
    defined = {value.name for value in graph.inputs} | set(graph.initializers)
    defined |= {value.name for node in graph for value in node.outputs}
    read: dict[str, None] = {}
    for node in graph:
        read.update((value.name, None) for value in node.inputs if value is not None and value.name)
        for _, inner in subgraphs(node):
            read.update(dict.fromkeys(free_names(inner)))
    read.update((value.name, None) for value in graph.outputs if value.name)
    return [name for name in read if name not in defined]
