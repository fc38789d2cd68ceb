"""What a comparison found: one typed object that all reports are made from."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Literal

from cannc.golden.align import Kind, Perm
from cannc.golden.details import Detail
from cannc.golden.metrics import Metrics
from cannc.golden.verdict import Grade, Judgement, Thresholds, judge

Mode = Literal["accumulated", "isolated", "both"]

AVERAGED = ("cosine", "max_abs", "max_rel", "rmse", "rel_l2", "snr_db")
"""Metrics that are averaged over samples."""


@dataclass(frozen=True)
class Finding:
    """One error of one layer, over all samples.

    Attributes:
        worst: Metrics of the sample with the largest severity.
        judgement: That sample's judgement.
        mean: Mean of the metrics over the samples; the same as `worst` when there is one.
        grade: What limits the precision here.
        tolerance: On the relative L2 error; from the grade, unless the user set it.
    """

    worst: Metrics
    judgement: Judgement
    mean: Mapping[str, float]
    grade: Grade
    tolerance: float


@dataclass(frozen=True)
class Layer:
    """One value of the original model.

    Attributes:
        name: Its name there.
        kind: Compared, or why not; see `align.Pair`.
        op_type: Operator that computes it in the original model.
        node: That node's name.
        candidate: Name of the candidate's value, if compared.
        candidate_node: The candidate's node that computes it, alone or with others.
        stands_for: Original nodes whose work ends in this value in the candidate.
        module: PyTorch module path, if known.
        dtype: Dtype of the candidate's value.
        shape: Shape in the original layout (of the first sample).
        perm: Transposing the candidate's value by it gives the original layout.
        owned: Errors of `candidate_node` are charged to this row.
        arriving: The accumulated error: what arrives here.
        added: The isolated error: what this layer adds when fed golden's numbers.
        note: Why the figures are missing, if they are.
    """

    name: str
    kind: Kind
    op_type: str = ""
    node: str = ""
    candidate: str = ""
    candidate_node: str = ""
    stands_for: tuple[str, ...] = ()
    module: str = ""
    dtype: str = ""
    shape: tuple[int, ...] | None = None
    perm: Perm = None
    owned: bool = False
    arriving: Finding | None = None
    added: Finding | None = None
    note: str = ""

    @property
    def accumulated(self) -> Metrics | None:
        """Metrics of the accumulated error, of the worst sample."""
        return self.arriving.worst if self.arriving else None

    @property
    def isolated(self) -> Metrics | None:
        """Metrics of the isolated error, of the worst sample."""
        return self.added.worst if self.added else None

    @property
    def passed(self) -> bool | None:
        """Whether it is within bounds; None when there is nothing to judge."""
        if self.kind == "unknown" or (self.kind == "compared" and self.note):
            return False
        finding = self.arriving or self.added
        return finding.judgement.passed if finding else None

    @property
    def severity(self) -> float:
        """Isolated error in units of its bound; above 1 it is too large."""
        return self.added.judgement.severity if self.added else 0.0


@dataclass(frozen=True)
class Facts:
    """What was compared, with what, and under which rules.

    Attributes:
        device: Where the candidate ran.
        golden: Name of the reference, without its folder.
        candidate: Name of the candidate, without its folder.
        golden_digest: Digest of the model that golden descends from.
        candidate_digest: The same of the candidate.
        soc: SoC that the candidate was made for.
        cann: CANN release, if one was named.
        mode: Which errors were measured.
        inputs: Where the inputs came from.
        samples: How many there were.
        tolerances: Tolerance on the relative L2 error by grade.
        thresholds: Bounds that the user set.
        versions: Versions of cannc and of the libraries that the numbers depend on.
        log: History of the candidate: what each pass did and refused.
        quant: Summary of quantization, if there was one.
    """

    device: str
    golden: str
    candidate: str
    golden_digest: str = ""
    candidate_digest: str = ""
    soc: str = ""
    cann: str = ""
    mode: Mode = "both"
    inputs: str = ""
    samples: int = 1
    tolerances: Mapping[str, float] = field(default_factory=dict)
    thresholds: Mapping[str, float] = field(default_factory=dict)
    versions: Mapping[str, str] = field(default_factory=dict)
    log: Sequence[Mapping[str, Any]] = ()
    quant: Mapping[str, Any] | None = None


@dataclass(frozen=True)
class GoldenReport:
    """Layer-by-layer comparison of a candidate with the original model.

    Attributes:
        layers: One row per original value, in original order.
        output_names: Graph outputs, which decide the verdict.
        facts: What was compared and how.
        warnings: What the reader should know before trusting the figures.
        details: Row name -> more about it, for the worst culprits.
        regressions: What is worse than in the baseline; None when there is no baseline. With one,
            it alone decides the verdict.
    """

    layers: tuple[Layer, ...]
    output_names: tuple[str, ...]
    facts: Facts
    warnings: tuple[str, ...] = ()
    details: Mapping[str, Detail] = field(default_factory=dict)
    regressions: tuple[str, ...] | None = None

    @cached_property
    def outputs(self) -> tuple[Layer, ...]:
        """Rows of the graph outputs, in graph order."""
        rows = {layer.name: layer for layer in self.layers}
        return tuple(rows[name] for name in self.output_names)

    @cached_property
    def culprits(self) -> tuple[Layer, ...]:
        """Layers that add an error of their own, worst first; equal ones in original order.

        The order is by severity, the error in units of its bound, so that a wrong float32 layer
        comes before an int8 layer with its normal error.
        """
        guilty = [layer for layer in self.layers if layer.owned and layer.severity > 0.0]
        return tuple(sorted(guilty, key=lambda layer: -layer.severity))

    @cached_property
    def first_divergence(self) -> Layer | None:
        """The first layer, in original order, that is over its threshold."""
        return next((layer for layer in self.layers if layer.passed is False), None)

    @cached_property
    def verdict(self) -> Literal["pass", "fail"]:
        """Judged on the graph outputs; on all layers if only isolated errors were measured."""
        if self.regressions is not None:
            return "fail" if self.regressions else "pass"
        judged = self.layers if self.facts.mode == "isolated" else self.outputs
        lost = any(layer.kind == "unknown" for layer in self.layers)
        failed = any(layer.passed is False for layer in judged)
        missing = any(layer.passed is None and layer.kind != "sequence" for layer in self.outputs)
        return "fail" if lost or failed or missing else "pass"

    @cached_property
    def counts(self) -> dict[str, int]:
        """Rows by kind, and how many of them failed."""
        kinds = Counter(layer.kind for layer in self.layers)
        failed = sum(layer.passed is False for layer in self.layers)
        return {"rows": len(self.layers), **dict(sorted(kinds.items())), "failed": failed}


class Tally:
    """Collects one layer's figures sample by sample."""

    def __init__(self, grade: Grade, bounds: Thresholds | None = None) -> None:
        """Args: what limits the precision of the layer, and the bounds that hold for it."""
        self.grade = grade
        self.bounds = bounds or Thresholds()
        self._samples: list[tuple[Metrics, Judgement]] = []

    def add(self, metrics: Metrics) -> Judgement:
        """Judge and add one sample."""
        judgement = judge(metrics, self.grade, self.bounds)
        self._samples.append((metrics, judgement))
        return judgement

    def finding(self) -> Finding | None:
        """Return the result, or None when nothing was added."""
        if not self._samples:
            return None
        worst, judgement = max(self._samples, key=lambda pair: pair[1].severity)
        means = {name: _mean([getattr(m, name) for m, _ in self._samples]) for name in AVERAGED}
        return Finding(worst, judgement, means, self.grade, self.bounds.tolerance(self.grade))


def _mean(values: list[float]) -> float:
    finite = [value for value in values if math.isfinite(value)]
    if len(finite) < len(values):
        # One infinite sample decides: its sign is the same for all samples of a metric.
        return next(value for value in values if not math.isfinite(value))
    return sum(finite) / len(finite)
