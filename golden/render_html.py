"""A report as one HTML page: no other file, no network, works from a mail attachment."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from functools import cache
from typing import Any

import jinja2
from markupsafe import Markup

from cannc.golden.modules import Module, modules_of
from cannc.golden.pictures import picture
from cannc.golden.render_json import finite
from cannc.golden.report import Facts, Finding, GoldenReport, Layer

_MAX_CULPRITS = 10
_MAX_OUTPUTS = 50
_MAX_REMARKS = 12
_MAX_MODULES = 40
_DIGITS = 8
_PLAIN_FROM, _PLAIN_TO = 1e-2, 1e5
_SMALL_SEVERITY = 0.01

_ROW_COLUMNS = (
    *("name", "kind", "op_type", "node", "candidate", "candidate_node", "stands_for", "module"),
    *("dtype", "shape", "perm", "passed", "note"),
)
_MEASURED = ("cosine", "max_abs", "max_rel", "rmse", "rel_l2", "snr_db", "golden_max")
_NUMERIC = (*_MEASURED, "mean_cosine", "mean_rel_l2", "severity")
_COUNTS = ("elements", "mismatches", "overflows", "underflows", "masked", "worst_at")
_ERROR_COLUMNS = (
    *_NUMERIC,
    *_COUNTS,
    *("golden_nan", "golden_inf", "golden_first"),
    *("candidate_nan", "candidate_inf", "candidate_first"),
    *("grade", "tolerance", "reasons"),
)


def to_html(report: GoldenReport) -> str:
    """Return the page."""
    page: str = _template().render(
        report=report,
        facts=report.facts,
        fact_rows=_fact_rows(report.facts),
        data=_embedded(_payload(report)),
        modules=_worst_modules(report),
        pictures=[(layer, picture(layer, report)) for layer in _pictured(report)],
        max_culprits=_MAX_CULPRITS,
        max_outputs=_MAX_OUTPUTS,
        max_remarks=_MAX_REMARKS,
    )
    return page


def _worst_modules(report: GoldenReport) -> list[Module]:
    worst = sorted(modules_of(report), key=lambda module: (-module.severity, -module.failed))
    return worst[:_MAX_MODULES]


def _pictured(report: GoldenReport) -> list[Layer]:
    return [layer for layer in report.culprits[:_MAX_CULPRITS] if layer.name in report.details]


@cache
def _template() -> jinja2.Template:
    environment = jinja2.Environment(
        loader=jinja2.PackageLoader("cannc.golden", "templates"),
        autoescape=True,
        trim_blocks=True,
        lstrip_blocks=True,
        undefined=jinja2.StrictUndefined,
    )
    filters: dict[str, Callable[..., str]] = {
        "figure": _figure,
        "cosine": _cosine,
        "decibel": _decibel,
        "times": _times,
        "reasons": _reasons,
    }
    environment.filters |= filters
    return environment.get_template("report.html.j2")


def _payload(report: GoldenReport) -> dict[str, Any]:
    """Return what the page's script works on: rows as lists, since names of keys add up."""
    return {
        "row_columns": [*_ROW_COLUMNS, "acc", "iso"],
        "error_columns": _ERROR_COLUMNS,
        "numeric": _NUMERIC,
        "samples": report.facts.samples,
        "rows": [
            [
                *(getattr(layer, column) for column in _ROW_COLUMNS),
                *(_error(finding) for finding in (layer.arriving, layer.added)),
            ]
            for layer in report.layers
        ],
    }


def _error(finding: Finding | None) -> list[Any] | None:
    if finding is None:
        return None
    metrics, judgement = finding.worst, finding.judgement
    numbers = [getattr(metrics, name) for name in _MEASURED]
    numbers += [finding.mean["cosine"], finding.mean["rel_l2"], judgement.severity]
    return [
        *(float(f"{number:.{_DIGITS}g}") for number in numbers),
        *(getattr(metrics, name) for name in _COUNTS),
        *(metrics.golden.nan, metrics.golden.inf, metrics.golden.first),
        *(metrics.candidate.nan, metrics.candidate.inf, metrics.candidate.first),
        finding.grade.label,
        finding.tolerance,
        judgement.reasons,
    ]


def _embedded(payload: dict[str, Any]) -> Markup:
    """Return JSON that no HTML parser takes for anything else, whatever the names contain."""
    text = json.dumps(finite(payload), separators=(",", ":"))
    for character in "<>&":
        text = text.replace(character, f"\\u{ord(character):04x}")
    return Markup(text)


def _fact_rows(facts: Facts) -> list[tuple[str, str]]:
    def listed(mapping: Any) -> str:
        return ", ".join(f"{key} {value}" for key, value in mapping.items())

    rows = [
        ("Golden", facts.golden),
        ("Golden's descent", facts.golden_digest),
        ("Candidate", facts.candidate),
        ("Candidate's descent", facts.candidate_digest),
        ("Device", facts.device),
        ("SoC", facts.soc),
        ("CANN", facts.cann),
        ("Errors measured", facts.mode),
        ("Inputs", facts.inputs),
        ("Samples", str(facts.samples)),
        ("Tolerance on relative L2", listed(facts.tolerances)),
        ("Thresholds set", listed(facts.thresholds)),
        ("Versions", listed(facts.versions)),
        ("Quantization", listed(facts.quant or {})),
    ]
    return [(label, value) for label, value in rows if value]


def _reasons(layer: Layer) -> str:
    finding = layer.arriving or layer.added
    return layer.note or ("; ".join(finding.judgement.reasons) if finding else layer.kind)


def _cosine(value: float) -> str:
    return "1" if value == 1.0 else f"{value:.6f}"


def _decibel(value: float) -> str:
    return f"{value:.1f}" if math.isfinite(value) else _figure(value)


def _times(severity: float) -> str:
    small = 0.0 < severity < _SMALL_SEVERITY
    return f"{f'<{_SMALL_SEVERITY}' if small else _figure(severity, 2)}\N{MULTIPLICATION SIGN}"


def _figure(value: float, digits: int = 3) -> str:
    """Spell a number as the page's script does."""
    if not math.isfinite(value):
        return "∞" if value > 0 else "\N{MINUS SIGN}∞"
    if value == 0:
        return "0"
    if _PLAIN_FROM <= abs(value) < _PLAIN_TO:
        return f"{float(f'{value:.{digits}g}'):.10g}"
    mantissa, exponent = f"{value:.{digits - 1}e}".split("e")
    return f"{mantissa}e{int(exponent):+d}"
