"""Comparing dims: by number, or by symbolic name where the name means something."""

from __future__ import annotations

from typing import TypeAlias

import onnx_ir as ir

Dim: TypeAlias = "int | ir.SymbolicDim"

# Written by exporters for "some number", so the same text at two places says nothing.
_NO_NAMES = frozenset({"", "?", "*", "-1", "None", "none", "null", "unknown", "dynamic"})


def same_dim(a: Dim, b: Dim) -> bool:
    """Are two dims equal whatever the input? Unknown ones are not."""
    if isinstance(a, ir.SymbolicDim):
        return isinstance(b, ir.SymbolicDim) and a.value == b.value and _is_name(a.value)
    return a == b


def same_shape(a: ir.Shape | None, b: ir.Shape | None) -> bool:
    """Are two shapes equal whatever the input? Unknown ones are not."""
    if a is None or b is None or len(a) != len(b):
        return False
    return all(same_dim(x, y) for x, y in zip(a, b, strict=True))


def _is_name(name: object) -> bool:
    return isinstance(name, str) and name not in _NO_NAMES
