"""Which layers suffer most, and the fewest that must stay in float to keep the accuracy."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import Literal

from cannc.compiler.core.errors import GoldenMismatchError
from cannc.compiler.core.unit import CompileUnit
from cannc.quant.evaluation import Evaluation
from cannc.quant.report import QuantReport

CURVE_KEY = "cannc.quant.curve"

Rebuild = Callable[[Sequence[str]], CompileUnit]
"""Quantizes again with these nodes kept in float."""

Judge = Callable[[CompileUnit], Evaluation]

Metric = Literal["top1", "cosine"]


@dataclass(frozen=True)
class Sensitivity:
    """How much one layer suffers.

    Attributes:
        node: Its name.
        isolated: Relative error of its own output (of its weight, without calibration data).
        effect: End-to-end: 1 - metric of the model with only this layer quantized; None if not
            measured.
        divergence: The same as KL divergence; finer, since single layers seldom change a choice.
    """

    node: str
    isolated: float
    effect: float | None = None
    divergence: float | None = None


@dataclass(frozen=True)
class CurvePoint:
    """One quantization on the way.

    Attributes:
        kept: Nodes in float, besides those that the user keeps.
        metric: What was reached.
        nbytes: Bytes of all weights together.
        meets: Whether that is enough.
    """

    kept: tuple[str, ...]
    metric: float
    nbytes: int
    meets: bool


def rank_isolated(unit: CompileUnit) -> list[Sensitivity]:
    """Return the quantized layers of a unit, the one with the largest error first."""
    found: dict[str, float] = {}
    for row in _report(unit).quantized:
        error = row.error if row.output_error is None else row.output_error
        found[row.node] = max(error, found.get(row.node, 0.0))
    ranked = sorted(found.items(), key=lambda item: -item[1])
    return [Sensitivity(node, error) for node, error in ranked]


def rank_end_to_end(
    unit: CompileUnit, rebuild: Rebuild, judge: Judge, metric: Metric
) -> list[Sensitivity]:
    """Quantize one layer at a time; return them, the one with the largest effect first."""
    layers = rank_isolated(unit)
    found = []
    for layer in layers:
        alone = rebuild([other.node for other in layers if other is not layer])
        result = judge(alone)
        effect = 1 - float(getattr(result, metric))
        found.append(Sensitivity(layer.node, layer.isolated, effect, result.kl))
    return sorted(found, key=lambda s: (-(s.divergence or 0), -(s.effect or 0), -s.isolated))


def keep_fewest(
    unit: CompileUnit,
    layers: Sequence[Sensitivity],
    rebuild: Rebuild,
    judge: Judge,
    metric: Metric,
    least: float,
) -> CompileUnit:
    """Return the quantization that keeps the fewest layers in float and reaches `least`.

    The layers that stay are the first ones of the ranking; how many, bisection finds. The points
    that it tried are the trade curve, stored under `CURVE_KEY`.

    Args:
        unit: Everything quantized.
        layers: Ranking, the most sensitive first.
        rebuild: See `Rebuild`.
        judge: Measures a unit.
        metric: Which figure counts.
        least: Smallest value that is enough.

    Raises:
        GoldenMismatchError: ``QEV003`` not even one quantized layer keeps the accuracy.
    """
    search = _Search(layers, rebuild, judge, metric, least)
    best = search.try_count(0, unit)
    low, high = 0, len(layers) - 1  # low fails, high is the most that can stay in float
    if best is None and high > 0:
        best = search.try_count(high)
        while best is not None and high - low > 1:
            middle = (low + high) // 2
            tried = search.try_count(middle)
            if tried is None:
                low = middle
            else:
                best, high = tried, middle
    if best is None:
        reached = max(point.metric for point in search.points)
        raise GoldenMismatchError(
            "QEV003",
            f"no quantization reaches {metric} {least:g}; the best has {reached:.6f}",
            why=f"layer '{layers[-1].node}' alone loses too much" if layers else "",
            fix="use a finer scheme (--granularity group:128), a better --algo, or a lower bound",
        )
    best.model.metadata_props[CURVE_KEY] = search.to_json()
    return best


class _Search:
    """Remembers what was tried."""

    def __init__(
        self,
        layers: Sequence[Sensitivity],
        rebuild: Rebuild,
        judge: Judge,
        metric: Metric,
        least: float,
    ) -> None:
        self.layers, self.rebuild, self.judge = layers, rebuild, judge
        self.metric: Metric = metric
        self.least = least
        self.points: list[CurvePoint] = []

    def try_count(self, count: int, unit: CompileUnit | None = None) -> CompileUnit | None:
        """Return the unit with so many layers in float, or None if it is not good enough."""
        names = tuple(layer.node for layer in self.layers[:count])
        unit = self.rebuild(names) if unit is None else unit
        reached = float(getattr(self.judge(unit), self.metric))
        nbytes = sum(row.bytes_after for row in _report(unit).rows)
        self.points.append(CurvePoint(names, reached, nbytes, reached >= self.least))
        return unit if reached >= self.least else None

    def to_json(self) -> str:
        points = sorted(self.points, key=lambda point: len(point.kept))
        return json.dumps(
            {
                "schema_version": 1,
                "metric": self.metric,
                "least": self.least,
                "layers": [asdict(layer) for layer in self.layers],
                "points": [asdict(point) for point in points],
            },
            separators=(",", ":"),
        )


def _report(unit: CompileUnit) -> QuantReport:
    report = QuantReport.of(unit)
    assert report is not None
    return report
