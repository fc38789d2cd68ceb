"""Splitting as a stage: sizes for the cost model, and the folder with parts and pipeline.json."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, replace
from pathlib import Path

import onnx_ir as ir

from cannc.compiler.core.errors import ModelError, UsageError
from cannc.compiler.core.files import check_writable, make_folder, write_text
from cannc.compiler.core.graphs import node_count, walk
from cannc.compiler.core.provenance import origins
from cannc.compiler.core.unit import EXAMPLES_SUFFIX, CompileUnit
from cannc.compiler.memory.sizing import forms_at
from cannc.compiler.runtime.pipeline_file import (
    PIPELINE_NAME,
    Described,
    PartRow,
    PipelineFile,
    SharedRow,
    Source,
    TargetRow,
    Wire,
    file_digest,
)
from cannc.compiler.runtime.ports import Port
from cannc.passes.split.choose import Request
from cannc.passes.split.split import Split, split_unit
from cannc.quant.report import QUANT_KEY, QuantReport


def split_model(
    unit: CompileUnit, request: Request, shapes: Mapping[str, tuple[int, ...]] | None = None
) -> Split:
    """Split a unit; costs are those at the given input shapes, else at those of its examples.

    Raises:
        UsageError: ``SPL...``, see `cannc.passes.split`; ``MEM003`` shapes contradict the model.
    """
    known = shapes or {name: array.shape for name, array in unit.examples.items()}
    forms = forms_at(unit.model, known) if known else {}
    result = split_unit(unit, request, {name: form.shape for name, form in forms.items()})
    for part in result.parts:
        _own_quant_rows(part.unit)
    return result


def write_split(split: Split, folder: Path) -> Path:
    """Write the parts and ``pipeline.json``, which comes last: it never names what is not there.

    Parts of an earlier split into the same folder that are not needed any more are removed.

    Returns:
        The path of ``pipeline.json``.

    Raises:
        UsageError: ``IO001`` a part would replace the model that was split, ``IO002`` not writable.
    """
    make_folder(folder)
    out = folder / PIPELINE_NAME
    stale = _files_of(out)
    files = {part.name: f"{part.name}.onnx" for part in split.parts}
    for part in split.parts:
        for name in sorted({*files.values(), *stale}):
            check_writable(folder / name, part.unit.source)
    for part in split.parts:
        path = part.unit.save(folder / files[part.name])
        if not part.unit.examples:
            path.with_suffix(EXAMPLES_SUFFIX).unlink(missing_ok=True)  # of an earlier split
    described = describe(split, {n: file_digest(folder / f) for n, f in files.items()})
    write_text(out, described.to_json())
    for name in stale - {*files.values()}:
        path = folder / name
        for old in (path, *folder.glob(f"{name}.????????.data")):
            old.unlink(missing_ok=True)
        for suffix in (".provenance.json", EXAMPLES_SUFFIX):
            path.with_suffix(suffix).unlink(missing_ok=True)
    return out


def describe(split: Split, digests: Mapping[str, str]) -> PipelineFile:
    """Return the pipeline file of a split model, given the digests of its files by part name."""
    fed = {value.name or "" for value in split.inputs}
    made: dict[str, int] = {}
    rows = []
    for index, part in enumerate(split.parts):
        graph = part.unit.model.graph
        rows.append(
            PartRow(
                file=f"{part.name}.onnx",
                sha256=digests[part.name],
                nodes=node_count(part.unit.model),
                layers=part.layers,
                weight_bytes=part.weight_bytes,
                activation_bytes=part.activation_bytes,
                received_bytes=part.received_bytes,
                inputs=tuple(
                    _wire(v, "input" if v.name in fed else made[v.name or ""])
                    for v in graph.inputs
                    if not v.is_initializer()
                ),
                outputs=tuple(_described(v) for v in graph.outputs),
            )
        )
        made.update({value.name or "": index for value in graph.outputs})
    first = split.parts[0].unit
    target = first.target
    return PipelineFile(
        original=first.provenance.digest,
        target=TargetRow(soc=target.soc, cann=target.cann) if target else None,
        strategy=split.strategy,
        inputs=tuple(_described(v) for v in split.inputs),
        outputs=tuple(_wire(v, made.get(v.name or "", "input")) for v in split.outputs),
        parts=tuple(rows),
        shared_weights=tuple(SharedRow(**asdict(row)) for row in split.shared),
    )


def _own_quant_rows(unit: CompileUnit) -> None:
    """Leave in a part's quantization report only the weights that it has. In place."""
    report = QuantReport.of(unit)
    if report is None:
        return
    graph = unit.model.graph
    nodes = {name for scoped in walk(graph) for name in [scoped.node.name, *origins(scoped.node)]}
    rows = [r for r in report.rows if r.node in nodes or r.stored in graph.initializers]
    unit.model.metadata_props[QUANT_KEY] = replace(report, rows=tuple(rows)).to_json()


def _files_of(out: Path) -> set[str]:
    """Return the part files that an earlier pipeline file names."""
    try:
        return {part.file for part in PipelineFile.read(out).parts}
    except (ModelError, UsageError):
        return set()  # none yet, or not ours: nothing to remove


def _described(value: ir.Value) -> Described:
    return Described(name=value.name or "", type=str(Port.of(value)))


def _wire(value: ir.Value, source: Source) -> Wire:
    return Wire.model_validate({**_described(value).model_dump(), "from": source})
