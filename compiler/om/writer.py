"""Write a host artifact: an OM container with the ONNX graph, marked as holding no device code.

What may be filled in and what may not: om-format.md section 13.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

import onnx_ir as ir

from cannc.compiler.core.errors import ModelError, UsageError
from cannc.compiler.core.files import atomic_write, check_writable
from cannc.compiler.core.graphs import all_graphs
from cannc.compiler.core.tensors import source_of
from cannc.compiler.om import own
from cannc.compiler.om.attributes import Scalar, put, put_list
from cannc.compiler.om.encode import encode_model
from cannc.compiler.om.gear_split import split
from cannc.compiler.om.gears import GearPlan
from cannc.compiler.om.header import HEADER_BYTES, Header
from cannc.compiler.om.interface import describe_interface
from cannc.compiler.om.memory import OpMemory
from cannc.compiler.om.partitions import PartitionType, pack_table, table_bytes
from cannc.compiler.om.ranges import Ranges, put_ranges
from cannc.compiler.om.selfcheck import check_file
from cannc.compiler.om.weights import WeightWriter

# The loader compares these with the running system and refuses the file early, with this text in
# its message, instead of failing late and obscurely on a model without tasks.
HOST_SYSTEM = "cannc-host-only-no-device-code"
HOST_MARK = b"cannc host-only artifact"
# The format generation that current ATC writes; a constant of the format, not a claim of origin.
PLATFORM_VERSION = "1.11.0.0"
MODEL_DEF_LIMIT_BYTES = 2**31 - 1


def write_om(
    model: ir.Model,
    out: Path,
    *,
    name: str,
    attributes: Mapping[str, str | int | bytes],
    memory: Mapping[str, OpMemory] | None = None,
    gears: GearPlan | None = None,
    ranges: Mapping[str, Ranges] | None = None,
) -> None:
    """Write `out`, whole or not at all, after checking it by the rules of its readers.

    The bytes depend on the arguments alone.

    Args:
        model: The model: functions, nested graphs and metadata included; not changed. Weights are
            streamed, equal ones are stored once.
        out: Path of the .om file.
        name: Model name in the header (at most 31 bytes are kept) and in the graph.
        attributes: Further model attributes, e.g. the target.
        memory: Node of the main graph, by name -> where its results lie in the arena of the plan.
        gears: Sizes that the artifact is for, one subgraph each; `to_model` gives back one model.
        ranges: Input name -> least and most size per dimension.

    Raises:
        ModelError: ``OM020`` to ``OM029``: the model holds what the container cannot express.
        UsageError: the path cannot be written, or an attribute name is taken.
    """
    for source in {tensor.path for tensor in _mapped(model)}:
        check_writable(out, Path(source))
    with atomic_write(out) as stream:
        content = _Content(model, name, attributes, memory or {}, gears, ranges or {})
        _write(stream, content)
        stream.flush()
        check_file(Path(stream.name))


@dataclass(frozen=True)
class _Content:
    """The arguments of `write_om` that decide the bytes."""

    model: ir.Model
    name: str
    attributes: Mapping[str, Scalar]
    memory: Mapping[str, OpMemory]
    gears: GearPlan | None
    ranges: Mapping[str, Ranges]


def _write(stream: IO[bytes], content: _Content) -> None:
    # The weights come first: their places are known once they are written, and MODEL_DEF, which
    # names the places, follows. Readers look partitions up by type.
    weights = WeightWriter(stream, HEADER_BYTES + table_bytes(3))
    model, gears = content.model, content.gears
    definition = encode_model(model, content.name, weights, content.memory)
    if not definition.graph[0].op[-1].input:
        raise ModelError("OM025", "the model has no output", where=f"graph '{model.graph.name}'")
    if gears is not None:
        split(definition, gears, weights)
    put_ranges(definition, content.ranges)
    weight_bytes = weights.finish() if weights.used else 0
    _put_model_attributes(definition, model, weight_bytes, content.attributes)
    parts = {
        PartitionType.MODEL_INOUT_INFO: describe_interface(model, definition, gears).pack(),
        PartitionType.MODEL_DEF: _serialized(definition),
    }
    table = [(kind, len(data)) for kind, data in parts.items()]
    if weight_bytes:
        table.insert(0, (PartitionType.WEIGHTS_DATA, weight_bytes))
    start = HEADER_BYTES + table_bytes(len(table))
    header = Header(
        model_length=start - HEADER_BYTES + sum(size for _, size in table),
        name=content.name,
        user_info=HOST_MARK,
        platform_version=PLATFORM_VERSION,
        checks_host=1,
    )
    stream.seek(0)
    stream.write(header.pack() + pack_table(table))
    stream.seek(start + weight_bytes)
    for data in parts.values():
        stream.write(data)
    stream.truncate()


def _serialized(definition: Any) -> bytes:
    size = definition.ByteSize()
    if size > MODEL_DEF_LIMIT_BYTES:
        raise ModelError(
            "OM023",
            f"the graph without its weights takes {size / 1e9:.1f} GB, readers stop at 2 GB",
            fix="split the model",
        )
    data: bytes = definition.SerializeToString(deterministic=True)
    return data


def _put_model_attributes(
    definition: Any, model: ir.Model, weight_bytes: int, attributes: Mapping[str, Scalar]
) -> None:
    attrs = definition.attr
    outputs = next(op for op in definition.graph[0].op if op.type == "NetOutput")
    put(attrs, own.ARTIFACT_KIND, own.HOST_ONLY)
    put(attrs, "host_env_os", HOST_SYSTEM)
    put(attrs, "host_env_cpu", HOST_SYSTEM)
    put(attrs, "memory_size", 0)
    put(attrs, "weight_size", weight_bytes)
    put_list(attrs, "om_info_list", "i", [weight_bytes, 0, 0, 0, 0])
    edges = zip(outputs.src_name, outputs.src_index, model.graph.outputs, strict=True)
    names = [f"{node}:{index}:{value.name}" for node, index, value in edges]
    put_list(attrs, "attr_model_out_nodes_name", "s", names)
    for key, value in attributes.items():
        if key in attrs:
            raise UsageError(
                "OM024", f"model attribute '{key}' is set by the container itself", where="write_om"
            )
        put(attrs, key, value)


def _mapped(model: ir.Model) -> Iterator[ir.ExternalTensor]:
    """Yield the tensors in files that the model's weights are, or are computed from."""
    for _, graph in all_graphs(model.graph):
        tensors = [value.const_value for value in graph.initializers.values()]
        tensors += [
            attribute.as_tensor()
            for node in graph
            for attribute in node.attributes.values()
            if attribute.type == ir.AttributeType.TENSOR and not attribute.is_ref()
        ]
        for tensor in tensors:
            source = None if tensor is None else source_of(tensor)
            if isinstance(source, ir.ExternalTensor):
                yield source
