"""Rotary position embedding in half mode -> npu::NPURotaryMul, in front of the head transpose.

Before:  q = Transpose(p)                               (B, S, N, D) -> (B, N, S, D)
         q * cos + Concat(-q[h:], q[:h]) * sin          h = D / 2, cos and sin (1, 1, S, D)
After:   Transpose(NPURotaryMul(p, cos', sin'))         cos' and sin' (1, S, 1, D)

The rotation acts on the last axis alone, so it may change places with the transpose; the kernel is
proven for (B, S, N, D) only (npu-ops.md section 3, D10). Halves come as two Slices or as one Split.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import ClassVar

import onnx_ir as ir

from cannc.passes.base import Numerics, PassContext
from cannc.passes.fusion.base import FusionPass, choose, dtype_of, kernel_problem
from cannc.passes.pattern import Match, Op, Pattern, array_of, op, scalar_of, var

_HEADS_LAST = (0, 2, 1, 3)


@dataclass(frozen=True)
class Half(Pattern):
    """One half of a tensor's last axis: 0 the left, 1 the right one."""

    whole: Pattern
    index: int

    def match(self, value: ir.Value | None, so_far: Match) -> Iterator[Match]:
        """See `Pattern.match`."""
        node = value.producer() if value is not None else None
        if value is None or node is None or node.domain not in ("", "ai.onnx"):
            return
        source = node.inputs[0] if node.inputs else None
        if source is None or source.shape is None or _bounds(node, value) != self._wanted(source):
            return
        for found in self.whole.match(source, so_far):
            nodes = found.nodes if node in found.nodes else (*found.nodes, node)
            yield replace(found, nodes=nodes)

    def _wanted(self, source: ir.Value) -> tuple[int, int] | None:
        width = _width(source)
        if width is None or width % 2:
            return (-1, -1)
        half = width // 2
        return (self.index * half, (self.index + 1) * half)


def _rotation(x: Pattern) -> Op:
    turned = op("Concat", op("Neg", Half(x, 1)), Half(x, 0), name="join")
    return op("Add", op("Mul", x, var("cos")), op("Mul", turned, var("sin")))


_FORMS = (
    _rotation(op("Transpose", var("x"), name="heads")),
    _rotation(var("x")),
)


class FuseRotary(FusionPass):
    """See the module."""

    name: ClassVar[str] = "fuse-rotary"
    summary: ClassVar[str] = "rotary embedding (half mode) -> NPURotaryMul before the transpose"
    numerics: ClassVar[Numerics] = Numerics.REASSOCIATED
    roots: ClassVar[frozenset[str]] = frozenset({"Add"})
    anchors: ClassVar[frozenset[str]] = frozenset({"Concat"})
    reach: ClassVar[int] = 2
    emits: ClassVar[tuple[str, ...]] = ("NPURotaryMul",)

    def fuse(self, ctx: PassContext, node: ir.Node) -> None:
        """Fuse the rotation that ends in `node`."""
        match = choose(ctx, _FORMS, node, lambda match: _problem(ctx, match))
        if match is None:
            return
        result, x = node.outputs[0], match["x"]
        tables = [_heads_last(ctx, match[name]) for name in ("cos", "sin")]
        inputs = [x, *(table.outputs[0] for table in tables)]
        fused = ctx.rewriter.node("NPURotaryMul", inputs, domain="npu")
        fused.outputs[0].type, fused.outputs[0].shape = x.type, x.shape
        back = ctx.rewriter.node("Transpose", fused.outputs, {"perm": _HEADS_LAST}, like=result)
        ctx.rewriter.replace(match.nodes, [*tables, fused, back], {result: back.outputs[0]})


def _problem(ctx: PassContext, match: Match) -> str | None:
    x, join = match["x"], match.named["join"]
    if join.attributes.get_int("axis", 0) not in (-1, 3):
        return "the halves are not joined along the last axis"
    heads = match.named.get("heads")
    if heads is None or heads.attributes.get_ints("perm", ()) != _HEADS_LAST:
        return "no head transpose in front; the kernel is proven for (B, S, N, D) only"
    dtypes = {dtype_of(value) for value in (x, match["cos"], match["sin"])}
    if len(dtypes) != 1:
        return f"cos, sin and the input have dtypes {', '.join(sorted(map(str, dtypes)))}"
    for name in ("cos", "sin"):
        shape = match[name].shape
        if shape is None or len(shape) != 4 or shape[:2] != (1, 1) or shape[3] != _width(x):
            return f"{name} has shape {shape}, the kernel is proven for (1, 1, S, D)"
    return kernel_problem(ctx, "NPURotaryMul", dtypes.pop())


def _heads_last(ctx: PassContext, table: ir.Value) -> ir.Node:
    """Return a node that brings cos or sin from (1, 1, S, D) to (1, S, 1, D)."""
    node = ctx.rewriter.node("Transpose", [table], {"perm": _HEADS_LAST})
    shape = table.shape
    assert shape is not None
    node.outputs[0].type = table.type
    node.outputs[0].shape = ir.Shape([shape[axis] for axis in _HEADS_LAST])
    return node


def _width(value: ir.Value) -> int | None:
    """Return the size of the last axis, or None when it is not fixed."""
    size = value.shape[-1] if value.shape else None
    return size if isinstance(size, int) else None


def _bounds(node: ir.Node, value: ir.Value) -> tuple[int, int] | None:
    """Return which columns of the last axis of the node's input `value` holds, or None."""
    source = node.inputs[0]
    width = _width(source) if source is not None else None
    if source is None or width is None or source.shape is None:
        return None
    last = len(source.shape) - 1
    if node.op_type == "Split" and node.attributes.get_int("axis", 0) in (-1, last):
        sizes = [_width(output) for output in node.outputs]
        if None in sizes:
            return None
        index = list(node.outputs).index(value)
        start = sum(size for size in sizes[:index] if size is not None)
        return start, start + (sizes[index] or 0)
    if node.op_type == "Slice":
        arrays = [array_of(given) for given in node.inputs[1:]]
        if len(arrays) < 3 or any(array is None or array.size != 1 for array in arrays):
            return None
        start, end, axis, *step = (int(scalar_of(given) or 0) for given in node.inputs[1:])
        if axis in (-1, last) and step in ([], [1]):
            first, stop = (n + width if n < 0 else n for n in (start, end))
            return first, min(stop, width)
    return None
