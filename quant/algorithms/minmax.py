"""Scales that just cover the smallest and the largest weight of each channel or group."""

from __future__ import annotations

import numpy.typing as npt

from cannc.compiler.core.runner import Array
from cannc.quant.scales import Bounds, Params, fit, ranges
from cannc.quant.scheme import Scheme
from cannc.quant.statistics import Moments, Needs


class MinMax:
    """Nothing is clipped; the error of a weight is at most half a step."""

    uses: Needs = "nothing"
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
        low, high = bounds or ranges(matrix, scheme.group)
        return fit(low, high, scheme, dtype)
