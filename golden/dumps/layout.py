"""Device layouts back to the network's (pyacl.md section 7).

Fractal layouts cut the channels, or the last two dimensions, into blocks of 8, 16 or 32 and fill
the last block up; the filling is cut off here.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from cannc.compiler.core.runner import Array

NCHW, NHWC, ND, NC1HWC0 = 0, 1, 2, 3
NC1HWC0_C04, NDHWC, FRACTAL_NZ, NCDHW, NDC1HWC0 = 12, 27, 29, 30, 32
_FRACTAL_NZ = frozenset({FRACTAL_NZ, *range(50, 55)})
_BLOCKED = {NC1HWC0: NCHW, NC1HWC0_C04: NCHW, NDC1HWC0: NCDHW}
"""Layouts with blocked channels -> the layout that is left when the blocks are joined."""
_TO_LAST = {(NCHW, NHWC): (0, 2, 3, 1), (NCDHW, NDHWC): (0, 2, 3, 4, 1)}
_PLAIN = frozenset({-1, NCHW, NHWC, ND, 16, NDHWC, NCDHW, 35, 47})
_MOST_BITS_OF_FORMAT = 0xFF


def restore(array: Array, layout: int, origin: int, shape: Sequence[int]) -> Array:
    """Return a dumped tensor in the network's layout and shape.

    Args:
        array: In its device shape.
        layout: GE's number of the device layout; what stands above the low byte is ignored.
        origin: The same of the network's layout; -1 when it is not known.
        shape: The network's shape.

    Raises:
        ValueError: the layout is not known here, or the shapes do not fit.
    """
    layout = layout if layout < 0 else layout & _MOST_BITS_OF_FORMAT
    if layout in _BLOCKED:
        array, layout = _join_channels(array), _BLOCKED[layout]
        array = _cut(_turn(array, layout, origin), shape)
    elif layout in _FRACTAL_NZ:
        array = _cut_matrix(_join_matrix(array), shape)
    elif layout in _PLAIN:
        array = _turn(array, layout, origin)
    else:
        message = f"layout {layout} cannot be undone"
        raise ValueError(message)
    if array.size != math.prod(shape):
        message = f"{array.shape} does not hold {tuple(shape)}"
        raise ValueError(message)
    return array.reshape(tuple(shape))


def _join_channels(array: Array) -> Array:
    """Undo N, (D,) C1, H, W, C0; C1 is the fourth last axis."""
    if array.ndim not in (5, 6):
        message = f"blocked channels need rank 5 or 6, there is {array.shape}"
        raise ValueError(message)
    outer = array.ndim - 4
    # Both channel axes go behind N: N, C1, C0, (D,) H, W.
    order = (0, outer, array.ndim - 1, *range(1, outer), outer + 1, outer + 2)
    array = array.transpose(order)
    return array.reshape(array.shape[0], array.shape[1] * array.shape[2], *array.shape[3:])


def _join_matrix(array: Array) -> Array:
    """Undo ..., N1, M1, M0, N0."""
    if array.ndim < 4:
        message = f"FRACTAL_NZ needs rank 4 at least, there is {array.shape}"
        raise ValueError(message)
    outer = array.ndim - 4
    n1, m1, m0, n0 = (outer + i for i in range(4))
    array = array.transpose(*range(outer), m1, m0, n1, n0)
    rows, columns = (array.shape[i] * array.shape[i + 1] for i in (outer, outer + 2))
    return array.reshape(*array.shape[:outer], rows, columns)


def _turn(array: Array, layout: int, origin: int) -> Array:
    """Move the channels to where the network has them, if that is known and elsewhere."""
    if (layout, origin) in _TO_LAST:
        return array.transpose(_TO_LAST[layout, origin])
    if (origin, layout) in _TO_LAST:
        return array.transpose(np.argsort(_TO_LAST[origin, layout]))
    return array


def _cut(array: Array, shape: Sequence[int]) -> Array:
    if array.ndim != len(shape):
        return array
    return array[tuple(slice(size) for size in shape)]


def _cut_matrix(array: Array, shape: Sequence[int]) -> Array:
    rows = shape[-2] if len(shape) > 1 else 1
    columns = shape[-1] if shape else 1
    return array[..., :rows, :columns]
