"""Quantization with data: samples for a model, and the accuracy that has to be kept."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Literal

from cannc.compiler.core.errors import UsageError
from cannc.compiler.core.unit import CompileUnit
from cannc.compiler.frontend.source import Source, call_source
from cannc.compiler.runtime.feeding import prepare_feeds
from cannc.compiler.runtime.ports import input_ports
from cannc.compiler.runtime.repeat_runner import RepeatRunner
from cannc.quant.calibration.load import Data, load_calibration
from cannc.quant.calibration.samples import DEFAULT_SAMPLES, Calibration
from cannc.quant.evaluation import Evaluation, evaluate, refuse_overlap
from cannc.quant.report import QuantReport
from cannc.quant.sensitivity import (
    Metric,
    Rebuild,
    keep_fewest,
    rank_end_to_end,
    rank_isolated,
)

Ranking = Literal["isolated", "end-to-end"]


@dataclass(frozen=True)
class DataOptions:
    """How data is read; see `cannc.quantize`."""

    num_samples: int = DEFAULT_SAMPLES
    tokenizer: str | Path | None = None
    preprocessing: Mapping[str, object] | str | Path | None = None

    def load(self, unit: CompileUnit, data: Data) -> Calibration:
        """Read and check samples for a unit's model.

        `data` may also be ``file.py:callable``, a function that returns an iterable.
        """
        if isinstance(data, str) and not Path(data).exists() and ":" in data:
            data = call_source(Source.parse(data))
        return load_calibration(
            data,
            unit.model,
            partial(prepare_feeds, input_ports(unit.model)),
            num_samples=self.num_samples,
            tokenizer=self.tokenizer,
            preprocessing=self.preprocessing,
        )


@dataclass(frozen=True)
class Goal:
    """The accuracy that quantization has to keep.

    Attributes:
        metric: Which figure of `Evaluation` counts.
        least: Its smallest value.
        ranking: How the layers that stay in float are chosen.
    """

    metric: Metric
    least: float
    ranking: Ranking = "isolated"

    @classmethod
    def of(
        cls, min_token_accuracy: float | None, min_cosine: float | None, ranking: Ranking
    ) -> Goal | None:
        """Return the goal that the options ask for, or None.

        Raises:
            UsageError: ``QEV002`` both are given, or a share outside 0..1.
        """
        given = [v for v in (min_token_accuracy, min_cosine) if v is not None]
        if len(given) > 1 or any(not 0 <= value <= 1 for value in given):
            raise UsageError(
                "QEV002",
                "wrong accuracy goal",
                where="--min-token-accuracy, --min-cosine",
                fix="give one of them, between 0 and 1",
            )
        if not given:
            return None
        return cls("cosine" if min_cosine is not None else "top1", given[0], ranking)

    def reach(
        self, original: CompileUnit, full: CompileUnit, rebuild: Rebuild, samples: Calibration
    ) -> CompileUnit:
        """Return the quantization with the fewest layers in float that reaches the goal.

        Args:
            original: Before quantization.
            full: All of it quantized.
            rebuild: Quantizes with some nodes kept.
            samples: What accuracy is measured on.
        """

        def judge(unit: CompileUnit) -> Evaluation:
            return evaluate(original.model, unit.model, samples, RepeatRunner)

        if self.ranking == "isolated":
            layers = rank_isolated(full)
        else:
            layers = rank_end_to_end(full, rebuild, judge, self.metric)
        return keep_fewest(full, layers, rebuild, judge, self.metric, self.least)


def evaluate_units(
    original: CompileUnit,
    quantized: CompileUnit,
    data: Data,
    options: DataOptions,
    *,
    allow_overlap: bool,
) -> Evaluation:
    """Compare a quantized model with the original on data of its own.

    Raises:
        UsageError: ``QEV001`` the data was used for calibration; ``CAL...`` it does not fit.
    """
    samples = options.load(original, data)
    report = QuantReport.of(quantized)
    if report is not None and not allow_overlap:
        refuse_overlap(report.calibrated_on, samples)
    return evaluate(original.model, quantized.model, samples, RepeatRunner)
