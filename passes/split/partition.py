"""Choosing cuts: the costliest part as cheap as can be, then the fewest bytes crossing."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import numpy.typing as npt

Cost = Callable[[int, int], float]
"""Cost of the part between two positions of the line; infinite for it and all longer ones if it
may not be."""


def partition(
    points: Sequence[int], parts: int, cost: Cost, crossing: Sequence[int], slack: float
) -> list[int] | None:
    """Return the cuts of the best partition.

    Args:
        points: Start of the line, possible cuts, end of the line; ascending.
        parts: Number of parts.
        cost: Cost of a part.
        crossing: Position -> bytes that cross a cut there.
        slack: By what share the costliest part may be above the optimum to save crossing bytes.

    Returns:
        ``parts - 1`` positions, or None when every partition has a part of infinite cost.
    """
    size = len(points)
    costs = np.full((size, size), np.inf)
    for first in range(size):
        for last in range(first + 1, size):
            costs[first, last] = cost(points[first], points[last])
            if costs[first, last] == np.inf:
                break
    bottleneck = np.full(size, np.inf)
    bottleneck[0] = 0.0
    for _ in range(parts):
        bottleneck = np.maximum(bottleneck[:, None], costs).min(axis=0)
    if not np.isfinite(bottleneck[-1]):
        return None
    allowed = costs <= bottleneck[-1] * (1 + slack)
    crossed = np.array([*(crossing[p] for p in points[:-1]), 0], np.float64)
    return _fewest_bytes(points, parts, np.where(allowed, crossed, np.inf))


def _fewest_bytes(
    points: Sequence[int],
    parts: int,
    steps: npt.NDArray[np.float64],
) -> list[int]:
    """Return the cuts of the path over `parts` steps with the least sum."""
    total = np.full(len(points), np.inf)
    total[0] = 0.0
    came_from = []
    for _ in range(parts):
        sums = total[:, None] + steps
        came_from.append(sums.argmin(axis=0))
        total = sums.min(axis=0)
    cuts, at = [], len(points) - 1
    for previous in reversed(came_from[1:]):
        at = int(previous[at])
        cuts.append(points[at])
    return cuts[::-1]
