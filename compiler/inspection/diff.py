"""What changed between two artifacts."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from cannc.compiler.inspection.facts import SCHEMA_VERSION
from cannc.compiler.inspection.snapshot import OpState, Snapshot, WeightState, take

# Sections that belong to the file format: comparing them over formats says nothing.
_OF_ONE_FORMAT = frozenset(
    {
        "header",
        "partitions",
        "compiler",
        "memory",
        "resources",
        "sizes",
        "attributes",
        "kernels",
        "libraries",
        "tasks",
        "contents",
        "kind",
        "opsets",
        "onnx",
        "functions",
        "metadata",
        "package",
        "manifest",
        "memory plan",
        "gears",
    }
)


@dataclass(frozen=True)
class Change:
    """One difference.

    Attributes:
        section: E.g. ``header``, ``ops``, ``edges``, ``weights``.
        item: What differs.
        change: ``added``, ``removed`` or ``changed``.
        before: In the first artifact; empty when it was added.
        after: In the second one; empty when it was removed.
    """

    section: str
    item: str
    change: Literal["added", "removed", "changed"]
    before: str
    after: str


@dataclass(frozen=True)
class DiffReport:
    """All differences between two artifacts.

    Attributes:
        schema_version: Version of this structure.
        before: Name of the first file.
        after: Name of the second file.
        same: Nothing differs.
        notes: What was not compared, and why.
        summary: Section -> number of differences.
        changes: The differences, section by section.
    """

    schema_version: int
    before: str
    after: str
    same: bool
    notes: tuple[str, ...]
    summary: dict[str, int]
    changes: tuple[Change, ...]


def diff_files(before: Path, after: Path) -> DiffReport:
    """Compare two artifacts, of any formats.

    Weights are read for this: those of equal name, type and shape are compared by digest.

    Raises:
        ModelError, UsageError: one of the files cannot be read.
    """
    old, new = take(before), take(after)
    notes = tuple(_notes(old, new))
    changes = (*_facts(old, new), *_ops(old.ops, new.ops), *_weights(old.weights, new.weights))
    counts = Counter(change.section for change in changes)
    summary = dict(sorted(counts.items()))
    return DiffReport(SCHEMA_VERSION, before.name, after.name, not changes, notes, summary, changes)


def _notes(old: Snapshot, new: Snapshot) -> Iterator[str]:
    if old.format != new.format:
        both = "interface, ops, edges and weights"
        yield f"{old.format} against {new.format}: only what both have is compared: {both}"


def _facts(old: Snapshot, new: Snapshot) -> Iterator[Change]:
    for section in sorted({*old.facts, *new.facts}):
        shared = section in old.facts and section in new.facts and section not in _OF_ONE_FORMAT
        if old.format != new.format and not shared:
            continue
        yield from _items(section, old.facts.get(section, {}), new.facts.get(section, {}))


def _items(section: str, old: Mapping[str, str], new: Mapping[str, str]) -> Iterator[Change]:
    for item in sorted(old.keys() - new.keys()):
        yield Change(section, item, "removed", old[item], "")
    for item in sorted(new.keys() - old.keys()):
        yield Change(section, item, "added", "", new[item])
    for item in sorted(old.keys() & new.keys()):
        if old[item] != new[item]:
            yield Change(section, item, "changed", old[item], new[item])


def _ops(old: Mapping[str, OpState], new: Mapping[str, OpState]) -> Iterator[Change]:
    yield from _items(
        "ops", {name: op.type for name, op in old.items()}, {n: op.type for n, op in new.items()}
    )
    for name in (name for name in old if name in new):
        before, after = old[name], new[name]
        for change in _items("ops", before.attributes, after.attributes):
            yield Change("ops", f"{name}.{change.item}", change.change, change.before, change.after)
        outputs = ", ".join(before.outputs), ", ".join(after.outputs)
        if outputs[0] != outputs[1]:
            yield Change("ops", f"{name} outputs", "changed", *outputs)
        if before.inputs != after.inputs:
            edges = ", ".join(before.inputs), ", ".join(after.inputs)
            yield Change("edges", name, "changed", *edges)


def _weights(old: Mapping[str, WeightState], new: Mapping[str, WeightState]) -> Iterator[Change]:
    forms = {n: _form(w) for n, w in old.items()}, {n: _form(w) for n, w in new.items()}
    yield from _items("weights", *forms)
    for name in (name for name in old if name in new and forms[0][name] == forms[1][name]):
        digests = old[name].digest(), new[name].digest()
        if digests[0] != digests[1]:
            texts = (
                f"{_form(w)} sha256 {d[:12]}"
                for w, d in zip((old[name], new[name]), digests, strict=True)
            )
            yield Change("weights", name, "changed", *texts)


def _form(weight: WeightState) -> str:
    return f"{weight.form} {weight.size_bytes} bytes"
