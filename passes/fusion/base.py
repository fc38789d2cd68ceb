"""What all fusions share: the walk over candidate nodes, the choice of a match, its conditions."""

from __future__ import annotations

import abc
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np
import onnx_ir as ir

from cannc.compiler.core.shapes import rank
from cannc.passes.base import Pass, PassContext
from cannc.passes.fusion.misses import nearest_miss
from cannc.passes.fusion.npu_ops import MIN_OPSET, NPU_DOMAIN, opset_of, use_npu_op
from cannc.passes.pattern import Match, OneOf, Op, Pattern, constant_of, one_of, op, scalar_of
from cannc.passes.rewrite import scoped_nodes

Problem = Callable[[Match], "str | None"]
"""Returns why a match may not be fused, "" when it is not worth a word, None when it may be."""

_HAND_TYPED = 2e-5
_HALF = (ir.DataType.FLOAT16, ir.DataType.BFLOAT16)
_FLOATS = (*_HALF, ir.DataType.FLOAT, ir.DataType.DOUBLE)


class FusionPass(Pass):
    """A pass that looks at every node of certain types, in all graphs, once.

    Attributes:
        roots: Types of the nodes where its patterns end.
        domain: Domain of these nodes.
        min_opset: Opset at which what it makes begins; below it does nothing.
        anchors: Rare operators that every form contains; empty when every root has to be tried.
        reach: How many steps a root lies behind an anchor at most.
        emits: Fused ``npu`` operators that it may make.
        backwards: Look at the last nodes first, so that the longest form wins.
    """

    roots: ClassVar[frozenset[str]]
    domain: ClassVar[str] = ""
    min_opset: ClassVar[int] = 1
    anchors: ClassVar[frozenset[str]] = frozenset()
    reach: ClassVar[int] = 0
    emits: ClassVar[tuple[str, ...]] = ()
    backwards: ClassVar[bool] = True

    def run(self, ctx: PassContext) -> None:
        """Visit the nodes; register the bodies of fused operators that came about."""
        if opset_of(ctx.model) < self.min_opset:
            return
        nodes = [s.node for s in scoped_nodes(ctx.model)]
        if self.anchors:
            near_by = _downstream(nodes, self.anchors, self.reach)
            nodes = [node for node in nodes if node in near_by]
        before = ctx.rewriter.applied
        for node in reversed(nodes) if self.backwards else nodes:
            in_graph = node.graph is not None
            if in_graph and node.op_type in self.roots and _domain(node) == self.domain:
                self.fuse(ctx, node)
        if self.emits and ctx.rewriter.applied > before:
            self._update_functions(ctx.model)

    def _update_functions(self, model: ir.Model) -> None:
        """Register the bodies of the fused operators in use, and drop those of the others."""
        nodes = [s.node for s in scoped_nodes(model)]
        in_use = {node.op_type for node in nodes if node.domain == NPU_DOMAIN}
        for op_type in self.emits:
            if op_type in in_use:
                use_npu_op(model, op_type)
            else:
                model.functions.pop((NPU_DOMAIN, op_type, ""), None)

    @abc.abstractmethod
    def fuse(self, ctx: PassContext, node: ir.Node) -> None:
        """Fuse what ends in `node`, or refuse it."""


def choose(
    ctx: PassContext, patterns: Sequence[Op], root: ir.Node, problem: Problem
) -> Match | None:
    """Return the first match that may be fused; refuse with the nearest miss's reason.

    Casts of an outer value that others read too stay in the graph and out of the match.
    """
    reason: str | None = None
    for pattern in patterns:
        for found in pattern.find(root):
            match = _without_shared_casts(found)
            why = _structure_problem(match) or problem(match)
            if why is None:
                return match
            reason = reason or why
    if reason is None and ctx.explain:
        reason = nearest_miss(patterns, root)
    if reason:
        ctx.refuse(root, reason)
    return None


def kernel_problem(ctx: PassContext, op_type: str, dtype: ir.DataType | None) -> str | None:
    """Return why the fused operator may not be emitted into this model, or None."""
    opset = opset_of(ctx.model)
    if opset < MIN_OPSET:
        return f"{op_type} needs opset {MIN_OPSET}, the model has {opset}"
    return ctx.may_use_kernel(op_type, dtype)


def dtype_problem(match: Match, x: ir.Value) -> str | None:
    """Return why the result's dtype differs from that of `x`, or None when it does not."""
    given, result = dtype_of(x), dtype_of(match.root.outputs[0])
    casts = [node for node in match.nodes if node.op_type == "Cast"]
    if not casts:
        return None
    if any(dtype_of(cast.outputs[0]) not in _FLOATS for cast in casts):
        return "a cast to integers stands inside"
    if given is None or given != result:
        return f"the input is {given}, the result {result}; the fused operator keeps the dtype"
    return None


