"""Scales and levels of a weight matrix (k, n), and how far the result is from the weight.

A stored weight means ``w = (level + offset) * scale``, as Ascend's kernels have it (npu-ops.md
section 4). Levels are chosen against the scale *as the kernel holds it*: float16 rounds a scale by
up to 0.05 %, which at level 127 would be a sixteenth of a step.

Work goes tile by tile, so that temporaries stay in the cache. Errors are summed in units of the
scale: squares stay in range whatever the size of the weights.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from cannc.compiler.core.runner import Array
from cannc.quant.scheme import Scheme
from cannc.quant.tiles import Tile, each_tile

Floats = npt.NDArray[np.float32]
Doubles = npt.NDArray[np.float64]
Levels = npt.NDArray[np.int8]
Bounds = tuple[Doubles, Doubles]
"""Smallest and largest weight of each group, both (groups, n)."""


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

    def of(self, tile: Tile) -> tuple[Floats, Floats | None]:
        """Return scale and offset of a tile's columns as float32."""
        scale = self.scale[tile.group, tile.columns].astype(np.float32)
        if self.offset is None:
            return scale, None
        return scale, self.offset[tile.group, tile.columns].astype(np.float32)


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


def ranges(matrix: Array, group: int | None) -> Bounds:
    """Return the smallest and the largest weight of each group, both (groups, n); NaN spreads."""
    count = -(-matrix.shape[0] // group) if group else 1
    low = np.full((count, matrix.shape[1]), np.inf)
    high = np.full((count, matrix.shape[1]), -np.inf)

    def extremes(tile: Tile) -> tuple[Floats, Floats]:
        block = tile.of(matrix)
        return block.min(axis=0), block.max(axis=0)

    for tile, (least, most) in each_tile(extremes, matrix, group):
        place = (tile.group, tile.columns)
        low[place] = np.minimum(low[place], least)
        high[place] = np.maximum(high[place], most)
    return low, high


def fit(low: Doubles, high: Doubles, scheme: Scheme, dtype: npt.DTypeLike) -> Params:
    """Return scales and offsets that cover ``low..high`` (groups, n).

    Args:
        low: Smallest weight to represent.
        high: Largest one.
        scheme: Width and symmetry.
        dtype: Dtype in which the kernel holds the scale.
    """
    if scheme.symmetric:
        scale = _representable(np.maximum(-low, high) / scheme.high, scheme.high, dtype)
        return Params(scale, None, scheme.group)
    low, high = np.minimum(low, 0.0), np.maximum(high, 0.0)
    scale = _representable(
        (high - low) / (scheme.high - scheme.low), scheme.high - scheme.low, dtype
    )
    zero = np.rint(scheme.low - low / scale.astype(np.float64)).clip(scheme.low, scheme.high)
    return Params(scale, -zero.astype(np.float32), scheme.group)


def widened(matrix: Array) -> Floats:
    """Return a matrix as float32; itself where it is."""
    if matrix.dtype == np.float32:
        return matrix.view(np.float32)
    wide: Floats = np.empty_like(matrix, np.float32)

    def write(tile: Tile) -> None:
        wide[tile.rows, tile.columns] = tile.of(matrix)

    for _ in each_tile(write, matrix, None):
        pass
    return wide


def encode(matrix: Array, params: Params, scheme: Scheme) -> Levels:
    """Return the levels (k, n): the chosen ones, else the nearest."""
    if params.levels is not None:
        return params.levels
    levels: Levels = np.empty_like(matrix, np.int8)

    def write(tile: Tile) -> None:
        scale, offset = params.of(tile)
        steps = _steps(tile.of(matrix), scale)
        levels[tile.rows, tile.columns] = _nearest(steps, offset, scheme)

    for _ in each_tile(write, matrix, params.group):
        pass
    return levels


def decode(levels: Levels, params: Params) -> Floats:
    """Return the weights (k, n) that the levels stand for."""
    weights: Floats = np.empty_like(levels, np.float32)

    def write(tile: Tile) -> None:
        scale, offset = params.of(tile)
        block = tile.of(levels)
        with np.errstate(under="ignore", over="ignore"):
            weights[tile.rows, tile.columns] = (block if offset is None else block + offset) * scale

    for _ in each_tile(write, levels, params.group):
        pass
    return weights


def squared_error(
    matrix: Array, params: Params, scheme: Scheme, importance: Floats | None = None
) -> Doubles:
    """Return the squared error of each group (groups, n).

    With `importance` (k) each row's error counts that much: mean squares of the activations make
    it the error that outputs would have if activations were independent.
    """
    factors = None if importance is None else np.sqrt(importance)[:, np.newaxis]

    def measure(tile: Tile) -> Floats:
        _, deviation = _in_steps(matrix, tile, params, scheme)
        if factors is not None:
            deviation *= factors[tile.rows]
        return _sum_squares(deviation)

    total = np.zeros(params.scale.shape, np.float64)
    for tile, error in each_tile(measure, matrix, params.group):
        total[tile.group, tile.columns] += error
    return total * np.square(params.scale.astype(np.float64))


def closeness(matrix: Array, params: Params, scheme: Scheme, peak: Floats) -> Closeness:
    """Return how far ``decode(encode(matrix))`` is from the matrix.

    Args:
        matrix: The weight (k, n).
        params: Its scales.
        scheme: Its scheme.
        peak: Largest absolute weight of each column (n).
    """

    def measure(tile: Tile) -> tuple[Floats, Floats, Floats, Floats]:
        steps, deviation = _in_steps(matrix, tile, params, scheme)
        limit = _steps(peak[tile.columns], params.of(tile)[0])
        size = np.abs(steps)
        # Few columns have their largest weight in this tile, so only these are searched for it.
        (found,) = np.nonzero(size.max(axis=0) >= limit)
        loud = size[:, found] >= limit[found]
        loud_error, loud_norm = np.zeros((2, len(limit)), np.float32)
        loud_error[found] = _sum_squares(deviation[:, found] * loud)
        loud_norm[found] = _sum_squares(steps[:, found] * loud)
        return _sum_squares(deviation), _sum_squares(steps), loud_error, loud_norm

    sums = np.zeros((4, matrix.shape[1]), np.float64)
    for tile, parts in each_tile(measure, matrix, params.group):
        squared_scale = np.square(params.scale[tile.group, tile.columns].astype(np.float64))
        sums[:, tile.columns] += np.stack(parts) * squared_scale
    error, norm, loud_error, loud_norm = sums
    quiet = _ratio(error - loud_error, norm - loud_norm)
    columns = np.maximum(_ratio(error, norm), quiet)
    worst = int(columns.argmax())
    relative = float(_ratio(error.sum(), norm.sum()))
    return Closeness(relative, worst, float(columns[worst]))


def _representable(wanted: Doubles, span: int, dtype: npt.DTypeLike) -> Array:
    """Round scales to `dtype` so that none is zero and `span` steps lose at most half a step.

    In the subnormal range rounding down by up to half a unit would clip, so it goes up there.
    Channels of zeros get scale 1, which makes exact zeros.
    """
    with np.errstate(over="ignore", under="ignore"):
        scale = wanted.astype(dtype)
    held = scale.astype(np.float64) * (span + 0.5)
    up = np.nextafter(scale, np.array(np.inf, dtype))
    scale = np.where(held < wanted * span, up, scale)
    return np.where(wanted == 0, np.array(1, dtype), scale)


def _steps(block: Floats, scale: Floats) -> Floats:
    """Return weights in units of their scale."""
    with np.errstate(under="ignore", over="ignore"):
        return np.divide(block, scale)


def _nearest(steps: Floats, offset: Floats | None, scheme: Scheme) -> Floats:
    levels: Floats = np.rint(steps)
    if offset is not None:
        levels -= offset
    return levels.clip(scheme.low, scheme.high, out=levels)


def _in_steps(matrix: Array, tile: Tile, params: Params, scheme: Scheme) -> tuple[Floats, Floats]:
    """Return a tile's weights and their deviation, both in units of the scale."""
    scale, offset = params.of(tile)
    steps = _steps(tile.of(matrix), scale)
    chosen = params.levels
    levels = _nearest(steps, offset, scheme) if chosen is None else tile.of(chosen)
    if offset is not None:
        levels = levels + offset
    return steps, levels - steps


def _sum_squares(block: Floats) -> Floats:
    """Return the sum of squares per column; tiles are small enough for float32."""
    total: Floats = np.einsum("ij,ij->j", block, block)
    return total


def _ratio(error: Doubles, norm: Doubles) -> Doubles:
    """Return sqrt(error / norm); 0 where nothing deviates."""
    safe = np.where(norm > 0, norm, 1.0)
    return np.sqrt(np.where((error > 0) & (norm > 0), error / safe, 0.0))
