"""Do the sizes of a gear fit each other: equal names, and shapes that meet in a node."""

from __future__ import annotations

from collections.abc import Mapping

import onnx_ir as ir

from cannc.compiler.backends.atc.shapes import feeds
from cannc.compiler.core.shapes import shape_conflict

Sizes = Mapping[str, tuple[int, ...]]


def name_conflict(model: ir.Model, sizes: Sizes) -> str | None:
    """Return how one dimension name would get two sizes, or None."""
    bound: dict[str, int] = {}
    for name, dims in sizes.items():
        shape = feeds(model)[name].shape
        for dim, size in zip(shape or (), dims, strict=False):
            symbol = dim.value if isinstance(dim, ir.SymbolicDim) else None
            if symbol and bound.setdefault(symbol, size) != size:
                return f"dimension '{symbol}' would be {bound[symbol]} and {size} (input '{name}')"
    return None


def graph_conflict(model: ir.Model, sizes: Sizes) -> str | None:
    """Return which node cannot take these sizes, as shape inference sees it, or None."""
    fixed = model.clone()
    for name, dims in sizes.items():
        feeds(fixed)[name].shape = ir.Shape(dims)
    return shape_conflict(fixed)
