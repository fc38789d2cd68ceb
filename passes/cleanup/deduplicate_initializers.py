"""Keeps one of several weights that are equal in dtype, shape and bytes.

    w1 = [1, 2]; w2 = [1, 2]; y = x * w1 + w2      ->      w1 = [1, 2]; y = x * w1 + w1

Numbers are read only where dtype and shape leave a choice. Weights that are computed when they are
written (`DerivedTensor`) are not read here.
"""

from __future__ import annotations

import hashlib
from collections import defaultdict

import numpy as np
import onnx_ir as ir

from cannc.compiler.core.graphs import all_graphs
from cannc.compiler.core.tensors import DerivedTensor, released
from cannc.passes.base import Numerics, Pass, PassContext


class DeduplicateInitializers(Pass):
    """See the module."""

    name = "deduplicate-initializers"
    summary = "keep one of several equal weights"
    numerics = Numerics.EXACT

    def run(self, ctx: PassContext) -> None:
        """See `Pass.run`."""
        # Only the main graph's weights are visible everywhere, so only they can stand for others.
        groups: defaultdict[tuple[object, ...], list[ir.Value]] = defaultdict(list)
        for _, graph in all_graphs(ctx.model.graph):
            for value in graph.initializers.values():
                tensor = value.const_value
                if tensor is not None and not isinstance(tensor, DerivedTensor):
                    groups[tensor.dtype, tuple(tensor.shape)].append(value)
        for group in groups.values():
            if len(group) > 1:
                _merge_equal(ctx, group)


def _merge_equal(ctx: PassContext, group: list[ir.Value]) -> None:
    first: dict[bytes, ir.Value] = {}
    for value in group:
        assert value.const_value is not None
        stand_in = first.setdefault(_digest(value.const_value), value)
        if stand_in is value or value.is_graph_input() or value.is_graph_output():
            continue
        if stand_in.graph is ctx.model.graph or stand_in.graph is value.graph:
            ctx.rewriter.drop_initializer(value, stand_in)


def _digest(tensor: ir.TensorProtocol) -> bytes:
    state = hashlib.blake2b(digest_size=16)
    with released(tensor) as array:
        if tensor.dtype.is_string():
            state.update(repr(array.tolist()).encode())
        else:
            state.update(np.ascontiguousarray(array).reshape(-1).view(np.uint8).data)
    return state.digest()
