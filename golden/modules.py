"""Rows summed up by PyTorch module path."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from cannc.golden.report import GoldenReport, Layer


@dataclass(frozen=True)
class Module:
    """All rows of a module, those of its submodules included.

    Attributes:
        path: Module path, e.g. ``encoder.layer.0``.
        rows: Number of values that it computes.
        compared: How many were compared.
        failed: How many are over their threshold.
        severity: Largest isolated error in units of its bound.
        culprit: The row that has it; empty when nothing is off.
        rel_l2: Accumulated relative L2 error of its last compared value: what it hands on.
    """

    path: str
    rows: int
    compared: int
    failed: int
    severity: float
    culprit: str
    rel_l2: float | None


def modules_of(report: GoldenReport) -> tuple[Module, ...]:
    """Return the modules in the order of their first row, outer ones before inner ones."""
    groups: dict[str, list[Layer]] = {}
    for layer in report.layers:
        for path in _paths(layer.module):
            groups.setdefault(path, []).append(layer)
    return tuple(_module(path, layers) for path, layers in groups.items())


def _paths(module: str) -> Iterator[str]:
    parts = module.split(".") if module else []
    yield from (".".join(parts[: i + 1]) for i in range(len(parts)))


def _module(path: str, layers: list[Layer]) -> Module:
    owned = [layer for layer in layers if layer.owned]
    worst = max(owned, key=lambda layer: layer.severity, default=None)
    arriving = [layer.accumulated for layer in layers if layer.accumulated is not None]
    return Module(
        path=path,
        rows=len(layers),
        compared=sum(layer.kind == "compared" for layer in layers),
        failed=sum(layer.passed is False for layer in layers),
        severity=worst.severity if worst else 0.0,
        culprit=worst.name if worst and worst.severity > 0.0 else "",
        rel_l2=arriving[-1].rel_l2 if arriving else None,
    )
