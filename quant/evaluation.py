"""How much of a model's behaviour quantization keeps, on data that calibration has not seen."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass

import numpy as np
import numpy.typing as npt
import onnx_ir as ir

from cannc.compiler.core.errors import UsageError
from cannc.compiler.core.runner import Array, Runner
from cannc.golden.metrics import measure
from cannc.quant.calibration.samples import Calibration, vocabulary_limits

_POSITIONS_AT_ONCE = 64
_TOP = 5

Scores = npt.NDArray[np.float32]


@dataclass(frozen=True)
class Evaluation:
    """Agreement of a quantized model with its baseline.

    Attributes:
        samples: Number of inputs.
        positions: Number of predictions: tokens of a language model, rows of a classifier; 0 where
            outputs are no scores.
        top1: Share of positions where both have the same largest score: token accuracy.
        top5: Share where the baseline's choice is among the five largest.
        kl: Mean Kullback-Leibler divergence from the baseline's distribution, nats.
        perplexity: Of the baseline on the tokens that follow; None without tokens.
        perplexity_quantized: The same of the quantized model.
        cosine: Smallest cosine similarity over samples and outputs.
    """

    samples: int
    positions: int
    top1: float
    top5: float
    kl: float
    perplexity: float | None
    perplexity_quantized: float | None
    cosine: float

    @property
    def token_accuracy(self) -> float:
        """`top1`, as language models call it."""
        return self.top1

    def to_json(self) -> str:
        """Return the figures as JSON."""
        return json.dumps({"schema_version": 1, **asdict(self)}, separators=(",", ":"))


def evaluate(
    baseline: ir.Model,
    candidate: ir.Model,
    samples: Calibration,
    make_runner: Callable[[], Runner],
) -> Evaluation:
    """Run both models on every sample and compare.

    Args:
        baseline: The model before quantization.
        candidate: The same after it; names of inputs and outputs are equal.
        samples: Checked inputs.
        make_runner: Makes a runner; each model gets its own, which may keep its session.
    """
    scores, tokens = score_output(baseline)
    names = [scores] if scores else [value.name or "" for value in baseline.graph.outputs]
    totals = _Totals()
    runners = make_runner(), make_runner()
    for feeds in samples:
        exact = runners[0].run(baseline, feeds, names)
        actual = runners[1].run(candidate, feeds, names)
        totals.add_outputs(exact, actual)
        if scores is not None:
            followed = None if tokens is None else np.asarray(feeds[tokens])
            totals.add_scores(exact[scores], actual[scores], followed, feeds.get("attention_mask"))
    return totals.result()


def refuse_overlap(seen: Sequence[str], samples: Calibration) -> None:
    """Raise if samples were used for calibration: the figures would be too good.

    Raises:
        UsageError: ``QEV001``.
    """
    common = set(seen) & set(samples.digests)
    if common:
        raise UsageError(
            "QEV001",
            f"{len(common)} of {len(samples)} evaluation samples are calibration samples",
            where="--eval",
            why="on the data that it was fitted to, every quantization looks good",
            fix="give other data, or allow it on purpose (--allow-overlap)",
        )


def score_output(model: ir.Model) -> tuple[str | None, str | None]:
    """Return the output that holds scores, and the input with the tokens that they follow.

    A language model has scores (batch, length, vocabulary) for tokens (batch, length): named
    logits, or as wide as the table that the tokens are looked up in. A classifier has scores
    (batch, classes).
    """
    limits = vocabulary_limits(model)
    for value in model.graph.outputs:
        dims = list(value.shape) if value.shape is not None else []
        tokens = next(iter(limits), None)
        is_named = "logits" in (value.name or "").lower()
        if len(dims) == 3 and tokens and (is_named or dims[-1] in limits.values()):
            return value.name, tokens
    outputs = model.graph.outputs
    if len(outputs) == 1 and outputs[0].shape is not None and len(outputs[0].shape) == 2:
        return outputs[0].name, None
    return None, None


class _Totals:
    """Running sums over samples."""

    def __init__(self) -> None:
        self.samples = self.positions = self.top1 = self.top5 = self.followed = 0
        self.kl = self.loss = self.loss_quantized = 0.0
        self.cosine = 1.0

    def add_outputs(self, exact: Mapping[str, Array], actual: Mapping[str, Array]) -> None:
        self.samples += 1
        for name, golden in exact.items():
            self.cosine = min(self.cosine, measure(golden, actual[name]).cosine)

    def add_scores(
        self, exact: Array, actual: Array, tokens: Array | None, mask: Array | None
    ) -> None:
        """Add scores (batch, [length,] classes) of one sample."""
        classes = exact.shape[-1]
        golden, quantized = exact.reshape(-1, classes), actual.reshape(-1, classes)
        valid = np.ones(exact.shape[:-1], bool)
        if mask is not None and mask.shape == valid.shape:
            valid = np.asarray(mask) != 0
        targets = np.full(valid.shape, -1, np.int64)
        if tokens is not None and tokens.shape == valid.shape:
            targets[:, :-1] = np.where(valid[:, 1:], tokens[:, 1:], -1)
        chosen = np.flatnonzero(valid)
        for index in _pieces(chosen):
            self._add_block(golden[index], quantized[index], targets.ravel()[index])

    def _add_block(self, exact: Array, actual: Array, targets: npt.NDArray[np.int64]) -> None:
        golden, quantized = _log_softmax(exact), _log_softmax(actual)
        best = golden.argmax(axis=-1)
        rows = np.arange(len(best))
        reached = quantized[rows, best]
        rank = (quantized > reached[:, np.newaxis]).sum(axis=-1)
        self.positions += len(best)
        self.top1 += int((quantized.argmax(axis=-1) == best).sum())
        self.top5 += int((rank < _TOP).sum())
        self.kl += float((np.exp(golden) * (golden - quantized)).sum(dtype=np.float64))
        known = np.flatnonzero(targets >= 0)
        self.followed += len(known)
        self.loss -= float(golden[known, targets[known]].sum(dtype=np.float64))
        self.loss_quantized -= float(quantized[known, targets[known]].sum(dtype=np.float64))

    def result(self) -> Evaluation:
        count = max(self.positions, 1)
        has_loss = self.followed > 0
        return Evaluation(
            self.samples,
            self.positions,
            self.top1 / count,
            self.top5 / count,
            max(self.kl / count, 0.0),
            math.exp(self.loss / self.followed) if has_loss else None,
            math.exp(self.loss_quantized / self.followed) if has_loss else None,
            self.cosine,
        )


def _pieces(index: npt.NDArray[np.intp]) -> Iterator[npt.NDArray[np.intp]]:
    for start in range(0, len(index), _POSITIONS_AT_ONCE):
        yield index[start : start + _POSITIONS_AT_ONCE]


def _log_softmax(scores: Array) -> Scores:
    wide = scores.astype(np.float32)
    wide -= wide.max(axis=-1, keepdims=True)
    shifted: Scores = wide - np.log(np.exp(wide).sum(axis=-1, keepdims=True))
    return shifted
