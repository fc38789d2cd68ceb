"""Clip search: a smaller range has finer steps; take the one with the least squared error."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import numpy.typing as npt

from cannc.compiler.core.runner import Array
from cannc.quant.scales import Bounds, Params, fit, ranges, squared_error
from cannc.quant.scheme import Scheme
from cannc.quant.statistics import Moments, Needs

_STEPS = 21
_SMALLEST_SHARE = {8: 0.8, 4: 0.5}
"""Bits -> smallest share of the full range that is tried; fine levels gain less from clipping."""


class ClipSearch:
    """Tries shares of the min-max range per channel or group. Never worse than min-max.

    With activations the error of a weight counts by their mean square.
    """

    uses: Needs = "moments"
    needs_data = False
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
        importance = None if moments is None else moments.mean_square
        low, high = bounds or ranges(matrix, scheme.group)
        best = fit(low, high, scheme, dtype)
        least = squared_error(matrix, best, scheme, importance)
        for share in np.linspace(1.0, _SMALLEST_SHARE[scheme.bits], _STEPS)[1:]:
            tried = fit(low * share, high * share, scheme, dtype)
            error = squared_error(matrix, tried, scheme, importance)
            better = error < least
            least = np.where(better, error, least)
            best = _choose(better, tried, best)
        return best


def _choose(better: npt.NDArray[np.bool_], tried: Params, best: Params) -> Params:
    offset = best.offset
    if offset is not None and tried.offset is not None:
        offset = np.where(better, tried.offset, offset)
    return replace(best, scale=np.where(better, tried.scale, best.scale), offset=offset)
