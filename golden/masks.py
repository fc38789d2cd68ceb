"""Mask constants: numbers that stand for "minus infinity", e.g. before a Softmax.

A model says -3.4e38 or -1e9 where float16 holds -65504 at most, or -Inf, and all do the same.
Compared naively, every such place would be the largest error of its model; left in the sums, one of
them would drown the error of everything else. A real overflow is smaller than these constants, or
positive, and is not excused.
"""

from __future__ import annotations

import ml_dtypes
import numpy as np
import numpy.typing as npt

from cannc.compiler.core.runner import Array

_FLOAT32_FROM = 1e30
_FLOAT16_FROM = 9e8
_CLIPPED_FROM = 1e4
_TOLERANCE = 1e-3

_Block = npt.NDArray[np.float64]
_Flags = npt.NDArray[np.bool_]


def agreeing_masks(golden: _Block, candidate: _Block, *, half: bool) -> _Flags | None:
    """Return where both sides hold the same mask constant, or None if nowhere.

    Args:
        golden: Any numbers.
        candidate: Any numbers, the same length.
        half: The candidate computes in half precision and may hold the constant clipped.
    """
    magnitude = mask_floor(half)
    with np.errstate(over="ignore", under="ignore", invalid="ignore"):
        large = (np.abs(golden) >= magnitude) & np.isfinite(golden)
        masked = large & (np.abs(candidate - golden) <= _TOLERANCE * np.abs(golden))
    if half:
        masked |= large & (golden < 0) & (candidate <= -_CLIPPED_FROM)
    return masked if masked.any() else None


def mask_floor(half: bool) -> float:
    """Return the magnitude from which a number can be a mask constant."""
    return _FLOAT16_FROM if half else _FLOAT32_FROM


def narrowed(array: Array, dtype: np.dtype[np.generic]) -> Array:
    """Cast golden's numbers to the candidate's dtype: masks are clipped, overflows become Inf."""
    with np.errstate(over="ignore"):
        result: Array = array.astype(dtype)
    if array.dtype.kind != "f" or dtype not in (np.float16, ml_dtypes.bfloat16):
        return result
    if np.isfinite(result).all():
        return result
    wide = array.astype(np.float64)
    lost = np.isfinite(wide) & (wide <= -_FLOAT16_FROM) & (result.astype(np.float64) == -np.inf)
    lowest = ml_dtypes.finfo(dtype).min  # type: ignore[no-untyped-call]
    return np.where(lost, lowest, result).astype(dtype)
