"""More about the worst layers: how their numbers are distributed, and what is around them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import onnx_ir as ir

from cannc.compiler.core.runner import Array
from cannc.golden.regions import reads

BINS = 32
KEPT = 10
"""How many layers get details."""
_MOST_ELEMENTS = 2**17


@dataclass(frozen=True)
class Histogram:
    """Counts in equal bins from `low` to `high`; what is not finite is left out."""

    low: float
    high: float
    counts: tuple[int, ...]


@dataclass(frozen=True)
class Histograms:
    """Distributions of golden's numbers and the candidate's, over one range, and of the error.

    Of large tensors every n-th element is counted.
    """

    golden: Histogram
    candidate: Histogram
    difference: Histogram


@dataclass(frozen=True)
class Neighbour:
    """A node near a culprit: its name, operator, and the value that connects them."""

    node: str
    op_type: str
    value: str


@dataclass(frozen=True)
class Detail:
    """More about one row.

    Attributes:
        histograms: Of the isolated error; None for text and where nothing was finite.
        before: Nodes of the candidate that feed its node.
        after: Nodes that read its value.
    """

    histograms: Histograms | None = None
    before: tuple[Neighbour, ...] = ()
    after: tuple[Neighbour, ...] = ()


class Gallery:
    """Keeps the histograms of the rows with the largest severity, one by one as they come."""

    def __init__(self) -> None:
        self._kept: dict[str, tuple[float, Histograms | None]] = {}

    def offer(self, row: str, severity: float, golden: Array, candidate: Array) -> None:
        """Keep a row if it is among the worst so far."""
        if severity <= max(0.0, self._kept.get(row, (0.0, None))[0]):
            return
        if row not in self._kept and len(self._kept) == KEPT:
            least = min(self._kept, key=lambda name: self._kept[name][0])
            if self._kept[least][0] >= severity:
                return
            del self._kept[least]
        self._kept[row] = severity, histograms(golden, candidate)

    def rows(self) -> dict[str, Histograms | None]:
        """Return what is kept."""
        return {row: found for row, (_, found) in self._kept.items()}


def histograms(golden: Array, candidate: Array) -> Histograms | None:
    """Return the distributions of two tensors of one shape and of their difference."""
    if golden.dtype.kind in "OSUTc" or candidate.dtype.kind in "OSUTc" or not golden.size:
        return None
    step = -(-golden.size // _MOST_ELEMENTS)
    left = golden.reshape(-1)[::step].astype(np.float64)
    right = candidate.reshape(-1)[::step].astype(np.float64)
    finite = np.isfinite(left) & np.isfinite(right)
    if not finite.any():
        return None
    left, right = left[finite], right[finite]
    low, high = float(min(left.min(), right.min())), float(max(left.max(), right.max()))
    with np.errstate(over="ignore"):
        error = right - left
    error = error[np.isfinite(error)]
    first, last = (float(error.min()), float(error.max())) if error.size else (0.0, 0.0)
    return Histograms(
        _counted(left, low, high), _counted(right, low, high), _counted(error, first, last)
    )


def _counted(array: npt.NDArray[np.float64], low: float, high: float) -> Histogram:
    width = high - low
    if not 0.0 < width < np.inf:
        return Histogram(low, high, (int(array.size),))
    places = np.clip((array - low) / width * BINS, 0, BINS - 1).astype(np.int64)
    return Histogram(low, high, tuple(np.bincount(places, minlength=BINS).tolist()))


def details(model: ir.Model, gallery: Gallery, values: Mapping[str, str]) -> dict[str, Detail]:
    """Return the details of the rows in a gallery.

    Args:
        model: The candidate.
        gallery: The rows.
        values: Row name -> value of the candidate's main graph.
    """
    known = {value.name: value for node in model.graph for value in node.outputs}
    found: dict[str, Detail] = {}
    for row, shown in gallery.rows().items():
        value = known.get(values.get(row, ""))
        producer = value.producer() if value is not None else None
        before = [v for v in reads(producer) if v.producer()] if producer is not None else []
        after = [user for user, _ in value.uses()] if value is not None else []
        found[row] = Detail(
            shown,
            tuple(dict.fromkeys(_neighbour(v.producer(), v) for v in before)),
            tuple(dict.fromkeys(_neighbour(user, value) for user in after)),
        )
    return found


def _neighbour(node: ir.Node | None, value: ir.Value | None) -> Neighbour:
    assert node is not None
    assert value is not None
    return Neighbour(node.name or "", node.op_type, value.name or "")
