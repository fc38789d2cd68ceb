"""Reshape pairs around a kernel that takes 2-D activations only, right for every dynamic shape.

``x (..., k)`` becomes ``(-1, k)``, and the product ``(m, n)`` becomes ``(..., n)`` again. With at
most one unknown leading dimension the second shape is a constant; otherwise it is taken from x when
the graph runs, its last leading dimension as -1, so that an empty sequence stays one (an empty
batch of unknown size beside it fails in Reshape; the kernel takes no empty tensors anyway).
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
    """Makes the pairs; nodes that read the same x share what they can."""

    def __init__(self, rewriter: Rewriter) -> None:
        """Args: the rewriter of the model."""
        self._rewriter = rewriter
        self._flat: dict[tuple[ir.Value, object], ir.Value] = {}
        self._lead: dict[tuple[ir.Value, object], ir.Value] = {}
        self._constants: dict[tuple[int, ...], ir.Value] = {}

    def flatten(self, node: ir.Node, x: ir.Value, k: int, new: Nodes) -> ir.Value:
        """Return x as (m, k), for use by `node`."""
        key = (x, node.graph)
        if key not in self._flat:
            shape = self._constant(-1, k)
            self._flat[key] = new.add("Reshape", [x, shape], {}, like=x, shape=ir.Shape([None, k]))
        return self._flat[key]

    def restore(self, node: ir.Node, x: ir.Value, y: ir.Value, n: int, new: Nodes) -> ir.Value:
        """Return y (m, n) with the leading dimensions of x."""
        out = node.outputs[0]
        known = _constant_shape(x, n)
        if known is not None:
            shape = self._constant(*known)
        else:
            # A vector has no last leading dimension, so x of unknown rank gives all of them.
            known_rank = x.shape is not None
            tail = self._constant(-1, n) if known_rank else self._constant(n)
            parts = [self._leading(node, x, -2 if known_rank else -1, new), tail]
            shape = _shape_value(new, "Concat", parts, {"axis": 0}, out)
        return new.add("Reshape", [y, shape], {}, like=out, shape=out.shape)

    def _leading(self, node: ir.Node, x: ir.Value, end: int, new: Nodes) -> ir.Value:
        key = (x, node.graph)
        if key not in self._lead:
            dims = _shape_value(new, "Shape", [x], {}, x)
            ends = [dims, self._constant(0), self._constant(end)]
            self._lead[key] = _shape_value(new, "Slice", ends, {}, x)
        return self._lead[key]

    def _constant(self, *numbers: int) -> ir.Value:
        if numbers not in self._constants:
            array = np.array(numbers, np.int64)
            base = ir.Value(name="shape_" + "_".join(map(str, numbers)).replace("-", "m"))
            self._constants[numbers] = self._rewriter.constant(base, array)
        return self._constants[numbers]


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
