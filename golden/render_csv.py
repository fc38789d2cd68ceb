"""A report as a table for spreadsheets: one row per original value."""

from __future__ import annotations

import csv
import io

from cannc.golden.metrics import Metrics
from cannc.golden.report import GoldenReport, Layer

_NAMES = ("name", "op_type", "node", "candidate", "candidate_node", "module", "kind")
_FIGURES = ("cosine", "max_abs", "max_rel", "rmse", "rel_l2", "snr_db")
_COUNTS = ("nan_golden", "nan_candidate", "inf_golden", "inf_candidate", "mismatches")
COLUMNS = (
    *_NAMES,
    "dtype",
    "shape",
    "passed",
    *_FIGURES,
    *_COUNTS,
    *(f"isolated_{name}" for name in (*_FIGURES, *_COUNTS)),
    "severity",
    "note",
)


def to_csv(report: GoldenReport) -> str:
    """Return the table; empty cells where nothing was measured."""
    stream = io.StringIO()
    writer = csv.writer(stream, lineterminator="\n")
    writer.writerow(COLUMNS)
    writer.writerows(_cells(layer) for layer in report.layers)
    return stream.getvalue()


def _cells(layer: Layer) -> list[object]:
    return [
        *(getattr(layer, name) for name in _NAMES),
        layer.dtype,
        "x".join(map(str, layer.shape)) if layer.shape is not None else "",
        {True: "pass", False: "fail", None: ""}[layer.passed],
        *_figures(layer.accumulated),
        *_figures(layer.isolated),
        layer.severity if layer.added else "",
        layer.note,
    ]


def _figures(metrics: Metrics | None) -> list[object]:
    if metrics is None:
        return [""] * (len(_FIGURES) + len(_COUNTS))
    golden, candidate = metrics.golden, metrics.candidate
    counts = (golden.nan, candidate.nan, golden.inf, candidate.inf, metrics.mismatches)
    return [*(getattr(metrics, name) for name in _FIGURES), *counts]
