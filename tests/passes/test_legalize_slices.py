"""Slice assignments that tracing left as ScatterND."""

from __future__ import annotations

import numpy as np
import pytest
from tests.support.fusion import fuse, normal
from tests.support.models import parse

DATA = (4, 5, 3)


def assignment(indices, updates):
    dims = ", ".join(map(str, updates))
    return parse(
        f"g (float[4, 5, 3] x, float[{dims}] u) => (float[4, 5, 3] y) {{ y = ScatterND(x, i, u) }}",
        i=np.ascontiguousarray(indices, np.int64),
    )


@pytest.mark.parametrize(
    ("ranges", "ops"),
    [
        ([(1, 3)], {"Split": 1, "Concat": 1}),
        ([(0, 3)], {"Split": 1, "Concat": 1}),
        ([(0, 4), (2, 5)], {"Split": 1, "Concat": 1}),
        ([(1, 3), (2, 4)], {"Split": 2, "Concat": 2}),
        ([(1, 2), (0, 5), (1, 2)], {"Split": 2, "Concat": 2}),
        ([(0, 4)], {"Identity": 1}),
        ([(-2, 0)], {"Split": 1, "Concat": 1}),
    ],
)
def test_boxes(ranges, ops):
    grid = np.stack(np.meshgrid(*(np.arange(*r) for r in ranges), indexing="ij"), -1)
    updates = (*grid.shape[:-1], *DATA[len(ranges) :])
    feeds = {"x": normal(*DATA), "u": normal(*updates, seed=4)}
    result = fuse(assignment(grid, updates), "slice-assignment", feeds=feeds, rtol=0, atol=0)
    assert result.ops == ops


@pytest.mark.parametrize("rows", [[0, 2], [2, 1], [1, 1]])
def test_other_positions_stay(rows):
    grid = np.array(rows).reshape(-1, 1)
    feeds = {"x": normal(*DATA), "u": normal(2, 5, 3, seed=4)}
    result = fuse(assignment(grid, (2, 5, 3)), "slice-assignment", feeds=feeds, rtol=0, atol=0)
    assert result.ops == {"ScatterND": 1}
