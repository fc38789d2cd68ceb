"""ModelDef of a host artifact -> ONNX model; the reverse of `encode`."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import onnx
import onnx_ir as ir
from google.protobuf.message import DecodeError

from cannc.compiler.om import own
from cannc.compiler.om.attributes import prefixed, typed
from cannc.compiler.om.descriptors import restore, restore_value_notes
from cannc.compiler.om.faults import damaged
from cannc.compiler.om.gear_merge import common_model, merge
from cannc.compiler.om.node_attributes import decode_attributes
from cannc.compiler.om.weights import WeightRegion

T = TypeVar("T")

# Models nest two or three levels deep; protobuf itself stops at 100.
MAX_NESTING = 100
# What onnx-ir and protobuf raise on contents that make no model.
_BROKEN = (
    ValueError,
    TypeError,
    KeyError,
    IndexError,
    RuntimeError,
    NotImplementedError,
    AssertionError,
    AttributeError,
    DecodeError,
)


def decode_model(definition: Any, region: WeightRegion, gear: int | None = None) -> ir.Model:
    """Return the model that `encode_model` stored.

    Args:
        definition: The ModelDef.
        region: Where its weights are; they stay in the file.
        gear: Read the graph of this gear; by default the one that all gears are copies of.

    Raises:
        ModelError: ``OM007`` the graph is broken, ``OM008`` a tensor is broken, ``OM011`` the
            gears hold different graphs.
    """

    def read() -> ir.Model:
        if gear is None:
            return _model(common_model(definition, region.path), region)
        return _model(merge(definition, gear), region)

    return guarded(read, region.path)


def guarded(read: Callable[[], T], path: Path) -> T:
    """Return what `read` gives; what it raises on a broken graph becomes an error about the file.

    Raises:
        ModelError: ``OM007``.
    """
    try:
        return read()
    except _BROKEN as error:
        why = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise damaged("OM007", "the graph in the file is broken", path, why) from error


def _model(definition: Any, region: WeightRegion) -> ir.Model:
    if not definition.graph:
        message = "there is no graph"
        raise ValueError(message)
    attrs = definition.attr
    doc, metadata = own.notes(attrs)
    producer = prefixed(attrs, own.PRODUCER)
    graph = _Decoder(definition, region).root()
    graph.opset_imports.update({k: int(v) for k, v in prefixed(attrs, own.OPSET).items()})
    functions = [
        ir.from_proto(onnx.FunctionProto.FromString(data))
        for data in typed(attrs, own.FUNCTIONS, "list:bt", [])
    ]
    return ir.Model(
        graph,
        ir_version=typed(attrs, own.IR_VERSION, "i", 10),
        producer_name=_text(producer.get("name")),
        producer_version=_text(producer.get("version")),
        domain=typed(attrs, own.MODEL_DOMAIN, "s", None),
        model_version=typed(attrs, own.MODEL_VERSION, "i", None),
        doc_string=doc,
        functions=functions,
        metadata_props=metadata,
    )


def _text(value: Any) -> str | None:
    return value if isinstance(value, str) else None


class _Decoder:
    """The graphs of one file; each nested graph has exactly one owner."""

    def __init__(self, definition: Any, region: WeightRegion) -> None:
        self.region = region
        self._root = definition.graph[0]
        self._nested = {graph.name: graph for graph in definition.graph[1:]}
        self._depth = 0

    def root(self) -> ir.Graph:
        return _GraphDecoder(self, self._root, []).run()

    def nested(self, name: str, outer: list[ir.Value | None]) -> ir.Graph:
        """Return the nested graph `name`; `outer` are the inputs of the op that owns it."""
        if name not in self._nested:
            message = f"graph '{name}' does not exist or is used twice"
            raise ValueError(message)
        if self._depth >= MAX_NESTING:
            message = f"graphs are nested more than {MAX_NESTING} levels deep"
            raise ValueError(message)
        self._depth += 1
        graph = _GraphDecoder(self, self._nested.pop(name), outer).run()
        self._depth -= 1
        return graph


class _GraphDecoder:
    """Reads one graph: first all values, then the nodes between them."""

    def __init__(self, parent: _Decoder, source: Any, outer: list[ir.Value | None]) -> None:
        self.parent, self.source, self.outer = parent, source, outer
        self.values: dict[str, ir.Value] = {}
        self.inputs: list[tuple[int, ir.Value]] = []
        self.defaults: list[tuple[int, ir.Value]] = []
        self.initializers: list[ir.Value] = []
        self.captured: set[ir.Value] = set()

    def run(self) -> ir.Graph:
        nodes, outputs = [], []
        names: set[str] = set()
        for op in self.source.op:
            if op.name in names:
                message = f"two ops are named '{op.name}'"
                raise ValueError(message)
            names.add(op.name)
            if op.type == "Data":
                self._data(op)
            elif op.type == "Const":
                self._const(op)
            elif op.type == "NetOutput":
                outputs = [self._output(edge) for edge in op.input]
            else:
                nodes.append(self._node(op))
        doc, metadata = own.notes(self.source.attr)
        inputs = [value for _, value in sorted(self.inputs, key=lambda entry: entry[0])]
        for position, value in sorted(self.defaults, key=lambda entry: entry[0]):
            inputs.insert(position, value)
        return ir.Graph(
            inputs,
            outputs,
            nodes=nodes,
            initializers=self.initializers,
            doc_string=doc,
            name=typed(self.source.attr, own.NAME, "s", self.source.name),
            metadata_props=metadata,
        )

    def _data(self, op: Any) -> None:
        slot = typed(op.attr, own.CAPTURE, "i", None)
        if slot is None:
            value = ir.Value(name=_names(op, 1)[0])
            restore(op.output_desc[0], value)
            self.inputs.append((typed(op.attr, "index", "i", 0), value))
        else:
            outer = self.outer[slot] if 0 <= slot < len(self.outer) else None
            if outer is None:
                message = f"op '{op.name}' stands for input {slot} of its owner, which has none"
                raise ValueError(message)
            value = outer
            self.captured.add(value)
        self.values[f"{op.name}:0"] = value

    def _const(self, op: Any) -> None:
        name = _names(op, 1)[0]
        tensor = self.parent.region.mapped(op.attr["value"].t, name)
        value = ir.Value(
            name=name,
            type=ir.TensorType(tensor.dtype),
            shape=ir.Shape(tensor.shape.numpy()),
            const_value=tensor,
        )
        restore_value_notes(op.output_desc[0], value)
        self.initializers.append(value)
        if own.INPUT in op.attr:
            self.defaults.append((typed(op.attr, own.INPUT, "i", 0), value))
        self.values[f"{op.name}:0"] = value

    def _node(self, op: Any) -> ir.Node:
        inputs = [self._value(edge, op.name) for edge in op.input]
        doc, metadata = own.notes(op.attr)
        attributes = decode_attributes(op, self.parent.region)
        attributes = sorted(attributes + self._graphs(op, inputs), key=lambda a: a.name)
        captures = typed(op.attr, own.CAPTURES, "i", 0)
        if not 0 <= captures <= len(inputs):
            message = f"op '{op.name}' claims {captures} captured values of {len(inputs)} inputs"
            raise ValueError(message)
        outputs = self._outputs(op)
        return ir.Node(
            typed(op.attr, own.DOMAIN, "s", ""),
            typed(op.attr, own.OP_TYPE, "s", op.type),
            inputs[: len(inputs) - captures],
            attributes,
            overload=typed(op.attr, own.OVERLOAD, "s", ""),
            outputs=outputs,
            name=typed(op.attr, own.NAME, "s", op.name),
            doc_string=doc,
            metadata_props=metadata,
        )

    def _outputs(self, op: Any) -> list[ir.Value]:
        outputs = []
        for index, name in enumerate(_names(op, len(op.output_desc))):
            value = ir.Value(name=name)
            if name:
                restore(op.output_desc[index], value)
                self.values[f"{op.name}:{index}"] = value
            outputs.append(value)
        return outputs

    def _graphs(self, op: Any, inputs: list[ir.Value | None]) -> list[ir.Attr]:
        owners = typed(op.attr, own.GRAPHS, "list:s", [])
        if len(owners) != len(op.subgraph_name):
            message = f"op '{op.name}' names {len(owners)} of {len(op.subgraph_name)} graphs"
            raise ValueError(message)
        single: dict[str, ir.Graph] = {}
        lists: dict[str, list[ir.Graph]] = {}
        for owner, name in zip(owners, op.subgraph_name, strict=True):
            graph = self.parent.nested(name, inputs)
            if owner.endswith("[]"):
                lists.setdefault(owner.removesuffix("[]"), []).append(graph)
            else:
                single[owner] = graph
        return [ir.AttrGraph(name, graph) for name, graph in single.items()] + [
            ir.AttrGraphs(name, graphs) for name, graphs in lists.items()
        ]

    def _output(self, edge: str) -> ir.Value:
        value = self._value(edge, "NetOutput")
        if value is None:
            message = f"graph '{self.source.name}' has an output without a source"
            raise ValueError(message)
        if value not in self.captured:
            return value
        # A value of an enclosing graph cannot be output here as itself: it belongs there.
        return ir.Value(name=value.name, type=value.type, shape=value.shape)

    def _value(self, edge: str, reader: str) -> ir.Value | None:
        if not edge:
            return None
        value = self.values.get(edge)
        if value is None:
            message = f"op '{reader}' reads '{edge}', which nothing before it produces"
            raise ValueError(message)
        return value


def _names(op: Any, count: int) -> list[str]:
    """Return the ONNX names of an op's outputs."""
    default = [op.name, *(f"{op.name}:{index}" for index in range(1, count))]
    names = typed(op.attr, own.OUTPUTS, "list:s", default)
    if len(names) != count or not all(isinstance(name, str) for name in names):
        message = f"op '{op.name}' has {count} outputs, but the names {names[:5]}"
        raise ValueError(message)
    return list(names)
