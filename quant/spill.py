"""Levels that cannot be computed again wait on disk when they are many."""

from __future__ import annotations

import tempfile

import numpy as np

from cannc.quant.scales import Levels

_IN_MEMORY_BYTES = 1 << 20


def new_levels(shape: tuple[int, ...]) -> Levels:
    """Return an int8 array to be filled; large ones live in a file that vanishes with them."""
    size = int(np.prod(shape))
    if size <= _IN_MEMORY_BYTES:
        return np.zeros(shape, np.int8)
    with tempfile.TemporaryFile() as file:
        # The mapping keeps the nameless file alive.
        return np.memmap(file, np.int8, "w+", shape=shape)
