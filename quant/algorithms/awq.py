"""AWQ (Lin et al., 2023): weights that meet large activations get finer steps.

Input channel i of the weight is multiplied by ``s_i``, its activation divided by it, which changes
nothing before rounding. ``s = mean|x| ^ alpha``; alpha is searched on a grid for the least error of
the layer's output. Where ``1 / s`` goes is decided in `cannc.quant.equalize`; the scales are then
those of the clip search, as in the paper.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from cannc.quant.algorithms.minmax import MinMax
from cannc.quant.algorithms.mse import ClipSearch
from cannc.quant.scales import Floats, decode, encode
from cannc.quant.scheme import Scheme
from cannc.quant.statistics import Moments

_GRID = 20
_SMALLEST = 1e-4
"""Least mean activation that counts, so that a silent channel does not get a scale of 0."""


class ActivationAware(ClipSearch):
    """The clip search, after input scales have been moved."""

    needs_data = True
    moves_scales = True


@dataclass(frozen=True)
class InputScales:
    """Result of the search.

    Attributes:
        factors: What input channels of the weights are multiplied by (k).
        alpha: The exponent; 0 when no scaling is best.
        before: Squared output error without scaling.
        after: The same with it.
    """

    factors: Floats
    alpha: float
    before: float
    after: float


def search(matrices: Sequence[Floats], schemes: Sequence[Scheme], moments: Moments) -> InputScales:
    """Return the best input scales of weights (k, n) that read the same activation."""
    magnitude = np.maximum(moments.mean_abs, _SMALLEST).astype(np.float64)
    outputs = [moments.rows @ matrix for matrix in matrices]
    found: list[InputScales] = []
    for step in range(_GRID):
        alpha = step / _GRID
        factors = magnitude**alpha
        factors = (factors / np.sqrt(factors.max() * factors.min())).astype(np.float32)
        error = 0.0
        for matrix, scheme, output in zip(matrices, schemes, outputs, strict=True):
            scaled = matrix * factors[:, np.newaxis]
            params = MinMax().solve(scaled, scheme, np.float32)
            rounded = decode(encode(scaled, params, scheme), params)
            difference = (moments.rows / factors) @ rounded - output
            error += float(np.square(difference, dtype=np.float64).sum())
        before = found[0].before if found else error
        found.append(InputScales(factors, alpha, before, error))
    return min(found, key=lambda tried: tried.after)
