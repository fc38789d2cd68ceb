"""Scan over a static axis, written out.

Before:  s, o = Scan<body(s, x) => (f(s, x), g(s, x))>(s0, xs), xs float[3, n]
After:   s1 = f(s0, xs[0]);  s2 = f(s1, xs[1]);  s = f(s2, xs[2]);  o = Concat(g(s0, xs[0]), ...)

Axes and directions of inputs and outputs are followed.
"""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from cannc.passes.base import Numerics, Pass, PassContext
from cannc.passes.legalize.base import opset_of
from cannc.passes.legalize.unroll import Rounds, TooDynamicError
from cannc.passes.legalize.unroll_loop import stack
from cannc.passes.rewrite import scoped_nodes

_BATCHED_BELOW = 9


class UnrollScan(Pass):
    """See the module."""

    name = "unroll-scan"
    summary = "Scan over a static axis -> copies of its body"
    numerics = Numerics.EXACT
    op_types = frozenset({"Scan"})

    def run(self, ctx: PassContext) -> None:
        """Unroll from the inside out."""
        for scoped in reversed(scoped_nodes(ctx.model)):
            node = scoped.node
            if node.op_type != "Scan" or node.domain not in ("", "ai.onnx"):
                continue
            if opset_of(ctx.model) < _BATCHED_BELOW:
                ctx.refuse(node, "at opset 8 its sequences have a batch axis and lengths")
                continue
            rounds = Rounds(node, node.attributes["body"].as_graph())
            try:
                _unroll(ctx, node, rounds)
            except TooDynamicError as error:
                rounds.discard()
                ctx.refuse(node, str(error))


def _unroll(ctx: PassContext, node: ir.Node, rounds: Rounds) -> None:
    attributes = node.attributes
    inputs = [value for value in node.inputs if value is not None]
    width = attributes["num_scan_inputs"].as_int()
    states, xs = inputs[: len(inputs) - width], inputs[len(inputs) - width :]
    axes = list(attributes.get_ints("scan_input_axes") or [0] * width)
    backward = list(attributes.get_ints("scan_input_directions") or [0] * width)
    steps = _steps(xs, axes)
    rounds.expect(steps)
    picks: list[ir.Node] = []
    collected: list[list[ir.Value]] = []
    for step in range(steps):
        parts = []
        for x, axis, back in zip(xs, axes, backward, strict=True):
            place = rounds.constant(np.array(steps - 1 - step if back else step, np.int64))
            picks.append(ctx.rewriter.node("Gather", [x, place], {"axis": axis}))
            picks[-1].outputs[0].type = x.type
            parts.append(picks[-1].outputs[0])
        results = rounds.add([*states, *parts])
        collected.append(results[len(states) :])
        states = results[: len(states)]
    values = dict(zip(node.outputs, states, strict=False))
    outputs = node.outputs[len(states) :]
    out_axes = list(attributes.get_ints("scan_output_axes") or [0] * len(outputs))
    reverse = list(attributes.get_ints("scan_output_directions") or [0] * len(outputs))
    stacks: list[ir.Node] = []
    for index, old in enumerate(outputs):
        column = [results[index] for results in collected]
        column = column[::-1] if reverse[index] else column
        stacks += stack(ctx, old, column, out_axes[index])
        values[old] = stacks[-1].outputs[0]
    rounds.finish(ctx, values, before=picks, after=stacks)


def _steps(xs: list[ir.Value], axes: list[int]) -> int:
    for x, axis in zip(xs, axes, strict=True):
        dim = None if x.shape is None else x.shape[axis]
        if isinstance(dim, int) and dim > 0:
            return dim
    msg = "the number of its steps is not known"
    raise TooDynamicError(msg)
