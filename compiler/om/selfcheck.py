"""A finished host artifact, checked by the rules of its readers before it gets its name.

GE's loader is strict about edges and descriptors and silent about much else; Netron is strict about
types. Both sets of rules were measured (om-format.md sections 11 and 14, om-loader-run.md).
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from cannc.compiler.core.errors import CanncError
from cannc.compiler.om.attributes import to_dict
from cannc.compiler.om.dtypes import FROM_GRAPH, packed_bytes
from cannc.compiler.om.gear_merge import gear_faults
from cannc.compiler.om.inout_info import loader_takes
from cannc.compiler.om.memory import memory_faults
from cannc.compiler.om.partitions import PartitionType
from cannc.compiler.om.reader import OmFile
from cannc.compiler.om.weights import ALIGNMENT_BYTES, FIRST_OFFSET

# Kinds that Netron cannot show, or that GE refuses.
_REFUSED_KINDS = frozenset({"td", "expression", "list_list_float"})
_MAX_NETRON_DTYPE = 31
_DEVICE_PARTS = (
    PartitionType.TASK_INFO,
    PartitionType.TBE_KERNELS,
    PartitionType.CUST_AICPU_KERNELS,
    PartitionType.SO_BINS,
    PartitionType.CUSTOM_OPS,
)
# Statements that only a compiler for the device can make (om-format.md section 13).
_DEVICE_ATTRS = ("atc_version", "opp_version", "atc_cmdline", "soc_version", "tasks")


def check_file(path: Path) -> None:
    """Check a host artifact.

    Raises:
        CanncError: ``OM030`` a rule is broken; at most ten places are listed.
        ModelError: the file cannot even be read.
    """
    file = OmFile.open(path)
    faults = [*_container_faults(file), *_model_faults(file), *_interface_faults(file)]
    faults += gear_faults(file.definition)
    names = {graph.name for graph in file.definition.graph}
    for graph in file.definition.graph:
        faults += [f"graph '{graph.name}': {fault}" for fault in _graph_faults(graph, file)]
        for op in graph.op:
            faults += [f"no graph '{name}'" for name in op.subgraph_name if name not in names]
    if faults:
        more = f"; and {len(faults) - 10} more" if len(faults) > 10 else ""
        raise CanncError(
            "OM030",
            "the artifact would not be readable everywhere and was not written",
            why="; ".join(faults[:10]) + more,
            fix="check the model with 'cannc check'; if it is sound, report this as a bug",
        )


def _container_faults(file: OmFile) -> Iterator[str]:
    kinds = [part.type for part in file.partitions]
    if len(kinds) < 2:
        yield "a table with one partition opens empty in Netron"
    if len(set(kinds)) != len(kinds):
        yield f"partition types {kinds} repeat"
    yield from (f"{kind.name} in a host artifact" for kind in _DEVICE_PARTS if kind in kinds)
    last = file.partitions[-1]
    if last.offset + last.size != file.path.stat().st_size:
        yield "bytes after the last partition"
    if file.header.checks_host != 1:
        yield "the header does not ask loaders to refuse it early"


def _model_faults(file: OmFile) -> Iterator[str]:
    attrs = to_dict(file.definition.attr)
    yield from (
        f"model attribute {name} claims a device" for name in _DEVICE_ATTRS if name in attrs
    )
    if not (file.is_host and attrs.get("host_env_os") and attrs.get("host_env_cpu")):
        yield "the marks of a host artifact are missing"
    if attrs.get("weight_size") != file.weight_region.size:
        yield f"weight_size {attrs.get('weight_size')} is not {file.weight_region.size}"
    yield from _attribute_faults("model", file.definition.attr)
    yield from memory_faults(file.definition)
    names = [graph.name for graph in file.definition.graph]
    if len(set(names)) != len(names):
        yield "two graphs have one name"


def _interface_faults(file: OmFile) -> Iterator[str]:
    info, root = file.interface, file.definition.graph[0]
    if info is None:
        yield "MODEL_INOUT_INFO is missing"
        return
    counts = len(info.inputs), len(info.outputs)
    data = sum(op.type == "Data" for op in root.op)
    outputs = sum(len(op.input) for op in root.op if op.type == "NetOutput")
    if counts != (data, outputs):
        yield f"MODEL_INOUT_INFO lists {counts} inputs and outputs, the graph has {data, outputs}"
    for strings in (info.output_shapes, info.designated_order):
        if not loader_takes(strings):
            yield f"the loader refuses strings as short as {strings}"


def _graph_faults(graph: Any, file: OmFile) -> Iterator[str]:
    before: dict[str, Any] = {}
    for op in graph.op:
        yield from _attribute_faults(op.name, op.attr)
        for desc in (*op.input_desc, *op.output_desc):
            if desc.dtype > _MAX_NETRON_DTYPE:
                yield f"'{op.name}' has data type {desc.dtype}, which Netron cannot show"
        yield from _edge_faults(op, before)
        if op.type == "Const":
            yield from _constant_faults(op, file)
        if op.input_i or op.output_i:
            yield f"'{op.name}' has memory offsets, but memory_size is 0"
        if op.name in before:
            yield f"two ops are named '{op.name}'"
        before[op.name] = op
    for edge in graph.input:
        if edge.rpartition(":")[0] not in before:
            yield f"graph input '{edge}' does not exist"


def _edge_faults(op: Any, before: dict[str, Any]) -> Iterator[str]:
    if len(op.input_desc) != len(op.input) or len(op.is_input_const) != len(op.input):
        yield f"'{op.name}' does not describe each of its inputs"
        return
    if op.type == "NetOutput" and len(op.src_name) < len(op.input):
        yield f"'{op.name}' does not name its sources"
    for slot, edge in enumerate(op.input):
        if not edge:
            continue
        name, _, index = edge.rpartition(":")
        source = before.get(name)
        if source is None:
            yield f"'{op.name}' reads '{edge}', which nothing before it produces"
        elif not 0 <= int(index) < len(source.output_desc):
            yield f"'{op.name}' reads '{edge}', an output that '{name}' lacks"
        else:
            yield from _agreement_faults(op, slot, source, source.output_desc[int(index)])


def _agreement_faults(op: Any, slot: int, source: Any, made: Any) -> Iterator[str]:
    """Producer and consumer must describe a value alike, and constants tell where they are."""
    read, where = op.input_desc[slot], f"'{op.name}' input {slot}"
    dims, made_dims = list(read.shape.dim), list(made.shape.dim)
    if read.dtype != made.dtype:
        yield f"{where}: data type {read.dtype}, produced as {made.dtype}"
    if dims != made_dims and math.prod(dims) != math.prod(made_dims):
        yield f"{where}: shape {dims}, produced as {made_dims}"
    if op.is_input_const[slot] != (source.type == "Const"):
        yield f"{where}: is_input_const is wrong"
    if source.type == "Const" and read.data_offset != source.attr["value"].t.desc.data_offset:
        yield f"{where}: the constant's place is not repeated"


def _constant_faults(op: Any, file: OmFile) -> Iterator[str]:
    if "value" not in op.attr or len(op.output_desc) != 1:
        yield f"Const '{op.name}' lacks its value or its description"
        return
    desc = op.attr["value"].t.desc
    if op.attr["value"].t.data:
        return  # strings, which have no place
    offset, size, region = desc.data_offset, desc.weight_size, file.weight_region.size
    if offset < FIRST_OFFSET or offset % ALIGNMENT_BYTES or offset + size > region:
        yield f"Const '{op.name}' lies at {offset} to {offset + size} of {region} bytes"
    dtype = FROM_GRAPH.get(desc.dtype)
    if dtype is None or size != packed_bytes(dtype, math.prod(desc.shape.dim)):
        yield f"Const '{op.name}' has {size} bytes for shape {list(desc.shape.dim)}"


def _attribute_faults(owner: str, attrs: Any) -> Iterator[str]:
    for name, attr in attrs.items():
        kind = attr.WhichOneof("value")
        if kind is None or kind in _REFUSED_KINDS:
            yield f"'{owner}': attribute '{name}' has kind {kind}, which readers drop or refuse"
        elif kind == "list" and not attr.list.val_type:
            yield f"'{owner}': list attribute '{name}' without val_type, which GE drops"
