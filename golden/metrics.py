"""How far two tensors are apart.

Defined for every pair of equal shape: zero, constant, scalar, empty, integer and bool tensors
included. Arithmetic is done in float64 after widening, block by block, so that unsigned bytes do
not wrap around and a large tensor costs a bounded amount of extra memory.

Elements that are not finite on either side are compared by kind and position and left out of the
numeric figures: one Inf would turn all of them into NaN and hide the rest of the tensor.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt
import onnx_ir as ir

from cannc.compiler.core.runner import Array
from cannc.golden.masks import agreeing_masks, mask_floor

# Small enough for the cache, and for BLAS to compute dot products without waking threads: beyond
# 10,000 elements they cost 30 times as much on a busy machine.
_BLOCK_ELEMENTS = 2**13

Position = tuple[int, ...]
_Block = npt.NDArray[np.float64]


@dataclass(frozen=True)
class NonFinite:
    """NaN and Inf in one tensor, and the position of the first of them."""

    nan: int = 0
    inf: int = 0
    first: Position | None = None


@dataclass(frozen=True)
class Metrics:
    """Distance of a candidate tensor from the golden one.

    Attributes:
        elements: Number of elements.
        exact: Both sides are integer, bool or string, so that equality is what counts.
        mismatches: Elements that differ at all (NaN equals NaN).
        cosine: Cosine similarity; 1 when equal or both zero, 0 when one side is zero.
        max_abs: Largest absolute difference.
        max_rel: Largest |difference| / |golden|, over elements where golden is not zero.
        rmse: Root mean square of the difference.
        rel_l2: L2 norm of the difference / L2 norm of golden; inf for golden zero and another
            candidate.
        snr_db: 10 log10(signal power / noise power), decibel; inf when equal.
        golden_max: Largest |golden|.
        worst_at: Position of the largest absolute difference.
        golden: NaN and Inf in the golden tensor.
        candidate: NaN and Inf in the candidate.
        disagreements: Positions where one side is NaN or Inf and the other is not the same.
        overflows: Positions where golden is finite and the candidate is infinite.
        underflows: Positions where golden is not zero and the candidate is.
        masked: Mask constants on which both sides agree (`masks`); they count as equal and are left
            out of the figures.
    """

    elements: int
    exact: bool = False
    mismatches: int = 0
    cosine: float = 1.0
    max_abs: float = 0.0
    max_rel: float = 0.0
    rmse: float = 0.0
    rel_l2: float = 0.0
    snr_db: float = math.inf
    golden_max: float = 0.0
    worst_at: Position | None = None
    golden: NonFinite = NonFinite()
    candidate: NonFinite = NonFinite()
    disagreements: int = 0
    overflows: int = 0
    underflows: int = 0
    masked: int = 0


def is_exact(dtype: np.dtype[np.generic]) -> bool:
    """Return whether values of this dtype must agree exactly: integers, bools, strings."""
    if dtype.kind in "biuOSUT":
        return True
    return dtype.kind == "V" and not ir.DataType.from_numpy(dtype).is_floating_point()


def measure(golden: Array, candidate: Array, *, half: bool = False) -> Metrics:
    """Return the distance between two tensors.

    Args:
        golden: Reference, any shape and dtype.
        candidate: What is judged, the same shape.
        half: The candidate computes in half precision, so its mask constants may be clipped.

    Raises:
        ValueError: the shapes differ.
    """
    golden, candidate = np.asarray(golden), np.asarray(candidate)
    if golden.shape != candidate.shape:
        msg = f"shapes differ: golden {golden.shape}, candidate {candidate.shape}"
        raise ValueError(msg)
    if golden.dtype.kind in "OSUT" or candidate.dtype.kind in "OSUT":
        return _measure_text(golden, candidate)
    exact = is_exact(golden.dtype) and is_exact(candidate.dtype)
    totals = _accumulate(golden, candidate, half, 1.0)
    if not totals.representable:
        # Squares left the range of float64: measure scaled tensors, then scale back.
        totals = _accumulate(golden, candidate, half, totals.largest)
    return totals.metrics(golden.shape, exact=exact)


def _measure_text(golden: Array, candidate: Array) -> Metrics:
    different = np.atleast_1d(golden.astype(str) != candidate.astype(str))
    count = int(np.count_nonzero(different))
    same = count == 0
    return Metrics(
        elements=golden.size,
        exact=True,
        mismatches=count,
        cosine=1.0 if same else 0.0,
        max_abs=float(count > 0),
        rel_l2=0.0 if same else math.inf,
        snr_db=math.inf if same else -math.inf,
        worst_at=None if same else _position(int(different.argmax()), golden.shape),
    )


@dataclass
class _Totals:
    """Running sums over blocks; numbers are divided by `scale` before they are squared."""

    scale: float
    golden_square: float = 0.0
    candidate_square: float = 0.0
    product: float = 0.0
    error_square: float = 0.0
    max_abs: float = 0.0
    max_rel: float = 0.0
    golden_max: float = 0.0
    candidate_max: float = 0.0
    worst: int | None = None
    counted: int = 0
    mismatches: int = 0
    disagreements: int = 0
    overflows: int = 0
    underflows: int = 0
    masked: int = 0
    golden: _NonFiniteCount = field(default_factory=lambda: _NonFiniteCount())
    candidate: _NonFiniteCount = field(default_factory=lambda: _NonFiniteCount())

    @property
    def largest(self) -> float:
        return max(self.golden_max, self.candidate_max)

    @property
    def representable(self) -> bool:
        """Whether no square overflowed, or vanished although its root is not zero."""
        if self.scale != 1.0 or self.largest == 0.0:
            return True
        sums = (self.golden_square, self.candidate_square, self.error_square)
        roots = (self.golden_max, self.candidate_max, self.max_abs)
        tiny = np.finfo(np.float64).tiny
        return all(
            math.isfinite(square) and (square > tiny or root == 0.0)
            for square, root in zip(sums, roots, strict=True)
        )

    def add(self, start: int, golden: _Block, candidate: _Block) -> None:
        """Add one block of finite numbers; `start` is its flat offset."""
        with np.errstate(over="ignore", under="ignore", invalid="ignore", divide="ignore"):
            error = candidate - golden
            if error.any():
                self._add_error(start, golden, candidate, np.abs(error))
            else:
                self.golden_max = max(self.golden_max, _largest(golden))
            if self.scale != 1.0:
                golden, candidate = golden / self.scale, candidate / self.scale
                error = candidate - golden
            self.golden_square += float(golden @ golden)
            self.candidate_square += float(candidate @ candidate)
            self.product += float(golden @ candidate)
            self.error_square += float(error @ error)
        self.counted += golden.size

    def _add_error(self, start: int, golden: _Block, candidate: _Block, distance: _Block) -> None:
        """Add the figures per element of a block that is not equal on both sides."""
        worst = int(distance.argmax())
        if distance[worst] > self.max_abs:
            self.max_abs, self.worst = float(distance[worst]), start + worst
        magnitude = np.abs(golden)
        relative = float((distance / magnitude).max())
        if not math.isfinite(relative):  # golden has zeros
            relative = float((distance / np.where(magnitude == 0.0, np.inf, magnitude)).max())
        self.max_rel = max(self.max_rel, relative)
        if not candidate.all():
            self.underflows += int(np.count_nonzero((candidate == 0) & (golden != 0)))
        self.golden_max = max(self.golden_max, float(magnitude.max()))
        self.candidate_max = max(self.candidate_max, _largest(candidate))

    def metrics(self, shape: tuple[int, ...], *, exact: bool) -> Metrics:
        norms = math.sqrt(self.golden_square) * math.sqrt(self.candidate_square)
        equal = self.max_abs == 0.0
        if equal or self.largest == 0.0:
            cosine = 1.0
        else:
            cosine = max(-1.0, min(1.0, self.product / norms)) if norms > 0 else 0.0
        ratio = self.error_square / self.golden_square if self.golden_square > 0 else math.inf
        rmse = math.sqrt(self.error_square / max(self.counted, 1)) * self.scale
        return Metrics(
            elements=math.prod(shape),
            exact=exact,
            mismatches=self.mismatches,
            cosine=cosine,
            max_abs=self.max_abs,
            max_rel=self.max_rel,
            rmse=rmse,
            rel_l2=0.0 if equal else math.sqrt(ratio),
            snr_db=_decibel(0.0 if equal else ratio),
            golden_max=self.golden_max,
            worst_at=None if self.worst is None else _position(self.worst, shape),
            golden=self.golden.result(shape),
            candidate=self.candidate.result(shape),
            disagreements=self.disagreements,
            overflows=self.overflows,
            underflows=self.underflows,
            masked=self.masked,
        )


@dataclass
class _NonFiniteCount:
    nan: int = 0
    inf: int = 0
    first: int | None = None

    def add(self, start: int, block: _Block) -> None:
        nan, inf = np.isnan(block), np.isinf(block)
        self.nan += int(np.count_nonzero(nan))
        self.inf += int(np.count_nonzero(inf))
        bad = nan | inf
        if self.first is None and bad.any():
            self.first = start + int(bad.argmax())

    def result(self, shape: tuple[int, ...]) -> NonFinite:
        first = None if self.first is None else _position(self.first, shape)
        return NonFinite(self.nan, self.inf, first)


def _accumulate(golden: Array, candidate: Array, half: bool, scale: float) -> _Totals:
    totals = _Totals(scale)
    whole = is_exact(golden.dtype) or is_exact(candidate.dtype)
    for start, reference, actual in _blocks(golden, candidate):
        g, c = reference.astype(np.float64), actual.astype(np.float64)
        # numpy compares integers of any two widths and signs by value, without rounding; floats
        # are compared once widened, which is exact and for float16 ten times as fast.
        differ = reference != actual if whole else g != c
        totals.mismatches += int(np.count_nonzero(differ))
        if not _is_ordinary(g, c, half):
            masked = agreeing_masks(g, c, half=half)
            if masked is not None:
                totals.masked += int(np.count_nonzero(masked))
                g, c = np.where(masked, 0.0, g), np.where(masked, 0.0, c)
            if not (np.isfinite(g).all() and np.isfinite(c).all()):
                g, c = _without_nonfinite(totals, start, g, c)
        totals.add(start, g, c)
    return totals


def _blocks(golden: Array, candidate: Array) -> Iterator[tuple[int, Array, Array]]:
    left, right = golden.reshape(-1), candidate.reshape(-1)
    for start in range(0, left.size, _BLOCK_ELEMENTS):
        stop = start + _BLOCK_ELEMENTS
        yield start, left[start:stop], right[start:stop]


def _is_ordinary(golden: _Block, candidate: _Block, half: bool) -> bool:
    """Whether a block has no NaN, Inf or mask constant: two dot products answer for nearly all."""
    with np.errstate(over="ignore", under="ignore", invalid="ignore"):
        small = float(golden @ golden) < mask_floor(half) ** 2  # so is every element
        return small and math.isfinite(float(candidate @ candidate))


def _largest(block: _Block) -> float:
    return max(float(block.max()), -float(block.min()))


def _without_nonfinite(
    totals: _Totals, start: int, golden: _Block, candidate: _Block
) -> tuple[_Block, _Block]:
    """Count what is not finite; return copies in which such pairs are zero on both sides."""
    totals.golden.add(start, golden)
    totals.candidate.add(start, candidate)
    bad = ~(np.isfinite(golden) & np.isfinite(candidate))
    both_nan = np.isnan(golden) & np.isnan(candidate)
    agree = (golden == candidate) | both_nan
    totals.mismatches -= int(np.count_nonzero(both_nan))
    totals.disagreements += int(np.count_nonzero(bad & ~agree))
    totals.overflows += int(np.count_nonzero(np.isfinite(golden) & np.isinf(candidate)))
    return np.where(bad, 0.0, golden), np.where(bad, 0.0, candidate)


def _decibel(noise_to_signal: float) -> float:
    if noise_to_signal == 0.0:
        return math.inf
    return -math.inf if math.isinf(noise_to_signal) else -10.0 * math.log10(noise_to_signal)


def _position(flat: int, shape: tuple[int, ...]) -> Position:
    return tuple(int(i) for i in np.unravel_index(flat, shape)) if shape else ()
