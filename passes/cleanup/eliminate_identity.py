"""Removes operators that give back their input.

    y = Identity(x), Cast(x) to its own dtype, Dropout(x) at inference,
        Transpose(x) that moves no axis, Reshape/Expand(x) to its own shape,
        Slice(x) of everything, Pad(x) by nothing, Tile(x) once,
        Concat/Sum/Max/Min/Mean(x) of one input, Flatten(x) of a matrix,
        x + 0 (integers), x - 0, x * 1, x / 1, OptionalGetElement(x) of a tensor,
        Squeeze(Unsqueeze(x)) and Unsqueeze(Squeeze(x)) over the same axes
    ->  x

Two shapes count as equal when all dims are, by number or by symbolic name. What a file declares
for a graph output is not trusted here (it may be stale), only what follows from the inputs.
"""

from __future__ import annotations

from collections.abc import Callable

import onnx_ir as ir

from cannc.compiler.core.graphs import Scoped
from cannc.passes.base import Numerics, Pass, PassContext
from cannc.passes.cleanup.dims import same_shape
from cannc.passes.pattern import array_of, constant_of, ints_of, scalar_of
from cannc.passes.rewrite import scoped_nodes

_ENDLESS = 2**31 - 1

StandIn = Callable[[ir.Node], "ir.Value | None"]


class EliminateIdentity(Pass):
    """See the module."""

    name = "eliminate-identity"
    summary = "remove operators that give back their input"
    numerics = Numerics.EXACT

    def run(self, ctx: PassContext) -> None:
        """See `Pass.run`."""
        for scoped in scoped_nodes(ctx.model):
            stand_in = _find(scoped)
            if stand_in is not None:
                ctx.rewriter.bypass(scoped.node, stand_in)


def _find(scoped: Scoped) -> ir.Value | None:
    node = scoped.node
    rule = _RULES.get(node.op_type)
    if rule is None or node.domain not in ("", "ai.onnx") or not node.inputs:
        return None
    return rule(node)


def _first(node: ir.Node) -> ir.Value | None:
    return node.inputs[0]


def _only(node: ir.Node) -> ir.Value | None:
    return node.inputs[0] if len(node.inputs) == 1 else None


def _cast(node: ir.Node) -> ir.Value | None:
    (x,) = node.inputs
    same = x is not None and x.dtype is not None and x.dtype == node.attributes.get_int("to")
    return x if same else None


def _cast_like(node: ir.Node) -> ir.Value | None:
    x, like = node.inputs
    if x is None or like is None or x.dtype is None:
        return None
    return x if x.dtype == like.dtype else None


def _dropout(node: ir.Node) -> ir.Value | None:
    if len(node.inputs) < 3 or node.inputs[2] is None:
        return node.inputs[0]
    training = array_of(node.inputs[2])
    return node.inputs[0] if training is not None and not training.any() else None


def _transpose(node: ir.Node) -> ir.Value | None:
    x = node.inputs[0]
    perm = node.attributes.get_ints("perm")
    if perm is None:
        return x if x is not None and x.shape is not None and len(x.shape) < 2 else None
    return x if list(perm) == sorted(perm) else None


def _reshape(node: ir.Node) -> ir.Value | None:
    x = node.inputs[0]
    target = ints_of(node.inputs[1]) if len(node.inputs) > 1 else None
    if target is not None and x is not None and x.shape is not None:
        return x if _keeps_shape(x.shape, target, node) else None
    return _by_shape(node)


def _keeps_shape(shape: ir.Shape, target: list[int], node: ir.Node) -> bool:
    """Is a literal Reshape target the shape of the input? At most one dim may be left open."""
    if len(target) != len(shape):
        return False
    copies_zero = not node.attributes.get_int("allowzero", 0)
    open_dims = 0
    for dim, wanted in zip(shape, target, strict=True):
        if wanted == -1:
            open_dims += 1
        elif not (wanted == 0 and copies_zero) and dim != wanted:
            return False
    # With every other dim kept, the one left to -1 is kept too, unless another one may be empty.
    return open_dims == 0 or (open_dims == 1 and all(d != 0 for d in shape))


