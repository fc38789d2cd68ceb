"""GPTQ (Frantar et al., 2022): each rounding error is made up for by the weights still to come.

With H the mean of ``x^T x``, rounding row i of W by ``e`` costs least when the rows after it change
by ``-e * U[i, j] / U[i, i]``, where U is the upper Cholesky factor of the inverse of H. Rows go in
order of falling activation (act-order), in blocks, so that most of the work is matrix products.
Scales are fixed beforehand by the clip search, so groups stay contiguous, as kernels need them.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import numpy.typing as npt

from cannc.compiler.core.runner import Array
from cannc.quant.algorithms.mse import ClipSearch
from cannc.quant.scales import Bounds, Doubles, Floats, Params
from cannc.quant.scheme import Scheme
from cannc.quant.spill import new_levels
from cannc.quant.statistics import Moments, Needs

_BLOCK = 128
_DAMPING = 0.01
"""Share of the mean of H's diagonal that is added to the diagonal."""

_MOST_DAMPING = 1.0


class Gptq:
    """Needs activations; where there are none, levels are the nearest ones."""

    uses: Needs = "gram"
    needs_data = True
    moves_scales = False

    def solve(
        self,
        matrix: Array,
        scheme: Scheme,
        dtype: npt.DTypeLike,
        moments: Moments | None = None,
        bounds: Bounds | None = None,
    ) -> Params:
        """See `Algorithm.solve`."""
        params = ClipSearch().solve(matrix, scheme, dtype, moments, bounds)
        if moments is None or moments.gram is None:
            return params
        hessian = moments.gram.astype(np.float64)
        silent = np.flatnonzero(np.diag(hessian) == 0)
        hessian[silent, silent] = 1.0
        order = np.argsort(-np.diag(hessian), kind="stable")
        factor = _inverse_factor(hessian[np.ix_(order, order)])
        rest = matrix[order].astype(np.float32)
        return replace(params, levels=_round(rest, params, scheme, order, factor))


def _inverse_factor(hessian: Doubles) -> Floats:
    """Return upper U with ``U^T U = H^-1``, damping H until that exists."""
    damping = _DAMPING
    diagonal = np.arange(len(hessian))
    mean = float(np.diag(hessian).mean())
    while True:
        damped = hessian.copy()
        damped[diagonal, diagonal] += damping * mean
        try:
            return np.linalg.cholesky(np.linalg.inv(damped)).T.astype(np.float32)
        except np.linalg.LinAlgError:
            if damping >= _MOST_DAMPING:
                raise
            damping *= 10


def _round(
    rest: Floats,
    params: Params,
    scheme: Scheme,
    order: npt.NDArray[np.intp],
    factor: Floats,
) -> npt.NDArray[np.int8]:
    """Return levels (k, n), chosen row after row; `rest` holds the weights in `order`."""
    levels = new_levels(rest.shape)
    size = params.group or len(rest)
    for start in range(0, len(order), _BLOCK):
        stop = min(start + _BLOCK, len(order))
        errors = np.empty((stop - start, rest.shape[1]), np.float32)
        for i in range(start, stop):
            scale, offset = params.rows(int(order[i]) // size)
            shift = np.float32(0) if offset is None else offset
            level = (np.rint(rest[i] / scale) - shift).clip(scheme.low, scheme.high)
            levels[order[i]] = level
            error = (rest[i] - (level + shift) * scale) / factor[i, i]
            rest[i + 1 : stop] -= factor[i, i + 1 : stop, np.newaxis] * error
            errors[i - start] = error
        rest[stop:] -= factor[start:stop, stop:].T @ errors
    return levels
