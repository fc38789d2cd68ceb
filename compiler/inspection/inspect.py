"""Look into a file: which format it is, and all that can be said about it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import onnx_ir as ir

from cannc.compiler.core.errors import CanncError, ModelError
from cannc.compiler.core.graphs import name_nodes
from cannc.compiler.core.onnx_io import not_a_model, read_proto
from cannc.compiler.core.soundness import check_sound
from cannc.compiler.inspection import onnx_facts, own_facts
from cannc.compiler.inspection.container import (
    Reading,
    header_facts,
    model_facts,
    partition_facts,
)
from cannc.compiler.inspection.execution import decide
from cannc.compiler.inspection.facts import (
    SCHEMA_VERSION,
    ContainerFacts,
    Inspection,
    ModelFacts,
    Unread,
)
from cannc.compiler.inspection.package import read_package
from cannc.compiler.inspection.texts import no_text
from cannc.compiler.om.faults import damaged
from cannc.compiler.om.header import BUNDLE, FLOW, HEADER_BYTES, MAGIC, ZIP_MAGIC, Header
from cannc.compiler.om.partitions import PartitionType
from cannc.compiler.om.reader import OmFile

OM_SUFFIXES = (".om", ".om2")
TOP_WEIGHTS = 20
# What onnx-ir raises on a protobuf that makes no model.
_BROKEN = (ValueError, TypeError, KeyError, RuntimeError, NotImplementedError, AttributeError)


def inspect_file(path: Path, *, top: int = TOP_WEIGHTS, with_graph: bool = False) -> Inspection:
    """Return what is in an .om of any generation, an om2 package or an .onnx file.

    Weights are not read, so a file of any size opens fast.

    Args:
        path: The file; what it is is told by its first bytes, not by its name.
        top: How many of the largest weights to list; 0 lists all.
        with_graph: List ops and edges.

    Raises:
        ModelError: it is damaged; ``OM`` codes for .om and om2, ``ONNX`` codes for .onnx.
        UsageError: no such file, or it cannot be read.
    """
    reading = Reading(top, with_graph)
    start = first_bytes(path)
    if start.startswith(ZIP_MAGIC):
        found = _of_package(path, reading)
    elif start.startswith(MAGIC) or path.suffix.lower() in OM_SUFFIXES:
        found = _of_om(path, reading)
    else:
        found = _of_onnx(path, reading)
    return replace(found, unread=tuple(reading.unread))


def first_bytes(path: Path) -> bytes:
    """Return the first bytes of a file, empty when there is no such file: readers say so."""
    if not path.is_file():
        return b""
    try:
        with path.open("rb") as stream:
            return stream.read(HEADER_BYTES)
    except OSError:
        return b""  # the reader that is chosen reports it


def _of_package(path: Path, reading: Reading) -> Inspection:
    return Inspection(
        SCHEMA_VERSION,
        path.name,
        path.stat().st_size,
        "om2",
        "unknown",
        ("an om2 package: what is in it is shown, not interpreted",),
        package=read_package(path, reading),
    )


def _of_om(path: Path, reading: Reading) -> Inspection:
    try:
        file = OmFile.open(path)
    except ModelError as error:
        header = _encrypted_header(path)
        if header is None:
            raise
        # The table of an encrypted file may be as unreadable as the rest.
        reading.unread.append(Unread("partition table", error.why, error.code))
        return _om(path.name, path.stat().st_size, header, (), is_host=False)
    return _of_om_file(file, path.name, file.path.stat().st_size, reading)


def _encrypted_header(path: Path) -> Header | None:
    start = first_bytes(path)
    if len(start) < HEADER_BYTES or not start.startswith(MAGIC):
        return None
    header = Header.parse(start, path)
    return header if header.encrypted else None


def _of_om_file(file: OmFile, name: str, size: int, reading: Reading) -> Inspection:
    if file.header.encrypted:
        parts = tuple(_opaque(model, reading) for model in file.models)
        return _om(name, size, file.header, parts, is_host=False)
    if _has_no_definition(file):
        models: tuple[ModelFacts, ...] = (_opaque(file, reading),)
        is_host = False
    else:
        models = tuple(model_facts(model, reading) for model in file.models)
        is_host = file.is_host
    found = _om(name, size, file.header, models, is_host=is_host)
    if is_host:
        found = _with_onnx(found, file, reading)
    return replace(found, members=_members(file, reading))


def _has_no_definition(file: OmFile) -> bool:
    holder = file.header.model_type in (BUNDLE, FLOW)
    return holder and file.find(PartitionType.MODEL_DEF) is None


def _opaque(file: OmFile, reading: Reading) -> ModelFacts:
    """Return a model of which only the table can be read."""
    if file.header.encrypted:
        reading.unread.extend(Unread(part.name, "encrypted") for part in file.partitions)
    return ModelFacts(file.header.name, container=ContainerFacts(partition_facts(file)))


def _om(
    name: str, size: int, header: Header, models: tuple[ModelFacts, ...], *, is_host: bool
) -> Inspection:
    kind, reasons = decide(header, models, is_host=is_host)
    facts = header_facts(header)
    return Inspection(SCHEMA_VERSION, name, size, "om", kind, reasons, facts, models)


def _with_onnx(found: Inspection, file: OmFile, reading: Reading) -> Inspection:
    """Describe the graph of a host artifact by the ONNX model that it is."""
    model = file.to_model()
    if garbled := no_text(model):
        why = f"the name {garbled} is no text"
        raise damaged("OM007", "the graph in the file is broken", file.path, why)
    name_nodes(model)
    facts = onnx_facts.model_facts(model, reading)
    container, gears = found.models[0].container, found.models[0].gears
    ranges = file.ranges
    inputs = tuple(replace(t, ranges=ranges.get(t.name, ())) for t in facts.inputs)
    name = file.definition.name
    return replace(
        found,
        models=(replace(facts, name=name, container=container, gears=gears, inputs=inputs),),
        onnx=onnx_facts.onnx_facts(model, None),
        cannc=own_facts.own_facts(model, file.model_attributes, reading),
        memory_plan=own_facts.memory_plan(file.model_attributes, reading),
    )


def _members(file: OmFile, reading: Reading) -> tuple[Inspection, ...]:
    """Describe the files inside a bundle or flow model, one level deep."""
    if file.header.model_type not in (BUNDLE, FLOW):
        return ()
    known = reading.attempt("members", lambda: file.bundled, ())
    starts = {member.base for member in known}
    for part in file.partitions:
        if part.type in (PartitionType.FLOW_MODEL, PartitionType.FLOW_SUBMODEL) and (
            part.offset not in starts
        ):
            why = f"{part.size} bytes in a format that is not known"
            reading.unread.append(Unread(part.name, why))
    found = []
    for index, member in enumerate(known):
        label = f"{file.header.name or 'member'}[{index}]"
        if member.header.model_type in (BUNDLE, FLOW):
            reading.unread.append(Unread(label, "a container inside a container"))
            continue
        size = HEADER_BYTES + member.header.body_bytes
        found.append(_of_om_file(member, label, size, reading))
    return tuple(found)


def _of_onnx(path: Path, reading: Reading) -> Inspection:
    model = read_loosely(path, reading)
    return Inspection(
        SCHEMA_VERSION,
        path.name,
        path.stat().st_size,
        "onnx",
        "onnx",
        models=(onnx_facts.model_facts(model, reading),),
        onnx=onnx_facts.onnx_facts(model, path.parent),
        cannc=own_facts.own_facts(model, {}, reading),
    )


def read_loosely(path: Path, reading: Reading) -> ir.Model:
    """Read an .onnx file without looking at its external data; faults of the graph are noted.

    Raises:
        ModelError: ``ONNX001`` not an ONNX model.
    """
    proto = read_proto(path)
    try:
        check_sound(proto, path.name)
    except CanncError as error:
        reading.unread.append(Unread("graph", f"{error.what}: {error.why}", error.code))
    try:
        model = ir.from_proto(proto)
    except _BROKEN as error:
        why = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise not_a_model(path, why) from error
    if garbled := no_text(model):
        raise not_a_model(path, f"the name {garbled} is no text")
    name_nodes(model)
    return model
