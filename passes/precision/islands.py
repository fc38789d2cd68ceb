"""Places where half provably fails, whatever the inputs' scale: they stay float32.

Each rule starts at a node that betrays the place and returns the nodes of the island. Rules look at
structure and constants only; what depends on the data (a MatMul that overflows, a large residual)
is for mixed precision with calibration inputs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
import onnx_ir as ir

from cannc.compiler.core.graphs import Scoped
from cannc.compiler.core.tensors import released
from cannc.passes.pattern import constant_of, scalar_of

HALF_MAX = 65504.0
HALF_TINY = 2.0**-25
"""Magnitudes up to this round to zero in half."""
_MAX_GRID = 1 << 20
_COUNTABLE = 16.0
_MIN_STEPS = 8


@dataclass(frozen=True)
class Island:
    """One rule.

    Attributes:
        name: Kebab-case.
        reason: Why half fails there, for the notes.
        seeds: Operator types where to look.
        grow: Gives the nodes to keep for a seed; none when the seed is not such a place.
    """

    name: str
    reason: str
    seeds: frozenset[str]
    grow: Callable[[ir.Node], set[ir.Node]]


def find(nodes: list[Scoped]) -> Iterator[tuple[str, set[ir.Node]]]:
    """Yield ``(reason, nodes)`` of every rule that found something."""
    for island in ISLANDS:
        found: set[ir.Node] = set()
        for scoped in nodes:
            if scoped.node.domain == "" and scoped.node.op_type in island.seeds:
                found |= island.grow(scoped.node)
        if found:
            yield island.reason, found


# -- the variance of a norm ------------------------------------------------------------------------

_MEANS = frozenset({"ReduceMean", "ReduceSum", "GlobalAveragePool"})
_SQUARE_SUMS = frozenset({"ReduceSumSquare", "ReduceL2"})


def _variance(root: ir.Node) -> set[ir.Node]:
    """Keep square -> mean -> (+ eps) -> root -> the division by it, and the centring before.

    Before: deviations above 256 square to infinity, eps or small squares flush to zero.
    """
    if root.op_type == "Pow" and scalar_of(root.inputs[1]) not in (0.5, -0.5):
        return set()
    chain = _upward(root, {"Add", "Max", "Clip", "Div", "Mul"})
    mean = chain[-1]
    square = _producer(mean.inputs[0]) if mean.op_type in _MEANS else None
    if mean.op_type not in _SQUARE_SUMS:
        if square is None or not _is_square(square):
            return set()
        chain.append(square)
    base = _producer(chain[-1].inputs[0])
    if base is not None and base.op_type == "Sub":
        centre = _producer(base.inputs[1])
        if centre is not None and centre.op_type == "ReduceMean":
            chain += [base, centre]
    return {*chain, *_divisions(root.outputs[0])}


def _is_square(node: ir.Node) -> bool:
    if node.op_type == "Mul":
        return node.inputs[0] is node.inputs[1]
    return node.op_type == "Pow" and scalar_of(node.inputs[1]) == 2.0


def _divisions(root: ir.Value) -> Iterator[ir.Node]:
    """Yield what divides by a root, through its inverse, a bound or a broadcast if need be."""
    for user in root.consumers():
        if user.op_type == "Mul" or (user.op_type == "Div" and user.inputs[1] is root):
            yield user
        inverse = user.op_type == "Div" and constant_of(user.inputs[0]) is not None
        if inverse or user.op_type in ("Reciprocal", "Add", "Max", "Clip", "Expand"):
            yield user
            yield from _divisions(user.outputs[0])


# -- sums that are divided, or whose logarithm is taken --------------------------------------------


def _sum(total: ir.Node) -> set[ir.Node]:
    """Keep a sum and what scales it back: the sum over a large map passes 65504, its mean not.

    Also exp -> sum -> log or division: exp passes 65504 at 11.1 already.
    """
    ends = _scaled_back(total)
    if not ends:
        return set()
    kept = {total, *ends}
    source = _producer(total.inputs[0])
    if source is not None and source.op_type == "Exp":
        kept |= {source, *(u for u in source.outputs[0].consumers() if u.op_type == "Div")}
    return kept


def _scaled_back(node: ir.Node) -> set[ir.Node]:
    found: set[ir.Node] = set()
    for user in node.outputs[0].consumers():
        if user.op_type in ("Div", "Log") or (user.op_type == "Mul" and _shrinks(user)):
            found.add(user)
        elif user.op_type in ("Add", "Max", "Clip", "Expand", "Unsqueeze", "Squeeze", "Reshape"):
            further = _scaled_back(user)
            found |= {user, *further} if further else set()
    return found


def _shrinks(node: ir.Node) -> bool:
    return any(0 < abs(c) < 1 for c in map(scalar_of, node.inputs) if c is not None)


# -- constants that half cannot hold ---------------------------------------------------------------

_SENSITIVE = frozenset({"Div", "Log", "Sqrt", "Reciprocal", "Pow", "Mul", "Expand"})


def _tiny(node: ir.Node) -> set[ir.Node]:
    """Keep x + eps and what divides by it, where eps is zero in half: 0/0 and log 0 otherwise."""
    constants = [scalar_of(v) for v in node.inputs]
    if not any(c is not None and 0 < abs(c) <= HALF_TINY for c in constants):
        return set()
    kept = {node}
    pending = [node]
    while pending:
        for user in pending.pop().outputs[0].consumers():
            if user.op_type in _SENSITIVE and user not in kept:
                kept.add(user)
                if user.op_type in ("Sqrt", "Expand", "Reciprocal"):
                    pending.append(user)
    source = _producer(node.inputs[0])
    if source is not None and source.op_type in {*_SQUARE_SUMS, "ReduceSum", "ReduceL1", "Sqrt"}:
        kept.add(source)
    return kept


def _huge_factor(node: ir.Node) -> set[ir.Node]:
    """Keep x * c and x / c with c beyond half's range; negative ones are masks, to be clipped."""
    constant = scalar_of(node.inputs[1])
    if constant is None and node.op_type == "Mul":
        constant = scalar_of(node.inputs[0])
    if constant is None or constant <= HALF_MAX:
        return set()
    return {node, *(u for u in node.outputs[0].consumers() if u.op_type in _SENSITIVE)}


