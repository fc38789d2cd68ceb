"""A report against an older one: only what got worse fails."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from cannc.compiler.core.errors import ModelError, UsageError
from cannc.golden.render_json import SCHEMA_VERSION
from cannc.golden.report import Finding, GoldenReport, Layer

_SLACK = 1.05
"""Errors change a little from machine to machine; beyond this factor they count as larger."""


def against_baseline(report: GoldenReport, path: Path) -> GoldenReport:
    """Return the report with what is worse than in a JSON report of an earlier comparison.

    Raises:
        UsageError: ``IO010`` no such file.
        ModelError: ``CMP020`` it is no report of this schema.
    """
    data = _read(path)
    before = {row["name"]: row for row in data["layers"]}
    found = [text for layer in report.layers for text in _worse(layer, before.get(layer.name))]
    return replace(report, regressions=tuple(found))


def _read(path: Path) -> dict[str, Any]:
    if not path.is_file():
        raise UsageError("IO010", "no such file", where=str(path), fix="check the path")
    try:
        data: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
        # What is looked at later is looked at here, so that a broken file is found at once.
        for row in data["layers"]:
            _ = row["name"], row["passed"], row["accumulated"], row["isolated"]
        version = data["schema_version"]
    except (ValueError, KeyError, TypeError) as error:
        raise _no_report(path, f"{type(error).__name__}: {error}") from error
    if version != SCHEMA_VERSION:
        raise _no_report(path, f"schema version {version}, this is {SCHEMA_VERSION}")
    return data


def _no_report(path: Path, why: str) -> ModelError:
    return ModelError(
        "CMP020",
        "not a report to compare with",
        where=str(path),
        why=why,
        fix="give what an earlier 'cannc compare --json FILE' wrote",
    )


def _worse(layer: Layer, before: Mapping[str, Any] | None) -> Iterator[str]:
    if before is None:
        if layer.passed is False:
            yield f"{layer.name}: fails and was not there"
        return
    if before["passed"] is not None and layer.passed is None:
        yield f"{layer.name}: was compared, now {layer.kind}"
        return
    if layer.passed is False and layer.arriving is None and layer.added is None:
        if before["passed"] is not False:
            yield f"{layer.name}: {layer.note or layer.kind}"
        return
    kinds = (("accumulated", layer.arriving), ("isolated", layer.added))
    for label, finding in kinds:
        if finding is not None and _is_worse(finding, before[label]):
            yield f"{layer.name}: {label} error, {'; '.join(finding.judgement.reasons)}"


def _is_worse(finding: Finding, before: Mapping[str, Any] | None) -> bool:
    if finding.judgement.passed:
        return False
    severity = finding.judgement.severity
    old = float(before["severity"]) if before else 0.0
    return old <= 1.0 or severity > _SLACK * old or (math.isinf(severity) and not math.isinf(old))
