"""Scales that just cover the smallest and the largest weight of each channel or group."""

from __future__ import annotations

import numpy.typing as npt

from cannc.quant.scales import Floats, Params, fit, ranges
from cannc.quant.scheme import Scheme


class MinMax:
    """Nothing is clipped; the error of a weight is at most half a step."""

    def solve(self, matrix: Floats, scheme: Scheme, dtype: npt.DTypeLike) -> Params:
        """See `Algorithm.solve`."""
        low, high = ranges(matrix, scheme.group)
        return fit(low, high, scheme, dtype)
