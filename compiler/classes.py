"""Thin classes over the library calls, for users who know these names from other toolchains."""

from __future__ import annotations

import inspect
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from cannc.compiler import pipeline
from cannc.compiler.core.errors import UsageError, nearest
from cannc.compiler.core.unit import CompileUnit, ModelLike, load
from cannc.compiler.quantizing import DataOptions, evaluate_units
from cannc.quant.calibration.load import Data
from cannc.quant.calibration.samples import DEFAULT_SAMPLES
from cannc.quant.evaluation import Evaluation
from cannc.quant.sensitivity import Sensitivity, rank_isolated


class Compiler:
    """Holds a target and options, and compiles with them.

    Example:
        compiler = Compiler()
        compiler.set_target("Ascend910B4")
        compiler.set_options(backend="host", precision="fp16")
        compiler.compile("model.onnx", "model.om")
    """

    _TAKEN = ("model", "out", "soc", "cann")
    _OPTIONS = inspect.signature(pipeline.compile).parameters.keys() - {*_TAKEN}

    def __init__(self) -> None:
        self._soc: str | None = None
        self._cann: str | None = None
        self._options: dict[str, Any] = {}

    def set_target(self, soc: str, cann: str | None = None) -> Compiler:
        """Choose SoC and CANN release; returns self."""
        self._soc, self._cann = soc, cann
        return self

    def set_options(self, **options: Any) -> Compiler:
        """Set options of `cannc.compile` by name; returns self.

        Raises:
            UsageError: ``API002`` no such option.
        """
        for name in options:
            if name not in self._OPTIONS:
                raise UsageError(
                    "API002",
                    f"no option '{name}'{nearest(name, self._OPTIONS)}",
                    fix=f"options: {', '.join(sorted(self._OPTIONS))}",
                )
        self._options.update(options)
        return self

    def compile(self, model: ModelLike, out: str | Path) -> Path:
        """Compile `model` to `out`; see `cannc.compile`."""
        return pipeline.compile(model, out, soc=self._soc, cann=self._cann, **self._options)


class QuantEvaluator:
    """Measures what quantization changed, on data that calibration has not seen.

    Example:
        evaluator = QuantEvaluator("model.onnx", tokenizer="folder")
        evaluator.evaluate("quantized.onnx", "texts.txt").token_accuracy
    """

    def __init__(
        self,
        baseline: ModelLike,
        *,
        num_samples: int = DEFAULT_SAMPLES,
        tokenizer: str | Path | None = None,
        preprocessing: Mapping[str, object] | str | Path | None = None,
        allow_overlap: bool = False,
    ) -> None:
        self.baseline = load(baseline)
        self.options = DataOptions(num_samples, tokenizer, preprocessing)
        self.allow_overlap = allow_overlap

    def evaluate(self, quantized: ModelLike, data: Data) -> Evaluation:
        """Return the agreement of `quantized` with the baseline.

        Raises:
            UsageError: ``QEV001`` the data was used for calibration.
        """
        return evaluate_units(
            self.baseline, load(quantized), data, self.options, allow_overlap=self.allow_overlap
        )

    def sensitivity(self, quantized: ModelLike) -> list[Sensitivity]:
        """Return the quantized layers, the one with the largest error of its own first."""
        return rank_isolated(load(quantized))


class Quantizer:
    """Holds a scheme and quantizes models with it; see `cannc.quantize`."""

    def __init__(
        self, scheme: str = "w8a16", algo: str = "minmax", granularity: str = "channel"
    ) -> None:
        self.scheme, self.algo, self.granularity = scheme, algo, granularity

    def quantize(
        self,
        model: ModelLike,
        soc: str | None = None,
        keep: Sequence[str] = (),
        calib: Data | None = None,
        **options: Any,
    ) -> CompileUnit:
        """Return the model with its weights quantized; `options` are those of `cannc.quantize`."""
        return pipeline.quantize(
            model, self.scheme, soc, calib, self.algo, self.granularity, keep=keep, **options
        )


class GraphSplitter:
    """Holds how to split, and splits models that way; see `cannc.split`."""

    def __init__(
        self,
        layers_per_subgraph: int = 2,
        strategy: str = "memory_balanced",
        *,
        parts: int | None = None,
        cuts: Sequence[str] = (),
    ) -> None:
        self.layers_per_subgraph, self.strategy = layers_per_subgraph, strategy
        self.parts, self.cuts = parts, tuple(cuts)

    def split(
        self, model: ModelLike, out: str | Path | None = None, soc: str | None = None
    ) -> list[CompileUnit]:
        """Return the parts in order; with `out`, write them and ``pipeline.json`` there, too."""
        return pipeline.split(
            model,
            self.layers_per_subgraph,
            self.strategy,
            soc,
            parts=self.parts,
            cuts=self.cuts,
            out=out,
        )