def _by_shape(node: ir.Node) -> ir.Value | None:
    """The input, if the output's shape equals it; for operators that change nothing else."""
    x, y = node.inputs[0], node.outputs[0]
    if x is None or y.is_graph_output():
        return None
    return x if same_shape(x.shape, y.shape) else None


def _slice(node: ir.Node) -> ir.Value | None:
    if len(node.inputs) < 3:
        return None
    steps = [1]
    if len(node.inputs) > 4 and node.inputs[4] is not None:
        steps = ints_of(node.inputs[4]) or []
    if not steps or any(step != 1 for step in steps):
        return None
    starts, ends = ints_of(node.inputs[1]), ints_of(node.inputs[2])
    if starts is not None and ends is not None and not any(starts) and min(ends) >= _ENDLESS:
        return node.inputs[0]
    return _by_shape(node)


def _pad(node: ir.Node) -> ir.Value | None:
    pads = ints_of(node.inputs[1]) if len(node.inputs) > 1 else None
    return node.inputs[0] if pads is not None and not any(pads) else None


def _tile(node: ir.Node) -> ir.Value | None:
    repeats = ints_of(node.inputs[1])
    return node.inputs[0] if repeats is not None and set(repeats) <= {1} else None


def _flatten(node: ir.Node) -> ir.Value | None:
    x = node.inputs[0]
    is_matrix = x is not None and x.shape is not None and len(x.shape) == 2
    return x if is_matrix and node.attributes.get_int("axis", 1) in (1, -1) else None


def _neutral(number: float, *, sides: tuple[int, ...], floats: bool) -> StandIn:
    """Return a rule for an operator with a constant operand that changes nothing."""

    def rule(node: ir.Node) -> ir.Value | None:
        for side in sides:
            operand, x = node.inputs[side], node.inputs[1 - side]
            if x is None or x.shape is None or scalar_of(operand) != number:
                continue
            tensor = constant_of(operand)
            enlarges = tensor is None or len(tensor.shape) > len(x.shape)
            if not enlarges and (floats or (x.dtype is not None and x.dtype.is_integer())):
                return x
        return None

    return rule


def _optional_get(node: ir.Node) -> ir.Value | None:
    x = node.inputs[0]
    if x is None:
        return None
    producer = x.producer()
    if producer is not None and producer.op_type == "Optional" and producer.inputs:
        return producer.inputs[0]
    return None if x.type is None or isinstance(x.type, ir.OptionalType) else x


def _undo(inverse: str) -> StandIn:
    """Return a rule for Squeeze after Unsqueeze or the reverse, with literally equal axes."""

    def rule(node: ir.Node) -> ir.Value | None:
        x = node.inputs[0]
        before = x.producer() if x is not None else None
        if before is None or before.op_type != inverse or before.domain not in ("", "ai.onnx"):
            return None
        mine, theirs = (_axes(n) for n in (node, before))
        return before.inputs[0] if mine is not None and mine == theirs else None

    return rule


def _axes(node: ir.Node) -> list[int] | None:
    axes = ints_of(node.inputs[1]) if len(node.inputs) > 1 else None
    return sorted(axes) if axes is not None else None


_RULES: dict[str, StandIn] = {
    "Identity": _first,
    "Cast": _cast,
    "CastLike": _cast_like,
    "Dropout": _dropout,
    "Transpose": _transpose,
    "Reshape": _reshape,
    "Expand": _by_shape,
    "Slice": _slice,
    "Pad": _pad,
    "Tile": _tile,
    "Concat": _only,
    "Sum": _only,
    "Max": _only,
    "Min": _only,
    "Mean": _only,
    "Flatten": _flatten,
    "Add": _neutral(0, sides=(0, 1), floats=False),
    "Sub": _neutral(0, sides=(1,), floats=True),
    "Mul": _neutral(1, sides=(0, 1), floats=True),
    "Div": _neutral(1, sides=(1,), floats=True),
    "OptionalGetElement": _optional_get,
    "Squeeze": _undo("Unsqueeze"),
    "Unsqueeze": _undo("Squeeze"),
}