# -- coordinates -----------------------------------------------------------------------------------

_POINTWISE = frozenset({"Add", "Sub", "Mul", "Div", "Max", "Min", "Clip", "Exp", "Neg"})
_LAYOUT = frozenset(
    {
        "Concat",
        "Expand",
        "Flatten",
        "Gather",
        "Identity",
        "Reshape",
        "Slice",
        "Split",
        "Squeeze",
        "Transpose",
        "Unsqueeze",
    }
)


def _grid(node: ir.Node) -> set[ir.Node]:
    """Keep the decoding of boxes: a grid of coordinates is added, and all that follows moves it.

    Half steps by 0.5 above 512 and by 4 above 4096, which is pixels.
    """
    if not any(_is_grid(v) for v in node.inputs):
        return set()
    kept: set[ir.Node] = {node}
    pending = [node]
    while pending:
        for value in pending.pop().outputs:
            for user in value.consumers():
                if user.op_type in _POINTWISE | _LAYOUT and user not in kept:
                    kept.add(user)
                    pending.append(user)
    return kept


def _is_grid(value: ir.Value | None) -> bool:
    """Say whether a constant counts cells in steps of 1 or 1/2; a mask has too few steps."""
    tensor = constant_of(value)
    if tensor is None or tensor.dtype != ir.DataType.FLOAT or tensor.size > _MAX_GRID:
        return False
    if tensor.size < _MIN_STEPS:
        return False
    with released(tensor) as array:
        steps = np.unique(array) * 2
    far = np.abs(steps).max() / 2
    in_range = _COUNTABLE <= far <= HALF_MAX
    return bool(in_range and len(steps) >= _MIN_STEPS and (steps == np.round(steps)).all())


# -- helpers ---------------------------------------------------------------------------------------


def _producer(value: ir.Value | None) -> ir.Node | None:
    node = value.producer() if value is not None else None
    return node if node is not None and node.domain == "" else None


def _upward(root: ir.Node, through: set[str]) -> list[ir.Node]:
    """Return root and its ancestors through steps whose other operand is a constant."""
    chain = [root]
    while True:
        varying = [v for v in chain[-1].inputs if v is not None and constant_of(v) is None]
        node = _producer(varying[0]) if len(varying) == 1 else None
        if node is None:
            return chain
        chain.append(node)
        if node.op_type not in through:
            return chain


ISLANDS: tuple[Island, ...] = (
    Island(
        "variance",
        "variance of a norm: squares overflow above 256, eps flushes to zero",
        frozenset({"Sqrt", "Pow"}),
        _variance,
    ),
    Island(
        "scaled-sum",
        "sum before its scaling: it passes 65504 where the mean does not",
        frozenset({"ReduceSum", "ReduceSumSquare"}),
        _sum,
    ),
    Island(
        "tiny-constant",
        "a constant against division by zero that is zero in half",
        frozenset({"Add", "Max", "Clip", "Sub"}),
        _tiny,
    ),
    Island(
        "huge-factor",
        "a factor beyond 65504",
        frozenset({"Mul", "Div"}),
        _huge_factor,
    ),
    Island(
        "coordinates",
        "coordinates of a grid: half cannot count pixels",
        frozenset({"Add", "Sub"}),
        _grid,
    ),
)
