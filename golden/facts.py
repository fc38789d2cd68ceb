"""The facts that a report states about its run."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping
from importlib import metadata
from typing import Any

import cannc
from cannc.compiler.core.unit import CompileUnit
from cannc.golden.report import Facts, Mode
from cannc.golden.sources import Samples, Saved
from cannc.golden.verdict import Grade, Thresholds

DEVICE = "host (simulated float16)"
_QUANT_KEY = "cannc.quant"
_LIBRARIES = ("onnx", "onnx-ir", "onnxruntime", "numpy")


def facts_of_models(
    golden: CompileUnit, candidate: CompileUnit, samples: Samples, mode: Mode, bounds: Thresholds
) -> Facts:
    """Return the facts of a comparison of two models; paths lose their folders."""
    target = candidate.target
    return Facts(
        device=DEVICE,
        golden=_name(golden, "original"),
        candidate=_name(candidate, "candidate"),
        golden_digest=golden.provenance.digest,
        candidate_digest=candidate.provenance.digest,
        soc=target.soc if target else "",
        cann=(target.cann or "") if target else "",
        mode=mode,
        inputs=samples.origin,
        samples=len(samples.feeds),
        tolerances=_tolerances(),
        thresholds=bounds.set_bounds(),
        versions=_versions(),
        log=[_stage(stage.row()) for stage in candidate.log],
        quant=_quant(candidate),
    )


def facts_of_saved(golden: Saved, candidate: Saved, bounds: Thresholds) -> Facts:
    """Return the facts of a comparison of saved arrays."""
    return Facts(
        device="none: saved arrays",
        golden=golden.name,
        candidate=candidate.name,
        mode="accumulated",
        inputs="saved arrays",
        tolerances=_tolerances(),
        thresholds=bounds.set_bounds(),
        versions=_versions(),
    )


def _name(unit: CompileUnit, default: str) -> str:
    return unit.source.name if unit.source else unit.model.graph.name or default


def _tolerances() -> dict[str, float]:
    return {grade.label: grade.tolerance for grade in Grade}


def _versions() -> dict[str, str]:
    return {"cannc": cannc.__version__} | {name: metadata.version(name) for name in _LIBRARIES}


def _stage(row: Mapping[str, Any]) -> dict[str, Any]:
    """Return a history line without its time, which differs from run to run."""
    return {key: value for key, value in row.items() if key != "seconds"}


def _quant(unit: CompileUnit) -> dict[str, Any] | None:
    """Return the figures of the quantization report: options, counts and sizes of weights."""
    text = unit.model.metadata_props.get(_QUANT_KEY)
    if not text:
        return None
    report: dict[str, Any] = json.loads(text)
    weights = report.get("rows", [])
    summary = {key: value for key, value in report.items() if isinstance(value, str)}
    summary |= Counter(row["status"] for row in weights)
    for size in ("bytes_before", "bytes_after"):
        summary[size] = sum(row[size] for row in weights)
    return summary
