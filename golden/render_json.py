"""A report as JSON: the same bytes for the same report, no times and no paths."""

from __future__ import annotations

import json
import math
from dataclasses import asdict
from typing import Any

from cannc.golden.modules import modules_of
from cannc.golden.report import Finding, GoldenReport, Layer

SCHEMA_VERSION = 1
"""Raised when a key changes its meaning or goes; new keys do not raise it."""

_SHOWN_CULPRITS = 20


def to_json(report: GoldenReport) -> str:
    """Return the report as JSON text; infinite numbers are the strings ``inf`` and ``-inf``."""
    return json.dumps(as_data(report), indent=1, sort_keys=True, ensure_ascii=False) + "\n"


def as_data(report: GoldenReport) -> dict[str, Any]:
    """Return the report as what JSON can hold."""
    first = report.first_divergence
    data = {
        "schema_version": SCHEMA_VERSION,
        "verdict": report.verdict,
        "facts": asdict(report.facts),
        "counts": report.counts,
        "warnings": [*report.warnings],
        "outputs": [layer.name for layer in report.outputs],
        "culprits": [_suspect(layer) for layer in report.culprits[:_SHOWN_CULPRITS]],
        "first_divergence": first.name if first else None,
        "modules": [asdict(module) for module in modules_of(report)],
        "details": {name: asdict(detail) for name, detail in report.details.items()},
        "regressions": report.regressions,
        "layers": [layer_data(layer) for layer in report.layers],
    }
    plain: dict[str, Any] = finite(data)
    return plain


def layer_data(layer: Layer) -> dict[str, Any]:
    """Return one row, with both errors."""
    return {
        "name": layer.name,
        "kind": layer.kind,
        "op_type": layer.op_type,
        "node": layer.node,
        "candidate": layer.candidate,
        "candidate_node": layer.candidate_node,
        "stands_for": [*layer.stands_for],
        "module": layer.module,
        "dtype": layer.dtype,
        "shape": layer.shape,
        "perm": layer.perm,
        "passed": layer.passed,
        "accumulated": _finding(layer.arriving),
        "isolated": _finding(layer.added),
        "note": layer.note,
    }


def finite(value: Any) -> Any:
    """Return `value` with numbers that JSON lacks as strings, and tuples as lists."""
    if isinstance(value, dict):
        return {key: finite(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [finite(item) for item in value]
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    return value


def _suspect(layer: Layer) -> dict[str, Any]:
    return {
        "name": layer.name,
        "node": layer.node,
        "candidate_node": layer.candidate_node,
        "severity": layer.severity,
    }


def _finding(finding: Finding | None) -> dict[str, Any] | None:
    if finding is None:
        return None
    return {
        **asdict(finding.worst),
        "mean": dict(finding.mean),
        "grade": finding.grade.label,
        "severity": finding.judgement.severity,
        "reasons": [*finding.judgement.reasons],
    }
