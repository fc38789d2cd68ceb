"""One artifact laid out for comparison: named facts, ops, and constants with their digests."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import onnx_ir as ir
from google.protobuf.message import Message

from cannc.compiler.core.graphs import all_graphs, name_nodes, walk
from cannc.compiler.core.onnx_io import read_model
from cannc.compiler.inspection import graphs
from cannc.compiler.inspection.facts import Inspection, ModelFacts, TensorFacts
from cannc.compiler.inspection.inspect import inspect_file
from cannc.compiler.inspection.names import common_dtype, onnx_dtype, tensor_text
from cannc.compiler.om.attributes import get
from cannc.compiler.om.partitions import PartitionType
from cannc.compiler.om.reader import OmFile
from cannc.compiler.om.weights import weights_of

_CHUNK_BYTES = 2**22
# Compared part by part and not as bytes.
_DECODED = (
    PartitionType.MODEL_DEF,
    PartitionType.WEIGHTS_DATA,
    PartitionType.MODEL_INOUT_INFO,
    PartitionType.BUNDLE_MODEL_INFO,
)
_GRAPH_TYPES = (ir.AttributeType.GRAPH, ir.AttributeType.GRAPHS)


@dataclass(frozen=True)
class OpState:
    """One op: everything that can change about it."""

    type: str
    attributes: dict[str, str]
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]


@dataclass(frozen=True)
class WeightState:
    """One constant; `digest` reads its bytes when it is called."""

    form: str
    size_bytes: int
    digest: Callable[[], str]


@dataclass
class Snapshot:
    """One artifact.

    Attributes:
        format: ``om``, ``om2`` or ``onnx``.
        facts: Section -> item -> text; sections that only one of two formats has are not compared.
        ops: Graph and name -> op, for artifacts that have a graph.
        weights: Graph and name -> constant.
    """

    format: str
    facts: dict[str, dict[str, str]] = field(default_factory=dict)
    ops: dict[str, OpState] = field(default_factory=dict)
    weights: dict[str, WeightState] = field(default_factory=dict)


def take(path: Path) -> Snapshot:
    """Lay out a file.

    Raises:
        ModelError, UsageError: as `inspect_file`; ``ONNX002`` for weights that are not there.
    """
    found = inspect_file(path, top=0)
    snapshot = Snapshot(found.format, _facts(found))
    if found.format == "onnx":
        model = read_model(path)
        name_nodes(model)
        _add_model(snapshot, model)
    elif found.format == "om" and found.kind != "encrypted":
        _add_file(snapshot, OmFile.open(path), "")
    return snapshot


def _facts(found: Inspection) -> dict[str, dict[str, str]]:
    """Flatten what the inspection says beside graph and weights."""
    facts: dict[str, dict[str, str]] = {"kind": {"kind": found.kind}}
    if found.header is not None:
        facts["header"] = {key: str(value) for key, value in vars(found.header).items()}
    for index, model in enumerate(found.models):
        prefix = f"model {index}: " if index else ""
        _interface(facts, model, prefix)
        _container(facts, model, prefix)
    if found.onnx is not None:
        onnx = found.onnx
        facts["opsets"] = {key: str(value) for key, value in onnx.opsets.items()}
        names = ("ir_version", "producer", "domain", "model_version", "doc")
        facts["onnx"] = {name: str(getattr(onnx, name)) for name in names}
        facts["functions"] = {f"{f.domain}::{f.name}": f"{f.nodes} nodes" for f in onnx.functions}
    if found.memory_plan is not None:
        facts["memory plan"] = _flat(asdict(found.memory_plan))
    if found.package is not None:
        facts["package"] = {name: f"{size} bytes" for name, size in found.package.files.items()}
        facts["manifest"] = _flat(found.package.manifest)
    for index, member in enumerate(found.members):
        for section, items in _facts(member).items():
            facts[f"member {index}: {section}"] = items
    return facts


def _interface(facts: dict[str, dict[str, str]], model: ModelFacts, prefix: str) -> None:
    sections: tuple[tuple[str, tuple[TensorFacts, ...]], ...] = (
        ("inputs", model.inputs),
        ("outputs", model.outputs),
    )
    for section, tensors in sections:
        items = facts.setdefault(section, {})
        for position, tensor in enumerate(tensors):
            text = f"#{position} {tensor_text(tensor.dtype, tensor.dims, tensor.layout)}"
            items[f"{prefix}{tensor.name}"] = text
    if model.gears is not None:
        rows = {f"{prefix}{i}": str(row) for i, row in enumerate(model.gears.rows)}
        facts.setdefault("gears", {}).update(rows)


def _container(facts: dict[str, dict[str, str]], model: ModelFacts, prefix: str) -> None:
    container = model.container
    if container is None:
        return
    sections: dict[str, Mapping[str, Any]] = {
        "partitions": {p.name: f"{p.size_bytes} bytes" for p in container.partitions},
        "compiler": container.compiler,
        "memory": container.memory,
        "resources": container.resources,
        "sizes": container.sizes,
        "attributes": container.attributes,
        "kernels": {k.name: f"{k.size_bytes} bytes" for k in container.kernels},
        "libraries": {k.name: f"{k.size_bytes} bytes" for k in container.libraries},
        "tasks": container.tasks.by_type if container.tasks else {},
    }
    for section, items in sections.items():
        texts = {f"{prefix}{key}": str(value) for key, value in items.items()}
        facts.setdefault(section, {}).update(texts)


def _flat(value: Any, prefix: str = "") -> dict[str, str]:
    """Return the leaves of a JSON value, named by their path."""
    if isinstance(value, dict):
        entries = [(str(key), item) for key, item in value.items()]
    elif isinstance(value, (list, tuple)):
        entries = [(str(index), item) for index, item in enumerate(value)]
    else:
        return {prefix or "value": str(value)}
    flat: dict[str, str] = {}
    for key, item in entries:
        flat.update(_flat(item, f"{prefix}.{key}" if prefix else key))
    return flat


def _add_file(snapshot: Snapshot, file: OmFile, prefix: str) -> None:
    """Add graphs, weights and opaque parts of an .om and of the files inside it."""
    contents = snapshot.facts.setdefault("contents", {})
    for index, model in enumerate(file.models):
        label = f"{prefix}model {index}: " if index else prefix
        for part in model.partitions:
            if part.type not in _DECODED:
                contents[f"{label}{part.name}"] = _digest_of(file.path, part.offset, part.size)
        if model.find(PartitionType.MODEL_DEF) is None:
            continue
        if model.is_host:
            exact = model.to_model()
            name_nodes(exact)
            _add_model(snapshot, exact)
        else:
            _add_definition(snapshot, model, label)
    for index, member in enumerate(file.bundled):
        _add_file(snapshot, member, f"{prefix}member {index}: ")


def _add_definition(snapshot: Snapshot, file: OmFile, prefix: str) -> None:
    definition = file.definition
    # The inspection gives data by its size only, which would hide a change.
    shown_attributes = snapshot.facts.setdefault("attributes", {})
    for name, value in file.model_attributes.items():
        if f"{prefix}{name}" in shown_attributes:
            shown_attributes[f"{prefix}{name}"] = _text(value)
    root = definition.graph[0].name if definition.graph else ""
    for source, graph in zip(definition.graph, graphs.of_definition(definition), strict=True):
        scope = prefix if graph.name == root else f"{prefix}{graph.name}/"
        for op, shown in zip(source.op, graph.ops, strict=True):
            if op.type != "Const":
                attributes = {n: _text(get(op.attr[n])) for n in sorted(op.attr)}
                attributes.update({"runs": ", ".join(shown.graphs)} if shown.graphs else {})
                state = OpState(shown.type, attributes, shown.inputs, shown.outputs)
                snapshot.ops[f"{scope}{op.name}"] = state
    region = file.weight_region
    inline = {
        (g.name, op.name): op.attr["value"].t.data
        for g in definition.graph
        for op in g.op
        if op.type == "Const" and "value" in op.attr
    }
    for weight in weights_of(definition):
        scope = prefix if weight.graph == root else f"{prefix}{weight.graph}/"
        form = tensor_text(common_dtype(weight.dtype), weight.dims, weight.layout)
        data = inline[weight.graph, weight.name]
        offset = region.offset + (weight.offset or 0)
        snapshot.weights[f"{scope}{weight.name}"] = WeightState(
            form, weight.size, _reader(region.path, offset, weight.size, data)
        )


def _reader(path: Path, offset: int, size: int, data: bytes) -> Callable[[], str]:
    if data:
        return lambda: hashlib.sha256(data).hexdigest()
    return lambda: _digest_of(path, offset, size)


def _digest_of(path: Path, offset: int, size: int) -> str:
    """Return the digest of a part of a file; what lies behind its end counts as missing."""
    state, left = hashlib.sha256(), size
    with path.open("rb") as stream:
        stream.seek(offset)
        while left > 0 and (chunk := stream.read(min(_CHUNK_BYTES, left))):
            state.update(chunk)
            left -= len(chunk)
    return state.hexdigest() if left <= 0 else f"{state.hexdigest()}, {left} bytes missing"


def _add_model(snapshot: Snapshot, model: ir.Model) -> None:
    for scoped in walk(model.graph):
        node = scoped.node
        attributes = {n: _attribute(a) for n, a in sorted(node.attributes.items())}
        snapshot.ops[f"{scoped.scope}{node.name}"] = OpState(
            graphs.node_type(node),
            attributes,
            tuple(graphs.value_source(value) for value in node.inputs),
            tuple(graphs.value_text(value) for value in node.outputs),
        )
    outputs = snapshot.facts.setdefault("graph outputs", {})
    for scope, graph in all_graphs(model.graph):
        outputs.update({f"{scope}{v.name}": graphs.value_source(v) for v in graph.outputs})
        for name, value in graph.initializers.items():
            if value.const_value is not None:
                snapshot.weights[f"{scope}{name}"] = _weight(value.const_value)
    functions = snapshot.facts.setdefault("functions", {})
    for function in model.functions.values():
        body = ir.to_proto(function).SerializeToString(deterministic=True)
        functions[f"{function.domain}::{function.name}"] = _short_digest(body)
    metadata = {key: _text(value) for key, value in model.metadata_props.items()}
    snapshot.facts["metadata"] = metadata


def _weight(tensor: ir.TensorProtocol) -> WeightState:
    dims, dtype = tuple(tensor.shape.numpy()), onnx_dtype(tensor.dtype)
    return WeightState(tensor_text(dtype, dims), _size(tensor), lambda: digest(tensor))


def _size(tensor: ir.TensorProtocol) -> int:
    return 0 if tensor.dtype == ir.DataType.STRING else tensor.nbytes


def digest(tensor: ir.TensorProtocol) -> str:
    """Return the digest of a tensor's bytes, read in chunks where they lie in a file."""
    sink = _Sink()
    if tensor.dtype == ir.DataType.STRING:
        sink.write(repr(tensor.numpy().tolist()).encode())
    elif isinstance(tensor, ir.ExternalTensor):
        tensor.tofile(sink)
    else:
        sink.write(tensor.tobytes())
    return sink.state.hexdigest()


