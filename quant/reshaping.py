"""Reshape pairs around a kernel that takes 2-D activations only, right for every dynamic shape.

``x (..., k)`` becomes ``(-1, k)``, and the product ``(m, n)`` becomes ``(..., n)`` again. With at
most one unknown leading dimension the second shape is a constant; otherwise it is taken from x when
the graph runs, its last leading dimension as -1, so that an empty sequence stays one (an empty
batch of unknown size beside it fails in Reshape; the kernel takes no empty tensors anyway).

All activations of a graph with the same leading dimensions (in ONNX, equal names mean equal sizes)
share one computed shape: a transformer's layers need three nodes together, not three each.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import onnx_ir as ir

from cannc.passes.rewrite import Rewriter


class Nodes:
    """New nodes that are not in the graph yet, in order."""

    def __init__(self, rewriter: Rewriter) -> None:
        """Args: the rewriter that names them."""
        self._rewriter = rewriter
        self.nodes: list[ir.Node] = []

    def add(
        self,
        op_type: str,
        inputs: Sequence[ir.Value | None],
        attributes: Mapping[str, Any],
        *,
        like: ir.Value,
        shape: ir.Shape | None,
        dtype: ir.DataType | None = None,
        domain: str = "",
    ) -> ir.Value:
        """Append a node; return its output, named after `like` and of its dtype unless given."""
        node = self._rewriter.node(op_type, inputs, attributes, domain=domain, like=like)
        (value,) = node.outputs
        value.shape = shape
        if dtype is not None:
            value.type = ir.TensorType(dtype)
        self.nodes.append(node)
        return value


class Reshaper:
    """Makes the pairs; nodes share what they can."""

    def __init__(self, rewriter: Rewriter) -> None:
        """Args: the rewriter of the model."""
        self._rewriter = rewriter
        self._made: dict[tuple[object, ...], ir.Value] = {}

    def flatten(self, node: ir.Node, x: ir.Value, k: int, new: Nodes) -> ir.Value:
        """Return x as (m, k), for use by `node`."""
        key = ("flat", x, node.graph)
        if key not in self._made:
            shape = self._constant(-1, k)
            self._made[key] = new.add("Reshape", [x, shape], {}, like=x, shape=ir.Shape([None, k]))
        return self._made[key]

    def restore(self, node: ir.Node, x: ir.Value, y: ir.Value, n: int, new: Nodes) -> ir.Value:
        """Return y (m, n) with the leading dimensions of x."""
        out = node.outputs[0]
        known = _constant_shape(x, n)
        shape = self._constant(*known) if known else self._computed_shape(node, x, n, new)
        return new.add("Reshape", [y, shape], {}, like=out, shape=out.shape)

    def _computed_shape(self, node: ir.Node, x: ir.Value, n: int, new: Nodes) -> ir.Value:
        """Return the leading dimensions of x and n, as a value."""
        lead = _leading_dims(x)
        # A vector has no last leading dimension, so x of unknown rank gives all of them.
        end, tail = (-1, [n]) if lead is None else (-2, [-1, n])
        key = ("lead", node.graph, lead or x)
        if key not in self._made:
            dims = _shape_value(new, "Shape", [x], {}, x)
            bounds = [self._constant(0), self._constant(end)]
            self._made[key] = _shape_value(new, "Slice", [dims, *bounds], {}, x)
        whole = (*key, n)
        if whole not in self._made:
            parts = [self._made[key], self._constant(*tail)]
            self._made[whole] = _shape_value(new, "Concat", parts, {"axis": 0}, node.outputs[0])
        return self._made[whole]

    def _constant(self, *numbers: int) -> ir.Value:
        key = ("constant", *numbers)
        if key not in self._made:
            name = "shape_" + "_".join(str(n) if n >= 0 else "any" for n in numbers)
            array = np.array(numbers, np.int64)
            self._made[key] = self._rewriter.constant(ir.Value(name=name), array)
        return self._made[key]


def _shape_value(
    new: Nodes,
    op_type: str,
    inputs: Sequence[ir.Value],
    attributes: Mapping[str, Any],
    like: ir.Value,
) -> ir.Value:
    return new.add(op_type, inputs, attributes, like=like, shape=None, dtype=ir.DataType.INT64)


def _constant_shape(x: ir.Value, n: int) -> list[int] | None:
    """Return the leading dims of x and n, with -1 for one unknown; None when more are unknown.

    A dimension of 0 beside an unknown one would leave -1 undefined.
    """
    if x.shape is None:
        return None
    lead = [dim if isinstance(dim, int) else -1 for dim in x.shape[:-1]]
    unknown = lead.count(-1)
    if unknown > 1 or 0 in lead:
        return None
    return [*lead, n]


def _leading_dims(x: ir.Value) -> tuple[object, ...] | None:
    """Return what identifies the leading dims of x; None when its rank is unknown."""
    if x.shape is None:
        return None
    dims = [dim if isinstance(dim, int) else dim.value for dim in x.shape[:-1]]
    # A dim without a name equals only itself.
    return (*dims, x) if None in dims else tuple(dims)
