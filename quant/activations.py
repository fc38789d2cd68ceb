"""The activations of one quantization: none, gathered when asked for, or moved with the weights."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import onnx_ir as ir

from cannc.compiler.core.runner import Runner
from cannc.passes.rewrite import Rewriter
from cannc.quant.algorithms import Algorithm
from cannc.quant.calibration.samples import Calibration
from cannc.quant.collect import WeightUse
from cannc.quant.equalize import equalize
from cannc.quant.scheme import Scheme
from cannc.quant.statistics import Moments, Statistics, activation_of
from cannc.quant.weights import Weight


@dataclass
class Activations:
    """Moments for every weight, or the reason why there are none.

    Attributes:
        statistics: Gathers them; None without calibration data.
        moved: Moments after input scales were moved into the weights.
        notes: Activation -> what was done about its scales.
    """

    statistics: Statistics | None = None
    moved: dict[ir.Value, Moments | str] | None = None
    notes: dict[ir.Value, str] = field(default_factory=dict)

    @classmethod
    def of(
        cls,
        model: ir.Model,
        uses: Sequence[WeightUse],
        algorithm: Algorithm,
        runner: Runner | None,
        calibration: Calibration | None,
        max_memory: int,
    ) -> Activations:
        """Return the activations that an algorithm wants; nothing is run yet."""
        if calibration is None or runner is None or algorithm.uses == "nothing":
            return cls()
        return cls(Statistics(model, uses, runner, calibration, algorithm.uses, max_memory))

    def equalize(
        self,
        rewriter: Rewriter,
        uses: Sequence[WeightUse],
        scheme_of: Callable[[WeightUse], Scheme],
    ) -> list[tuple[Weight, ir.Value]]:
        """Move input scales; return constants that may be unused now, and what replaced each."""
        assert self.statistics is not None
        result = equalize(rewriter, uses, scheme_of, self.statistics)
        self.moved = result.moments
        self.notes.update(result.notes)
        return result.replaced

    def of_use(self, use: WeightUse) -> Moments | str:
        """Return the moments in front of one weight, or why there are none; "" if unwanted."""
        if self.statistics is None:
            return ""
        x = activation_of(use)
        if self.moved is None:
            return self.statistics.of(use)
        return "it has no activations" if x is None else self.moved[x]

    def note(self, use: WeightUse) -> str:
        """Return what was done about the scales of its activations; may be empty."""
        x = activation_of(use)
        return self.notes.get(x, "") if x is not None else ""
