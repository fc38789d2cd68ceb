"""Every weight seen as one matrix (k, n): k inputs are summed, n channels have their own scale."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from cannc.compiler.core.runner import Array


@dataclass(frozen=True)
class Layout:
    """How a weight tensor maps to its matrix.

    Attributes:
        shape: Shape of the weight as its node reads it.
        channels: Axes that have scales of their own, ascending (output channels, and the batch
            axes of stacked weights). The node sums over all other axes.
    """

    shape: tuple[int, ...]
    channels: tuple[int, ...]

    @property
    def reduced(self) -> tuple[int, ...]:
        """Axes that the node sums over."""
        return tuple(axis for axis in range(len(self.shape)) if axis not in self.channels)

    @property
    def k(self) -> int:
        """Rows of the matrix: weights per channel."""
        return math.prod(self.shape[axis] for axis in self.reduced)

    @property
    def n(self) -> int:
        """Columns of the matrix: channels."""
        return math.prod(self.shape[axis] for axis in self.channels)

    def to_matrix(self, weight: Array) -> Array:
        """Return the weight, of `shape`, as matrix (k, n)."""
        return weight.transpose(self._order).reshape(self.k, self.n)

    def from_matrix(self, matrix: Array) -> Array:
        """Return matrix (k, n) in the weight's own shape."""
        return self._restore(matrix, [self.shape[axis] for axis in self.reduced])

    def spread(self, table: Array) -> Array:
        """Return scales (groups, n) in a shape that broadcasts against the weight.

        With several groups the one summed axis has length ``groups``.
        """
        ones = [1] * (len(self.reduced) - 1)
        return self._restore(table, [table.shape[0], *ones])

    @property
    def _order(self) -> tuple[int, ...]:
        return (*self.reduced, *self.channels)

    def _restore(self, matrix: Array, leading: list[int]) -> Array:
        stacked = matrix.reshape(*leading, *(self.shape[axis] for axis in self.channels))
        return np.ascontiguousarray(stacked.transpose(np.argsort(self._order)))
