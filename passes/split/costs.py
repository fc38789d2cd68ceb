"""What a part costs in memory, and what a cut costs in bytes that cross it."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import accumulate
from typing import TypeAlias

import numpy as np
import numpy.typing as npt
import onnx_ir as ir

from cannc.passes.split.line import Flow, Line

Shapes: TypeAlias = "Mapping[str, tuple[int, ...]]"
Places: TypeAlias = "npt.NDArray[np.int64]"

_USUAL_DIM = 32
"""Size taken for a dynamic dimension that nobody gives a size for."""
_UNKNOWN_BYTES = 2**20


class Costs:
    """Sizes along a line.

    Attributes:
        crossing: Position -> bytes of the values that cross a cut there. Inputs of the model do
            not cross: every part gets them from the caller.
    """

    def __init__(self, line: Line, shapes: Shapes) -> None:
        """Measure a line; `shapes` gives shapes of values by name where they are known."""
        flows = line.flows
        self._length = len(line.nodes)
        self._bytes = np.array([size_of(f.value, shapes) for f in flows], np.int64)
        self._made = np.array([f.made for f in flows], np.int64)
        final = [self._length if f.is_output else f.last for f in flows]
        self._final = np.array(final, np.int64)
        self._users, self._places = _edges(flows)
        self._weight_bytes = np.array([size_of(w.value, shapes) for w in line.weights], np.int64)
        self._weights, self._weight_places = _edges(line.weights)
        self.crossing = self._crossing(flows)

    def memory(self, start: int, end: int) -> tuple[int, int]:
        """Return (bytes of weights, peak bytes of activations) of the part [start, end).

        What comes in lives from the start to its last reader, what goes out lives to the end.
        """
        picked = slice(*np.searchsorted(self._weight_places, (start, end)))
        weights = int(self._weight_bytes[np.unique(self._weights[picked])].sum())
        picked = slice(*np.searchsorted(self._places, (start, end)))
        last = np.full(len(self._made), -1)
        last[self._users[picked]] = self._places[picked]  # ascending: the last reader stays
        inside = (self._made >= start) & (self._made < end)
        touched = np.flatnonzero(inside | (last >= 0))
        inside = inside[touched]
        begin = np.where(inside, self._made[touched], start)
        leaves = inside & (self._final[touched] >= end)
        stop = np.where(leaves, end - 1, np.maximum(last[touched], begin))
        span, sizes = end - start + 1, self._bytes[touched].astype(np.float64)
        change = np.bincount(begin - start, sizes, span)
        change -= np.bincount(stop - start + 1, sizes, span)
        return weights, int(np.cumsum(change).max(initial=0))

    def _crossing(self, flows: list[Flow]) -> list[int]:
        change = [0] * (self._length + 2)
        for flow, size in zip(flows, self._bytes.tolist(), strict=True):
            if flow.made >= 0 and flow.last > flow.made:
                change[flow.made + 1] += size
                change[flow.last + 1] -= size
        return list(accumulate(change))[: self._length + 1]


def size_of(value: ir.Value, shapes: Shapes) -> int:
    """Return the bytes of a value: for a known shape, or for a usual size of dynamic dims."""
    if value.const_value is not None:
        return value.const_value.nbytes
    shape = shapes.get(value.name or "", value.shape)
    if shape is None or value.dtype is None or value.dtype.is_string():
        return _UNKNOWN_BYTES
    count = 1
    for dim in shape:
        count *= dim if isinstance(dim, int) else _USUAL_DIM
    return (count * value.dtype.bitwidth + 7) // 8


def _edges(flows: list[Flow]) -> tuple[Places, Places]:
    """Return (index of the flow, position of a reader) of all readers, ascending by position."""
    pairs = sorted((place, index) for index, flow in enumerate(flows) for place in flow.uses)
    table = np.array(pairs, np.int64).reshape(-1, 2)
    return table[:, 1], table[:, 0]
