"""What the activations in front of a weight look like, gathered sample by sample.

The model is run once per group of weights: as many at a time as their statistics fit in memory.
All of them come from the float model, so the order of the layers does not matter.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
import onnx_ir as ir

from cannc.compiler.core.runner import Array, Runner
from cannc.quant.collect import WeightUse, flag
from cannc.quant.patches import patches
from cannc.quant.scales import Floats

Needs = Literal["nothing", "moments", "gram"]

MAX_BYTES = 2 << 30
"""Memory for statistics, unless the caller says otherwise."""

_KEPT_ROWS = 512
_ACTIVATION_ROWS = 4096
"""Rows of one sample's activation, as far as the memory estimate goes."""


@dataclass(frozen=True)
class Moments:
    """Activations x (rows, k) in front of one weight, over all samples.

    Attributes:
        mean_square: Mean of x squared per input channel (k).
        mean_abs: Mean of its absolute value per input channel (k).
        rows: Some of the rows (m, k), evenly from all samples.
        gram: Mean of ``x^T x`` (k, k); None where nobody needs it.
    """

    mean_square: Floats
    mean_abs: Floats
    rows: Floats
    gram: Floats | None = None

    def divided(self, factors: Floats) -> Moments:
        """Return the moments of ``x / factors``."""
        gram = self.gram
        return replace(
            self,
            mean_square=self.mean_square / factors**2,
            mean_abs=self.mean_abs / factors,
            rows=self.rows / factors,
            gram=None if gram is None else gram / factors / factors[:, np.newaxis],
        )

    def output_error(self, weight: Floats, difference: Floats) -> float:
        """Return the relative L2 error of ``x @ weight`` when the weight is off by that."""
        norm = float(np.linalg.norm(self.rows @ weight))
        error = float(np.linalg.norm(self.rows @ difference))
        return error / norm if norm else 0.0


class Statistics:
    """Moments of the activations of many weights, computed when they are asked for."""

    def __init__(
        self,
        model: ir.Model,
        uses: Sequence[WeightUse],
        runner: Runner,
        samples: Iterable[Mapping[str, Array]],
        needs: Needs,
        max_bytes: int = MAX_BYTES,
    ) -> None:
        """Prepare; nothing is run yet.

        Args:
            model: The float model; must not change while statistics are gathered.
            uses: Weights that will be asked for, in this order.
            runner: Runs it.
            samples: Inputs; iterated once per group.
            needs: ``gram`` for second moments between channels.
            max_bytes: Memory for the statistics of one group.
        """
        self._model, self._runner, self._samples = model, runner, samples
        self._needs, self._max_bytes = needs, max_bytes
        self._known: list[tuple[ir.Value, WeightUse]] = []
        self._gaps: dict[ir.Value, str] = {}
        self.moments: dict[ir.Value, Moments] = {}
        named: set[ir.Value] = set()
        for use in uses:
            x = activation_of(use)
            if x is None or x in named:
                continue
            named.add(x)
            if use.node.graph is not model.graph:
                self._gaps[x] = "its activations are inside a branch"
            elif isinstance(gap := _rows_of(use), str):
                self._gaps[x] = gap
            else:
                self._known.append((x, use))

    def of(self, use: WeightUse) -> Moments | str:
        """Return the moments of one weight's activations, or why there are none.

        Moments of weights that were asked for before may be forgotten.
        """
        x = activation_of(use)
        if x is None:
            return "it has no activations"
        if x not in self.moments and x not in self._gaps:
            self.moments.clear()
            self._gather(self._next_group(x))
        return self._gaps.get(x) or self.moments[x]

    def _next_group(self, first: ir.Value) -> list[tuple[ir.Value, WeightUse]]:
        """Take the activations from `first` on that fit in memory together."""
        start = next(i for i, (x, _) in enumerate(self._known) if x is first)
        size, stop = 0, start
        while stop < len(self._known):
            k = self._known[stop][1].layout.k
            rows = k if self._needs == "gram" else 0
            size += 4 * k * (rows + _KEPT_ROWS + _ACTIVATION_ROWS)
            if size > self._max_bytes and stop > start:
                break
            stop += 1
        return self._known[start:stop]

    def _gather(self, group: Sequence[tuple[ir.Value, WeightUse]]) -> None:
        """Run all samples once and sum up."""
        fetches = [x.name or "" for x, _ in group]
        readers = [_rows_of(use) for _, use in group]
        sums = [_Sums(use.layout.k, self._needs == "gram") for _, use in group]
        for feeds in self._samples:
            found = self._runner.run(self._model, feeds, fetches)
            for total, reader, name in zip(sums, readers, fetches, strict=True):
                assert callable(reader)
                total.add(reader(np.asarray(found[name], np.float32)))
        for (x, _), total in zip(group, sums, strict=True):
            self.moments[x] = total.moments()


def activation_of(use: WeightUse) -> ir.Value | None:
    """Return what the node multiplies with the weight; None for embedding tables."""
    if use.node.op_type == "Gather":
        return None
    return use.node.inputs[1 - use.operand]


class _Sums:
    """Running sums over rows."""

    def __init__(self, k: int, with_gram: bool) -> None:
        self.count = 0
        self.square, self.absolute = np.zeros(k), np.zeros(k)
        self.kept, self.stride = np.empty((0, k), np.float32), 1
        self.gram = np.zeros((k, k), np.float32) if with_gram else None

    def add(self, rows: Floats) -> None:
        self.count += len(rows)
        self.square += np.square(rows).sum(axis=0, dtype=np.float64)
        self.absolute += np.abs(rows).sum(axis=0, dtype=np.float64)
        self._keep(rows)
        if self.gram is not None:
            self.gram += rows.T @ rows

    def _keep(self, rows: Floats) -> None:
        """Keep every stride-th row; with too many, every second of them and of those to come."""
        self.kept = np.concatenate([self.kept, rows[:: self.stride]])
        while len(self.kept) > 2 * _KEPT_ROWS:
            self.kept, self.stride = self.kept[::2], 2 * self.stride

    def moments(self) -> Moments:
        count = max(self.count, 1)
        return Moments(
            (self.square / count).astype(np.float32),
            (self.absolute / count).astype(np.float32),
            np.array(self.kept),
            None if self.gram is None else self.gram / np.float32(count),
        )


def _rows_of(use: WeightUse) -> Callable[[Floats], Floats] | str:
    """Return what turns an activation into rows (m, k), or why that is not possible."""
    node, k = use.node, use.layout.k
    if node.op_type == "Conv":
        return patches(node, use.layout.shape)
    if node.op_type not in ("MatMul", "Gemm"):
        return f"{node.op_type} has no rows of activations"
    if len(use.layout.shape) != 2:
        return "stacked weights have activations of their own each"
    # MatMul (w, x) and Gemm with a transposed operand have the summed axis in front.
    transposed = flag(node, "transA") if use.operand == 1 else not flag(node, "transB")

    def rows(x: Floats) -> Floats:
        turned = np.swapaxes(x, -1, -2) if transposed and x.ndim > 1 else x
        return turned.reshape(-1, k)

    return rows
