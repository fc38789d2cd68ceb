"""Work on a matrix piece by piece: pieces fit the processor's cache, and run on several threads.

numpy lets go of the interpreter inside its loops, so plain threads are enough.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TypeVar

import numpy as np
import numpy.typing as npt

from cannc.compiler.core.runner import Array
from cannc.quant.halves import to_float32

_ELEMENTS = 1 << 16
_THREADS = min(os.cpu_count() or 1, 8)

T = TypeVar("T")


@dataclass(frozen=True)
class Tile:
    """A piece of a matrix (k, n), inside one group of rows.

    Attributes:
        rows: Its rows.
        columns: Its columns.
        group: Number of the group that its rows belong to.
    """

    rows: slice
    columns: slice
    group: int

    def of(self, matrix: Array) -> npt.NDArray[np.float32]:
        """Return its numbers as float32; a view where they are."""
        return to_float32(matrix[self.rows, self.columns])


def each_tile(
    work: Callable[[Tile], T], matrix: Array, group: int | None
) -> Iterator[tuple[Tile, T]]:
    """Do `work` for every tile; yield tiles and results in order.

    Args:
        work: May write to places of its own tile only.
        matrix: Its shape and memory order decide about the tiles.
        group: Rows per group; None: one group.
    """
    tiles = list(_tiles(matrix, group))
    if len(tiles) < 4 or _THREADS == 1:
        for tile in tiles:
            yield tile, work(tile)
        return
    with ThreadPoolExecutor(_THREADS) as pool:
        yield from zip(tiles, pool.map(work, tiles), strict=True)


def _tiles(matrix: Array, group: int | None) -> Iterator[Tile]:
    """Yield pieces along memory: whole rows, or whole columns of a transposed matrix."""
    count, width = matrix.shape
    size = min(group or count, count) or 1
    by_columns = abs(matrix.strides[0]) < abs(matrix.strides[1])
    step = max(1, _ELEMENTS // size) if by_columns else max(width, 1)
    height = size if by_columns else max(1, _ELEMENTS // max(width, 1))
    for index, first in enumerate(range(0, count, size)):
        last = min(first + size, count)
        for start in range(first, last, height):
            for left in range(0, width, step):
                rows = slice(start, min(start + height, last))
                yield Tile(rows, slice(left, min(left + step, width)), index)