def width_problem(match: Match, x: ir.Value, least_rank: int = 0) -> str | None:
    """Return why a constant of the match would give the result more dimensions than `x`.

    Args:
        match: The match.
        x: The value that is normalized or activated.
        least_rank: What is known of its rank when its shape is not.
    """
    known = rank(x)
    limit = least_rank if known is None else known
    for node in match.nodes:
        for value in node.inputs:
            tensor = constant_of(value)
            if tensor is not None and len(tensor.shape) > limit:
                return f"constant {value.name} has more dimensions than the input"  # type: ignore[union-attr]
    return None


def dtype_of(value: ir.Value | None) -> ir.DataType | None:
    """Return the dtype of a value; that of a Cast's output is known without inference."""
    if value is None:
        return None
    producer = value.producer()
    if value.dtype is None and producer is not None and producer.op_type == "Cast":
        return ir.DataType(producer.attributes["to"].as_int())
    return value.dtype


def tail_axes(reduce: ir.Node, x: ir.Value) -> int | None:
    """Return k when the node reduces exactly the last k axes of `x` and keeps them, else None."""
    if reduce.attributes.get_int("keepdims", 1) != 1:
        return None
    size = rank(x)
    axes: Sequence[int] | None = reduce.attributes.get_ints("axes")
    if len(reduce.inputs) > 1 and reduce.inputs[1] is not None:
        tensor = constant_of(reduce.inputs[1])
        if tensor is None:
            return None
        axes = [int(axis) for axis in tensor.numpy().reshape(-1)]
    if not axes:
        return None
    if size is not None:
        axes = [axis - size if axis >= 0 else axis for axis in axes]
    count = len(axes)
    return count if sorted(axes) == list(range(-count, 0)) else None


@dataclass(frozen=True)
class Near(Pattern):
    """A constant with one element that is `number`, as its dtype or a careful typist rounds it."""

    number: float

    def match(self, value: ir.Value | None, so_far: Match) -> list[Match]:  # type: ignore[override]
        """See `Pattern.match`."""
        found = scalar_of(value)
        tensor = constant_of(value)
        if found is None or tensor is None:
            return []
        exact = self.number == int(self.number)
        tolerance = 1e-3 if tensor.dtype in _HALF else 0.0 if exact else _HAND_TYPED
        return [so_far] if np.isclose(found, self.number, rtol=tolerance, atol=0) else []


def near(number: float) -> Near:
    """A constant with one element that is `number`; see `Near`."""
    return Near(number)


def maybe_cast(inner: Pattern) -> OneOf:
    """`inner`, or a Cast of it; the Cast is preferred."""
    return one_of(op("Cast", inner), inner)


def square(x: Pattern) -> OneOf:
    """Return patterns of x * x."""
    return one_of(op("Pow", x, near(2)), op("Mul", x, x))


def scaled_product(a: Pattern, b: Pattern, factor: float) -> tuple[Op, ...]:
    """Return patterns of a * b * factor in any order; the factor may be a divisor."""
    times, over = near(factor), near(1 / factor)
    return (
        op("Mul", op("Mul", a, b), times),
        op("Mul", op("Mul", a, times), b),
        op("Mul", a, op("Mul", b, times)),
        op("Div", op("Mul", a, b), over),
        op("Mul", op("Div", a, over), b),
        op("Mul", a, op("Div", b, over)),
    )


def _downstream(nodes: Sequence[ir.Node], anchors: frozenset[str], reach: int) -> set[ir.Node]:
    """Return the nodes at most `reach` steps behind a node of these types, in linear time."""
    wave = [node for node in nodes if node.op_type in anchors]
    found = set(wave)
    for _ in range(reach):
        users = {user for node in wave for value in node.outputs for user, _ in value.uses()}
        wave = list(users - found)
        found |= users
    return found


def _domain(node: ir.Node) -> str:
    return "" if node.domain == "ai.onnx" else node.domain


def _structure_problem(match: Match) -> str | None:
    if any(node.graph is not match.root.graph for node in match.nodes):
        return "part of it stands outside this branch or body"
    leak = match.leak()
    if leak is not None:
        why = "is a graph output" if leak.is_graph_output() else "is used elsewhere too"
        return f"inner value {leak.name} {why}"
    return None


def _without_shared_casts(match: Match) -> Match:
    inside = set(match.nodes)
    bound = set(match.values.values())

    def shared(node: ir.Node) -> bool:
        if node.op_type != "Cast" or node is match.root or node.inputs[0] not in bound:
            return False
        (value,) = node.outputs
        return value.is_graph_output() or any(user not in inside for user, _ in value.uses())

    return replace(match, nodes=tuple(node for node in match.nodes if not shared(node)))
