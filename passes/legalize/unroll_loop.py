"""Loop with a known number of rounds, written out.

Before:  s, o = Loop(3, true, s0) <body(i, c, s) => (c, f(s, i), g(s))>
After:   s1 = f(s0, 0);  s2 = f(s1, 1);  s = f(s2, 2);  o = Concat(g(s0), g(s1), g(s2))

The number of rounds is the trip count, or ends earlier where the condition, which may only depend
on constants and round numbers, turns false. One that depends on data is refused.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import onnx_ir as ir

from cannc.passes.base import Numerics, Pass, PassContext
from cannc.passes.legalize.unroll import Rounds, TooDynamicError, known
from cannc.passes.rewrite import scoped_nodes

_MOST_OPEN_ROUNDS = 1024
_SMALL = 64


class UnrollLoop(Pass):
    """See the module."""

    name = "unroll-loop"
    summary = "Loop with a known number of rounds -> copies of its body"
    numerics = Numerics.EXACT
    op_types = frozenset({"Loop"})

    def run(self, ctx: PassContext) -> None:
        """Unroll from the inside out."""
        for scoped in reversed(scoped_nodes(ctx.model)):
            node = scoped.node
            if node.op_type == "Loop" and node.domain in ("", "ai.onnx"):
                rounds = Rounds(node, node.attributes["body"].as_graph())
                try:
                    _unroll(ctx, node, rounds)
                except TooDynamicError as error:
                    rounds.discard()
                    ctx.refuse(node, str(error))


def _unroll(ctx: PassContext, node: ir.Node, rounds: Rounds) -> None:
    trips = _trips(ctx, node)
    states = [value for value in node.inputs[2:] if value is not None]
    running = known(ctx, node.inputs[1]) if len(node.inputs) > 1 else None
    if len(node.inputs) > 1 and node.inputs[1] is not None and running is None:
        msg = "whether it starts at all depends on data"
        raise TooDynamicError(msg)
    go = running is None or bool(running.reshape(()))
    collected: list[list[ir.Value]] = []
    true = rounds.constant(np.array(True))
    count = 0
    while go and (trips is None or count < trips):
        if trips is None and count == _MOST_OPEN_ROUNDS:
            msg = f"without a trip count it is still running after {_MOST_OPEN_ROUNDS} rounds"
            raise TooDynamicError(msg)
        number = rounds.constant(np.array(count, np.int64))
        condition, *results = rounds.add([number, true, *states])
        states, outputs = results[: len(states)], results[len(states) :]
        collected.append(outputs)
        condition = _behind_identities(condition)
        if condition is true:
            rounds.expect(trips or 0)  # no round will end it early
        else:
            states = [_settled(ctx, rounds, value) for value in states]
        go = _goes_on(ctx, rounds, condition)
        count += 1
    stacks: list[ir.Node] = []
    values: dict[ir.Value, ir.Value] = dict(zip(node.outputs, states, strict=False))
    for index, old in enumerate(node.outputs[len(states) :]):
        if not collected:
            msg = "it makes no round, so its scan outputs are empty"
            raise TooDynamicError(msg)
        made = stack(ctx, old, [outputs[index] for outputs in collected], 0)
        stacks += made
        values[old] = made[-1].outputs[0]
    rounds.finish(ctx, values, after=stacks)


def _behind_identities(value: ir.Value) -> ir.Value:
    node = value.producer()
    while node is not None and node.op_type == "Identity" and node.inputs[0] is not None:
        value = node.inputs[0]
        node = value.producer()
    return value


def _trips(ctx: PassContext, node: ir.Node) -> int | None:
    """Return the trip count, None when there is none."""
    if node.inputs[0] is None:
        return None
    count = known(ctx, node.inputs[0])
    if count is None:
        msg = "its trip count depends on data"
        raise TooDynamicError(msg)
    trips = int(count.reshape(()))
    return None if trips == np.iinfo(np.int64).max else trips


def _settled(ctx: PassContext, rounds: Rounds, value: ir.Value) -> ir.Value:
    """Replace a small state that depends on constants only, e.g. a counter, by its number."""
    if value.producer() is None or value.const_value is not None:
        return value
    array = known(ctx, value, rounds.open)
    if array is None or array.size > _SMALL:
        rounds.open.add(value)
        return value
    return rounds.constant(array)


def _goes_on(ctx: PassContext, rounds: Rounds, condition: ir.Value) -> bool:
    array = known(ctx, condition, rounds.open)
    if array is None:
        msg = "whether it goes on depends on data"
        raise TooDynamicError(msg)
    return bool(array.reshape(()))


def stack(ctx: PassContext, old: ir.Value, parts: Sequence[ir.Value], axis: int) -> list[ir.Node]:
    """Return nodes that join values along a new axis."""
    axes = ctx.rewriter.constant(old, np.array([axis], np.int64))
    lifted = [ctx.rewriter.node("Unsqueeze", [part, axes]) for part in parts]
    joined = ctx.rewriter.node(
        "Concat", [node.outputs[0] for node in lifted], {"axis": axis}, like=old
    )
    return [*lifted, joined]