class _Sink:
    """A file that only keeps the digest of what is written to it."""

    def __init__(self) -> None:
        self.state = hashlib.sha256()

    def write(self, data: bytes) -> None:
        self.state.update(data)


def _attribute(attribute: ir.Attr) -> str:
    """Return an attribute as text; graphs by their place, since their ops are compared."""
    if attribute.is_ref():
        return f"the function's {attribute.ref_attr_name}"
    if attribute.type in _GRAPH_TYPES:
        return "graph"
    value = attribute.value
    if isinstance(value, ir.TensorProtocol):
        return f"{_weight(value).form} {digest(value)[:12]}"
    return _text(value)


_LONG_TEXT = 120


def _text(value: Any) -> str:
    """Return a value as text; a long one by its start and digest."""
    if isinstance(value, Message):
        value = value.SerializeToString(deterministic=True)
    if isinstance(value, bytes):
        return f"{len(value)} bytes, {_short_digest(value)}"
    if isinstance(value, (list, tuple)):
        value = f"[{', '.join(_text(item) for item in value)}]"
    text = str(value)
    if len(text) <= _LONG_TEXT:
        return text
    return f"{text[:40]}... {len(text)} characters, {_short_digest(text.encode())}"


def _short_digest(data: bytes) -> str:
    return f"sha256 {hashlib.sha256(data).hexdigest()[:12]}"
