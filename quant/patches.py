"""A convolution as a matrix product: the part of the input under the kernel, one row each."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import onnx_ir as ir

from cannc.quant.scales import Floats

_MAX_ROWS = 4096
"""Rows taken of one sample; neighbouring ones hold nearly the same numbers."""


def patches(node: ir.Node, shape: tuple[int, ...]) -> Callable[[Floats], Floats] | str:
    """Return a function from input (N, C, ...) to rows (m, C * kernel), or why there is none.

    Args:
        node: A Conv.
        shape: Shape of its weight (M, C, kernel...).
    """
    kernel = shape[2:]
    if node.attributes.get_int("group", 1) != 1:
        return "groups of a convolution have activations of their own each"
    if node.attributes.get_string("auto_pad", "NOTSET") not in ("NOTSET", "VALID"):
        return "auto_pad is not expanded"
    rank = len(kernel)
    strides = node.attributes.get_ints("strides", [1] * rank)
    dilations = node.attributes.get_ints("dilations", [1] * rank)
    pads = node.attributes.get_ints("pads", [0] * 2 * rank)
    extent = tuple((k - 1) * d + 1 for k, d in zip(kernel, dilations, strict=True))
    borders = [(0, 0), (0, 0), *zip(pads[:rank], pads[rank:], strict=True)]
    axes = tuple(range(2, 2 + rank))
    steps = tuple(slice(None, None, n) for n in (*strides, *dilations))

    def rows(x: Floats) -> Floats:
        windows = np.lib.stride_tricks.sliding_window_view(np.pad(x, borders), extent, axes)
        windows = windows[(slice(None), slice(None), *steps)]
        # (N, C, out..., kernel...) -> (N, out..., C, kernel...)
        moved = np.moveaxis(windows, 1, 1 + rank)
        places = int(np.prod(moved.shape[: 1 + rank]))
        index = np.arange(0, places, max(1, -(-places // _MAX_ROWS)))
        at = np.unravel_index(index, moved.shape[: 1 + rank])
        return np.ascontiguousarray(moved[at]).reshape(len(index), -1)

    return rows
