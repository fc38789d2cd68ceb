"""Sequences whose elements are known, written as the tensors that they hold.

Before:  SequenceAt(SplitToSequence(x, [2, 3]), 1)     After:  the second output of Split(x, [2, 3])
         ConcatFromSequence(SequenceConstruct(a, b))           Concat(a, b)
         SequenceLength(SequenceInsert(SequenceEmpty(), a))    1

Positions and sizes must be constants.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import onnx_ir as ir

from cannc.passes.base import Numerics, Pass, PassContext
from cannc.passes.opset.edit import Edit
from cannc.passes.pattern import ints_of
from cannc.passes.rewrite import scoped_nodes

Parts = list[ir.Value]


class ResolveSequences(Pass):
    """See the module."""

    name = "resolve-sequences"
    summary = "sequences of known elements -> the tensors that they hold"
    numerics = Numerics.EXACT
    op_types = frozenset({"SequenceAt", "SequenceLength", "ConcatFromSequence"})

    def run(self, ctx: PassContext) -> None:
        """See `Pass.run`."""
        known = _Sequences(ctx)
        for scoped in scoped_nodes(ctx.model):
            node = scoped.node
            if node.domain in ("", "ai.onnx"):
                known.follow(node)
                reader = _READERS.get(node.op_type)
                parts = known.of(node.inputs[0]) if reader is not None else None
                if reader is not None and parts is not None:
                    reader(Edit(ctx, node), parts)
        known.drop_unread()


class _Sequences:
    """What sequences hold."""

    def __init__(self, ctx: PassContext) -> None:
        self._ctx = ctx
        self._parts: dict[ir.Value, Parts] = {}
        self._splits: dict[ir.Value, ir.Node] = {}
        self._makers: list[ir.Node] = []

    def of(self, value: ir.Value | None) -> Parts | None:
        """Return the elements of a sequence, None when they are not known."""
        if value is None:
            return None
        if value in self._splits and value not in self._parts:
            self._parts[value] = _split(self._ctx, self._splits[value])
        return self._parts.get(value)

    def follow(self, node: ir.Node) -> None:
        """Note what a node that makes a sequence puts into it."""
        parts: Parts | None = None
        kind = node.op_type
        if kind == "SplitToSequence" and _sizes(node) is not None:
            self._splits[node.outputs[0]] = node
            self._makers.append(node)
        elif kind == "SequenceEmpty":
            parts = []
        elif kind == "SequenceConstruct":
            parts = [value for value in node.inputs if value is not None]
        elif kind in ("SequenceInsert", "SequenceErase", "Identity"):
            parts = self.of(node.inputs[0])
            if parts is not None and kind != "Identity":
                parts = _changed(node, parts)
        if parts is not None:
            self._parts[node.outputs[0]] = parts
            self._makers.append(node)

    def drop_unread(self) -> None:
        """Remove the makers of sequences that nothing reads any more."""
        for node in reversed(self._makers):
            value = node.outputs[0]
            if not value.uses() and not value.is_graph_output():
                self._ctx.rewriter.erase([node])


def _changed(node: ir.Node, parts: Parts) -> Parts | None:
    """Insert or erase one element; None when the place is computed."""
    inserts = node.op_type == "SequenceInsert"
    at = node.inputs[1 + inserts] if len(node.inputs) > 1 + inserts else None
    place = len(parts) - (not inserts) if at is None else _place(at, len(parts))
    if place is None:
        return None
    if not inserts:
        return [*parts[:place], *parts[place + 1 :]]
    element = node.inputs[1]
    return None if element is None else [*parts[:place], element, *parts[place:]]


def _place(value: ir.Value | None, length: int) -> int | None:
    numbers = ints_of(value)
    if numbers is None or len(numbers) != 1:
        return None
    return numbers[0] + length if numbers[0] < 0 else numbers[0]


def _sizes(node: ir.Node) -> list[int] | None:
    """Return how a SplitToSequence cuts its axis; None when that is not known."""
    x, given = node.inputs[0], node.inputs[1] if len(node.inputs) > 1 else None
    if x is None or x.shape is None:
        return None
    dim = x.shape[node.attributes.get_int("axis", 0)]
    if given is None:
        return [1] * dim if isinstance(dim, int) else None
    sizes = ints_of(given)
    if sizes is None or given.shape is None or len(given.shape) == 1:
        return sizes
    if not isinstance(dim, int):
        return None
    whole, rest = divmod(dim, sizes[0])
    return [sizes[0]] * whole + [rest] * (rest > 0)


def _split(ctx: PassContext, node: ir.Node) -> Parts:
    """Put a Split beside a SplitToSequence and return its outputs."""
    sizes = _sizes(node)
    assert sizes is not None
    axis = node.attributes.get_int("axis", 0)
    rewriter, old = ctx.rewriter, node.outputs[0]
    lengths = rewriter.constant(old, np.array(sizes, np.int64))
    split = rewriter.node(
        "Split", [node.inputs[0], lengths], {"axis": axis}, num_outputs=len(sizes)
    )
    made, parts = [split], list(split.outputs)
    bare = len(node.inputs) < 2 or node.inputs[1] is None
    if bare and node.attributes.get_int("keepdims", 1) == 0:
        axes = rewriter.constant(old, np.array([axis], np.int64))
        squeezed = [rewriter.node("Squeeze", [part, axes]) for part in parts]
        made += squeezed
        parts = [one.outputs[0] for one in squeezed]
    for part in parts:
        part.type = node.inputs[0].type if node.inputs[0] is not None else None
    rewriter.add_beside(node, made)
    return parts


def _at(edit: Edit, parts: Parts) -> None:
    place = _place(edit.input(1), len(parts))
    if place is None:
        edit.ctx.refuse(edit.node, "which element it takes depends on data")
    elif not edit.ctx.rewriter.bypass(edit.node, parts[place]):
        edit.swap("Identity", [parts[place]], {})


def _length(edit: Edit, parts: Parts) -> None:
    edit.ctx.rewriter.fold(edit.node, [ir.Tensor(np.array(len(parts), np.int64))])


def _concat(edit: Edit, parts: Parts) -> None:
    axis, nodes = edit.node.attributes["axis"].as_int(), []
    if edit.node.attributes.get_int("new_axis", 0):
        axes = edit.constant([axis])
        nodes = [edit.make("Unsqueeze", part, axes) for part in parts]
        parts = [node.outputs[0] for node in nodes]
    edit.put([*nodes, edit.make("Concat", *parts, attributes={"axis": axis})])


_READERS: dict[str, Callable[[Edit, Parts], None]] = {
    "ConcatFromSequence": _concat,
    "SequenceAt": _at,
    "SequenceLength": _length,
}
