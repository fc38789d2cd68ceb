"""ScatterND that writes a box, as tracing ``x[:, 2:5] = u`` leaves it.

Before:  y = ScatterND(x, i, u), i the constant positions of rows 2 to 4
After:   a, _, b = Split(x, [2, 3, n - 5]);  y = Concat(a, u, b)

Axis by axis: where several are cut, the middle part is assigned to in the same way. Positions must
be constants in the order of the box, each written once; sizes along the box must be static.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import onnx_ir as ir

from cannc.compiler.core.runner import Array
from cannc.compiler.core.shapes import static_shape
from cannc.passes.base import Numerics
from cannc.passes.legalize.base import EditCure
from cannc.passes.opset.edit import Edit
from cannc.passes.pattern import array_of


class _Range(NamedTuple):
    """Positions of the box along one axis."""

    axis: int
    start: int
    length: int
    size: int


class SliceAssignment(EditCure):
    """See the module."""

    name = "slice-assignment"
    summary = "ScatterND that writes a box -> Split, Concat"
    numerics = Numerics.EXACT
    op_types = frozenset({"ScatterND"})

    def needs(self, edit: Edit) -> bool:
        """Are its positions constant and those of a box?"""
        if edit.node.attributes.get_string("reduction", "none") != "none":
            return False
        indices, shape = array_of(edit.input(1)), static_shape(edit.data())
        return indices is not None and shape is not None and _box(indices, shape) is not None

    def obstacle(self, edit: Edit) -> str | None:
        """There is none."""
        return None

    def apply(self, edit: Edit) -> None:
        """Put the updates between what stays."""
        indices, shape = array_of(edit.input(1)), static_shape(edit.data())
        assert indices is not None
        assert shape is not None
        cut = [part for part in _box(indices, shape) or () if part.length < part.size]
        nodes: list[ir.Node] = []
        updates = edit.input(2)
        assert updates is not None
        if cut:
            _assign(edit, edit.data(), updates, cut, nodes)
        else:
            nodes.append(edit.make("Identity", updates))
        edit.put(nodes)


def _assign(
    edit: Edit, x: ir.Value, updates: ir.Value, cut: list[_Range], nodes: list[ir.Node]
) -> ir.Value:
    """Add nodes that write `updates` into the ranges of x; return what comes out."""
    axis, start, length, size = cut[0]
    sizes = [start, length, size - start - length]
    parts = [number for number in sizes if number]
    split = edit.ctx.rewriter.node(
        "Split", [x, edit.constant(parts)], {"axis": axis}, num_outputs=len(parts)
    )
    nodes.append(split)
    pieces = list(split.outputs)
    middle = 1 if start else 0
    rest = cut[1:]
    pieces[middle] = _assign(edit, pieces[middle], updates, rest, nodes) if rest else updates
    nodes.append(edit.make("Concat", *pieces, attributes={"axis": axis}))
    return nodes[-1].outputs[0]


def _box(indices: Array, shape: tuple[int, ...]) -> list[_Range] | None:
    """Return the box whose positions the indices list in order, one leading axis per data axis."""
    width = indices.shape[-1]
    if indices.ndim != width + 1 or indices.size == 0:
        return None
    places = np.where(np.less(indices, 0), indices + np.array(shape[:width]), indices)
    found = []
    for axis in range(width):
        count = indices.shape[axis]
        start = int(places[(0,) * width + (axis,)])
        line = np.arange(start, start + count).reshape(
            [-1 if i == axis else 1 for i in range(width)]
        )
        if not np.array_equal(places[..., axis], np.broadcast_to(line, places.shape[:-1])):
            return None
        found.append(_Range(axis, start, count, shape[axis]))
    return found
