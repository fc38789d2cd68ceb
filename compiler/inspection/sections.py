"""An inspection as titled tables, for people; made from the same object as the JSON."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from cannc.compiler.inspection.diff import DiffReport
from cannc.compiler.inspection.facts import (
    BinaryFacts,
    CanncFacts,
    ContainerFacts,
    Inspection,
    ModelFacts,
    OnnxFacts,
    TensorFacts,
    WeightSummary,
)
from cannc.compiler.inspection.names import tensor_text
from cannc.compiler.memory.plan import MemoryPlan
from cannc.compiler.om.ranges import range_text

MOST_ROWS = 20
MOST_CHANGES = 50
_LONG_TEXT = 300


@dataclass(frozen=True)
class Section:
    """One table.

    Attributes:
        title: What it shows.
        columns: Column titles; empty for names and values.
        rows: Cells; numbers of bytes are `Bytes`.
    """

    title: str
    columns: tuple[str, ...]
    rows: tuple[tuple[object, ...], ...]


class Bytes(int):
    """A number of bytes, so that whoever prints it can choose the unit."""


def sections(found: Inspection) -> Iterator[Section]:
    """Yield the tables of one file, then those of the files inside it."""
    yield Section(f"{found.name}: {_what(found)}", (), tuple(_file_rows(found)))
    if found.package is not None:
        yield _pairs("Manifest", _flat(found.package.manifest))
        for name, described in found.package.models.items():
            yield _pairs(f"{name}: model_meta.json", _flat(described))
        yield _sized("Files", "file", found.package.files)
    many = len(found.models) > 1
    for index, model in enumerate(found.models):
        label = f"Model {index} {model.name}: " if many else ""
        yield from _model(model, label)
    if found.onnx is not None:
        yield from _onnx(found.onnx)
    if found.cannc is not None:
        yield from _cannc(found.cannc)
    if found.memory_plan is not None:
        yield from _memory_plan(found.memory_plan)
    if found.unread:
        rows = tuple((u.part, f"{u.why} [{u.code}]" if u.code else u.why) for u in found.unread)
        yield Section("Not read", ("part", "why"), rows)
    for member in found.members:
        yield from sections(member)


def diff_sections(report: DiffReport) -> Iterator[Section]:
    """Yield an overview, then one table per section that differs; the JSON has every row."""
    counts = tuple(report.summary.items())
    title = f"{report.before} -> {report.after}: {len(report.changes)} differences"
    yield Section(title, (), counts or (("nothing", "differs"),))
    marks = {"added": "+", "removed": "-", "changed": "~"}
    for section, count in report.summary.items():
        changes = [change for change in report.changes if change.section == section]
        shown = changes[:MOST_CHANGES]
        rows = tuple((marks[c.change], c.item, _cut(c.before), _cut(c.after)) for c in shown)
        if len(shown) < count:
            rows += (("", f"and {count - len(shown)} more (--json lists all)", "", ""),)
        yield Section(f"{section}: {count} differ", ("", "item", "before", "after"), rows)


def _cut(text: str) -> str:
    """Return a text with digests short enough to be read."""
    return re.sub(r"\b([0-9a-f]{12})[0-9a-f]{52}\b", r"sha256 \1", text)


def _what(found: Inspection) -> str:
    words = {
        "device": "compiled for a device",
        "host-only": "host artifact, no device code",
        "graph-only": "a graph without device code",
        "kirin": "for Kirin phone chips",
        "encrypted": "encrypted",
        "onnx": "ONNX model",
    }
    formats = {"om": "offline model", "om2": "om2 package", "onnx": "ONNX model"}
    soc = next((m.container.compiler.get("soc_version") for m in found.models if m.container), "")
    if found.kind == "device" and soc:
        return f"compiled for {soc}"
    return words.get(found.kind, formats[found.format])


def _file_rows(found: Inspection) -> Iterator[tuple[object, ...]]:
    yield "size", Bytes(found.size_bytes)
    for index, reason in enumerate(found.reasons):
        yield "because" if not index else "", reason
    header = found.header
    if header is None:
        return
    count = f", {header.model_count} models" if header.model_count > 1 else ""
    yield "header", f"version {header.version}, {header.table_bits}-bit table{count}"
    flags = ("dynamic", "encrypted", "checks_host", "online")
    marks = [name.replace("_", " ") for name in flags if getattr(header, name)]
    yield "model type", ", ".join([header.model_type, *marks])
    yield "name", header.name
    yield "format", f"{header.platform_version} ({header.platform})"


def _model(model: ModelFacts, label: str) -> Iterator[Section]:
    container = model.container
    if container is not None:
        yield from _container(container, label)
    for title, tensors in (("Inputs", model.inputs), ("Outputs", model.outputs)):
        if tensors:
            yield Section(f"{label}{title}", ("name", "type", "bytes"), _tensors(tensors))
    if model.gears is not None:
        rows = [(i, "x".join(map(str, row))) for i, row in enumerate(model.gears.rows)]
        order = f", in the order {', '.join(model.gears.order)}" if model.gears.order else ""
        yield Section(f"{label}Gears ({model.gears.kind}{order})", ("gear", "sizes"), tuple(rows))
    if model.graphs:
        yield _graph(model, label)
    if model.weights.count:
        yield from _weights(model.weights, label)
    if container is not None:
        yield from _code(container, label)


def _graph(model: ModelFacts, label: str) -> Section:
    rows: list[tuple[object, ...]] = []
    names = list(model.graphs.items())
    rows += [(name, f"{count} ops") for name, count in names[:MOST_ROWS]]
    if len(names) > MOST_ROWS:
        rows.append((f"and {len(names) - MOST_ROWS} more graphs", ""))
    rows.append(("operators", ", ".join(f"{kind} {n}" for kind, n in model.ops.items())))
    return Section(f"{label}Graph", (), tuple(rows))


def _tensors(tensors: Sequence[TensorFacts]) -> tuple[tuple[object, ...], ...]:
    return tuple(
        (
            t.name,
            tensor_text(t.dtype, t.dims, t.layout)
            + (f" of {range_text(t.ranges)}" if t.ranges else ""),
            Bytes(t.size_bytes) if t.size_bytes else "",
        )
        for t in tensors
    )


def _container(container: ContainerFacts, label: str) -> Iterator[Section]:
    parts = container.partitions
    rows = tuple((p.name, p.offset, p.size_bytes, Bytes(p.size_bytes)) for p in parts)
    yield Section(f"{label}Partitions", ("partition", "offset", "bytes", "size"), rows)
    if container.compiler:
        yield _pairs(f"{label}Compiler", container.compiler)
    memory: dict[str, object] = {name: Bytes(size) for name, size in container.memory.items()}
    memory.update(container.resources)
    for index, row in enumerate(container.memory_regions):
        memory[f"sub_memory_info {index}"] = ", ".join(map(str, row))
    if memory:
        yield _pairs(f"{label}Memory and streams", memory)
    if container.sizes:
        yield _sized(f"{label}Parts by size (om_info_list)", "part", container.sizes)
    if container.attributes:
        yield _pairs(f"{label}Attributes", container.attributes)


def _code(container: ContainerFacts, label: str) -> Iterator[Section]:
    tasks = container.tasks
    if tasks is not None:
        rows: list[tuple[object, ...]] = [(kind, n) for kind, n in tasks.by_type.items()]
        title = f"{label}Tasks: {tasks.count}"
        yield Section(title, ("type", "count"), tuple(rows))
    for title, binaries in (("Kernels", container.kernels), ("Libraries", container.libraries)):
        if binaries:
            yield _binaries(f"{label}{title}", binaries)
    if container.tilings:
        cells = [
            (t.key, t.block_dim, Bytes(t.data_bytes), Bytes(sum(t.workspaces)))
            for t in container.tilings[:MOST_ROWS]
        ]
        columns = ("key", "cores", "data", "workspace")
        title = f"{label}Tilings: {len(container.tilings)}"
        yield Section(title, columns, (*cells, *_more(container.tilings)))


def _binaries(title: str, binaries: Sequence[BinaryFacts]) -> Section:
    total = sum(binary.size_bytes for binary in binaries)
    ordered = sorted(binaries, key=lambda binary: (-binary.size_bytes, binary.name))
    rows = [(b.name, Bytes(b.size_bytes)) for b in ordered[:MOST_ROWS]]
    rows.append((f"all {len(binaries)}", Bytes(total)))
    return Section(title, ("name", "size"), tuple(rows))


def _more(items: Sequence[object]) -> tuple[tuple[object, ...], ...]:
    left = len(items) - MOST_ROWS
    return ((f"and {left} more",),) if left > 0 else ()


def _weights(summary: WeightSummary, label: str) -> Iterator[Section]:
    rows: list[tuple[object, ...]] = [
        ("constants", summary.count),
        ("bytes", Bytes(summary.total_bytes)),
    ]
    if summary.stored_bytes != summary.total_bytes:
        rows.append(("stored, shared ones once", Bytes(summary.stored_bytes)))
    rows += [(f"as {name}", Bytes(size)) for name, size in summary.by_dtype.items()]
    ops = list(summary.by_op.items())
    rows += [(f"read by {name}", Bytes(size)) for name, size in ops[:MOST_ROWS]]
    yield Section(f"{label}Weights", (), tuple(rows))
    cells = tuple(
        (
            Bytes(w.size_bytes),
            w.name,
            tensor_text(w.dtype, w.dims, w.layout),
            f"{w.used_by} ({w.op_type})" if w.used_by else "nothing",
        )
        for w in summary.largest
    )
    shown = f"Largest {len(cells)} weights" if len(cells) < summary.count else "All weights"
    yield Section(f"{label}{shown}", ("size", "weight", "type", "read by"), cells)


def _onnx(facts: OnnxFacts) -> Iterator[Section]:
    values = {
        "format version": facts.ir_version,
        "opsets": ", ".join(f"{domain} {version}" for domain, version in facts.opsets.items()),
        "producer": facts.producer,
        "domain": facts.domain,
        "model version": facts.model_version or "",
        "documentation": facts.doc,
    }
    yield _pairs("ONNX", {key: value for key, value in values.items() if value})
    if facts.functions:
        rows = tuple(
            (f"{f.domain}::{f.name}", f"{f.nodes} nodes, {f.inputs} in, {f.outputs} out")
            for f in facts.functions
        )
        yield Section("Functions", ("function", "body"), rows)
    if facts.external:
        cells = tuple(
            (e.location, e.tensors, Bytes(e.needed_bytes), _found(e.found_bytes, e.needed_bytes))
            for e in facts.external
        )
        yield Section("External data", ("file", "tensors", "needed", "there"), cells)
    if facts.metadata:
        yield _pairs("Metadata", facts.metadata)


def _found(found: int | None, needed: int) -> object:
    if found is None:
        return "no such file in the model's folder"
    return Bytes(found) if found >= needed else f"only {found} bytes: cut off"


def _cannc(facts: CanncFacts) -> Iterator[Section]:
    values: dict[str, object] = {
        "target SoC": facts.soc,
        "CANN": facts.cann,
        "written by": f"cannc {facts.version}" if facts.version else "",
        "original tensors": ", ".join(f"{count} {kind}" for kind, count in facts.fates.items()),
        "original graph": facts.original,
    }
    quant = facts.quant
    if quant is not None:
        values["quantized"] = f"{quant.quantized} weights {quant.scheme}, {quant.skipped} skipped"
        values["quantized by"] = f"{quant.algo}, per {quant.granularity}, for {quant.soc}"
        values["before"] = Bytes(quant.bytes_before)
        values["after"] = Bytes(quant.bytes_after)
        values["largest error"] = f"{quant.worst_error:.2%} relative L2"
    yield _pairs("cannc", {key: value for key, value in values.items() if value})
    rows = tuple(
        (s.name, s.applied, f"{s.nodes_before} -> {s.nodes_after}", s.refusals or "")
        for s in facts.history
        if s.applied or s.refusals or s.notes
    )
    if rows:
        yield Section("History", ("pass", "applied", "nodes", "near misses"), rows)
    notes = tuple((stage.name, note) for stage in facts.history for note in stage.notes)
    if notes:
        yield Section("Notes of passes", ("pass", "note"), notes)


def _memory_plan(plan: MemoryPlan) -> Iterator[Section]:
    sizes = {
        "arena": plan.arena_bytes,
        "no arena can be below": plan.lower_bound_bytes,
        "in the order given": plan.given_order_bytes,
        "inputs": plan.input_bytes,
        "outputs": plan.output_bytes,
        "weights": plan.weight_bytes,
    }
    values: dict[str, object] = {k: Bytes(size) for k, size in sizes.items() if size}
    if plan.peak_node:
        values["peak at"] = plan.peak_node
    for index, shapes in enumerate(filter(None, plan.sizes)):
        texts = [f"{name} {'x'.join(map(str, dims))}" for name, dims in shapes.items()]
        values["planned for" if not index else f"and for ({index})"] = ", ".join(texts)
    for index, note in enumerate(plan.notes()):
        values["note" if not index else f"note {index + 1}"] = note
    yield _pairs("Memory plan (estimate)", values)
    if plan.holdings:
        rows = tuple(
            (Bytes(h.bytes), h.name, "x".join(map(str, h.shape)), f"{h.node} ({h.op_type})")
            for h in plan.holdings
        )
        columns = ("size", "tensor", "shape", "made by")
        yield Section("Largest tensors at the peak", columns, rows)


def _pairs(title: str, values: Mapping[str, object]) -> Section:
    return Section(title, (), tuple((key, _short(value)) for key, value in values.items()))


def _sized(title: str, column: str, sizes: Mapping[str, int]) -> Section:
    rows = tuple((name, Bytes(size)) for name, size in sizes.items())
    return Section(title, (column, "size"), rows)


def _short(value: object) -> object:
    """Return a value, a long list by its start; the JSON has all of it."""
    if isinstance(value, list):
        text = ", ".join(map(str, value)) or "none"
        return text if len(text) <= _LONG_TEXT else f"{len(value)} items: {text[:80]} ..."
    return value


def _flat(value: Any, prefix: str = "") -> dict[str, object]:
    """Return the leaves of a JSON value, named by their path; lists of numbers stay whole."""
    if isinstance(value, dict) and value:
        flat: dict[str, object] = {}
        for key, item in value.items():
            flat.update(_flat(item, f"{prefix}.{key}" if prefix else str(key)))
        return flat
    if isinstance(value, list) and any(isinstance(item, (dict, list)) for item in value):
        return _flat({str(index): item for index, item in enumerate(value)}, prefix)
    return {prefix or "value": value}
