"""Scales and levels of a weight matrix (k, n), and how far the result is from the weight.

A stored weight means ``w = (level + offset) * scale``, as Ascend's kernels have it (npu-ops.md
section 4). Levels are chosen against the scale *as the kernel holds it*: float16 rounds a scale by
up to 0.05 %, which at level 127 would be a sixteenth of a step.

Work goes block by block over rows, so that temporaries stay small beside the weight.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from cannc.compiler.core.runner import Array
from cannc.quant.scheme import Scheme

Floats = npt.NDArray[np.float32]
Doubles = npt.NDArray[np.float64]
Levels = npt.NDArray[np.int8]

_BLOCK_ELEMENTS = 1 << 18


@dataclass(frozen=True)
class Params:
    """Scales of one matrix.

    Attributes:
        scale: (groups, n), in the dtype in which the kernel holds it; never zero.
        offset: (groups, n) whole numbers added to the levels, or None for symmetric schemes.
        group: Rows per group; the last group may be shorter. None: one group.
        levels: Levels (k, n) that were chosen together; None: the nearest ones.
    """

    scale: Array
    offset: Array | None
    group: int | None
    levels: Levels | None = None

    def rows(self, group: int) -> tuple[Floats, Floats | None]:
        """Return scale and offset of one group as float32 (n,)."""
        offset = None if self.offset is None else self.offset[group].astype(np.float32)
        return self.scale[group].astype(np.float32), offset


@dataclass(frozen=True)
class Closeness:
    """How far dequantized weights are from the originals; all errors relative (0 = equal).

    Attributes:
        relative: L2 norm of the difference over L2 norm of the weight.
        worst_column: The channel with the largest error.
        worst_error: Its error. Counted without the channel's largest weights too, and the larger
            of both is taken: one outlier makes the scale so coarse that all others vanish, which
            its own size would hide.
    """

    relative: float
    worst_column: int
    worst_error: float


def ranges(matrix: Floats, group: int | None) -> tuple[Doubles, Doubles]:
    """Return the smallest and the largest weight of each group, both (groups, n)."""
    size = group or matrix.shape[0]
    blocks = [matrix[start : start + size] for start in range(0, matrix.shape[0], size)]
    low = np.stack([block.min(axis=0) for block in blocks])
    high = np.stack([block.max(axis=0) for block in blocks])
    return low.astype(np.float64), high.astype(np.float64)


def fit(low: Doubles, high: Doubles, scheme: Scheme, dtype: npt.DTypeLike) -> Params:
    """Return scales and offsets that cover ``low..high`` (groups, n).

    Args:
        low: Smallest weight to represent.
        high: Largest one.
        scheme: Width and symmetry.
        dtype: Dtype in which the kernel holds the scale.
    """
    if scheme.symmetric:
        scale = _representable(np.maximum(-low, high) / scheme.high, scheme, dtype)
        return Params(scale, None, scheme.group)
    low, high = np.minimum(low, 0.0), np.maximum(high, 0.0)
    scale = _representable((high - low) / (scheme.high - scheme.low), scheme, dtype)
    zero = np.rint(scheme.low - low / scale.astype(np.float64)).clip(scheme.low, scheme.high)
    return Params(scale, -zero.astype(np.float32), scheme.group)


def encode(matrix: Floats, params: Params, scheme: Scheme) -> Levels:
    """Return the levels (k, n): the chosen ones, else the nearest."""
    if params.levels is not None:
        return params.levels
    levels = np.empty(matrix.shape, np.int8)
    for rows, group in _blocks(matrix.shape, params.group):
        levels[rows] = _encode_block(matrix[rows], *params.rows(group), scheme)
    return levels


def decode(levels: Levels, params: Params) -> Floats:
    """Return the weights (k, n) that the levels stand for."""
    weights = np.empty(levels.shape, np.float32)
    for rows, group in _blocks(levels.shape, params.group):
        weights[rows] = _decode_block(levels[rows].astype(np.float32), *params.rows(group))
    return weights


def squared_error(
    matrix: Floats, params: Params, scheme: Scheme, importance: Floats | None = None
) -> Doubles:
    """Return the squared error of each group (groups, n).

    With `importance` (k) each row's error counts that much: mean squares of the activations make
    it the error that outputs would have if activations were independent.
    """
    total = np.zeros(params.scale.shape, np.float64)
    for rows, group in _blocks(matrix.shape, params.group):
        deviation = _deviation(matrix, rows, params, group, scheme)
        if importance is not None:
            deviation *= np.sqrt(importance[rows, np.newaxis])
        total[group] += _sum_squares(deviation)
    return total


def closeness(matrix: Floats, params: Params, scheme: Scheme) -> Closeness:
    """Return how far ``decode(encode(matrix))`` is from the matrix."""
    peak = np.abs(matrix).max(axis=0)
    error, norm, quiet_error, quiet_norm = np.zeros((4, matrix.shape[1]), np.float64)
    for rows, group in _blocks(matrix.shape, params.group):
        block = matrix[rows]
        deviation = _deviation(matrix, rows, params, group, scheme)
        quiet = np.abs(block) < peak
        error += _sum_squares(deviation)
        norm += _sum_squares(block)
        quiet_error += _sum_squares(deviation * quiet)
        quiet_norm += _sum_squares(block * quiet)
    columns = np.maximum(_ratio(error, norm), _ratio(quiet_error, quiet_norm))
    worst = int(columns.argmax())
    relative = float(_ratio(error.sum(), norm.sum()))
    return Closeness(relative, worst, float(columns[worst]))


def _representable(wanted: Doubles, scheme: Scheme, dtype: npt.DTypeLike) -> Array:
    """Round scales to `dtype` so that none is zero and the largest weight is not clipped.

    In the subnormal range rounding down by up to half a unit would clip, so it goes up there.
    Channels of zeros get scale 1, which makes exact zeros.
    """
    with np.errstate(over="ignore", under="ignore"):
        scale = wanted.astype(dtype)
    held = scale.astype(np.float64) * (scheme.high + 0.5)
    up = np.nextafter(scale, np.array(np.inf, dtype))
    scale = np.where(held < wanted * scheme.high, up, scale)
    return np.where(wanted == 0, np.array(1, dtype), scale)


def _blocks(shape: tuple[int, ...], group: int | None) -> Iterator[tuple[slice, int]]:
    """Yield row slices, none across a border between groups, with the number of the group."""
    count, width = shape
    size = group or count
    step = max(1, _BLOCK_ELEMENTS // max(width, 1))
    for index, first in enumerate(range(0, count, size)):
        last = min(first + size, count)
        for start in range(first, last, step):
            yield slice(start, min(start + step, last)), index


def _encode_block(block: Floats, scale: Floats, offset: Floats | None, scheme: Scheme) -> Floats:
    with np.errstate(under="ignore", over="ignore"):
        levels: Floats = np.rint(block / scale)
    if offset is not None:
        levels -= offset
    return levels.clip(scheme.low, scheme.high, out=levels)


def _decode_block(levels: Floats, scale: Floats, offset: Floats | None) -> Floats:
    with np.errstate(under="ignore", over="ignore"):
        return (levels if offset is None else levels + offset) * scale


def _deviation(matrix: Floats, rows: slice, params: Params, group: int, scheme: Scheme) -> Floats:
    scale, offset = params.rows(group)
    if params.levels is None:
        levels = _encode_block(matrix[rows], scale, offset, scheme)
    else:
        levels = params.levels[rows].astype(np.float32)
    return _decode_block(levels, scale, offset) - matrix[rows]


def _sum_squares(block: Floats) -> Doubles:
    total: Doubles = np.square(block, dtype=np.float64).sum(axis=0)
    return total


def _ratio(error: Doubles, norm: Doubles) -> Doubles:
    """Return sqrt(error / norm); 0 where nothing deviates."""
    safe = np.where(norm > 0, norm, 1.0)
    return np.sqrt(np.where(error > 0, error / safe, 0.0))
