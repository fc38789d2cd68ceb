"""Merges chains of layout changes.

    Transpose(Transpose(x, p), q)                            ->  Transpose(x, p[q]), or x
    Reshape(r(x), shape), r = Reshape|Flatten|Squeeze|Unsqueeze  ->  Reshape(x, shape)

The inner value of two transposes stays readable as a permuted alias. A target shape with zeros
copies dims of the inner value, so it is merged only where those are known.
"""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from cannc.compiler.core.shapes import static_shape
from cannc.passes.base import Numerics, Pass, PassContext
from cannc.passes.pattern import ints_of
from cannc.passes.rewrite import scoped_nodes

_RESHAPES = frozenset({"Reshape", "Flatten", "Squeeze", "Unsqueeze"})


class MergeTransposes(Pass):
    """See the module."""

    name = "merge-transposes"
    summary = "merge chains of transposes and of reshapes"
    numerics = Numerics.EXACT

    def run(self, ctx: PassContext) -> None:
        """See `Pass.run`."""
        for scoped in scoped_nodes(ctx.model):
            node = scoped.node
            if node.domain not in ("", "ai.onnx"):
                continue
            if node.op_type == "Transpose":
                _merge_transposes(ctx, node)
            elif node.op_type == "Reshape":
                _merge_reshapes(ctx, node)


def _merge_transposes(ctx: PassContext, outer: ir.Node) -> None:
    inner = _producer(outer, frozenset({"Transpose"}))
    if inner is None or inner.inputs[0] is None:
        return
    first, second = _perm(inner), _perm(outer)
    if first is None or second is None:
        return
    x, y, middle = inner.inputs[0], outer.outputs[0], inner.outputs[0]
    perm = tuple(first[axis] for axis in second)
    alone = _is_only_user(outer, middle)
    old = [inner, outer] if alone else [outer]
    aliases = {middle: x} if alone else {}
    perms = {middle: tuple(first)} if alone else {}
    if list(perm) == sorted(perm):
        ctx.rewriter.replace(old, [], {y: x, **aliases}, perms=perms)
        return
    new = ctx.rewriter.node("Transpose", [x], {"perm": perm}, like=y)
    ctx.rewriter.replace(old, [new], {y: new.outputs[0], **aliases}, perms=perms)


def _merge_reshapes(ctx: PassContext, outer: ir.Node) -> None:
    inner = _producer(outer, _RESHAPES)
    if inner is None or inner.inputs[0] is None:
        return
    middle = inner.outputs[0]
    target, shape = ints_of(outer.inputs[1]), outer.inputs[1]
    if target is None or shape is None:
        return
    if 0 in target and not outer.attributes.get_int("allowzero", 0):
        dims = static_shape(middle)
        if dims is None:
            return
        target = [dims[i] if dim == 0 else dim for i, dim in enumerate(target)]
        if 0 in target:
            return
        shape = ctx.rewriter.constant(shape, np.array(target, np.int64))
    new = ctx.rewriter.node(
        "Reshape", [inner.inputs[0], shape], dict(outer.attributes), like=outer.outputs[0]
    )
    old = [inner, outer] if _is_only_user(outer, middle) else [outer]
    ctx.rewriter.replace(old, [new], {outer.outputs[0]: new.outputs[0]})


def _producer(node: ir.Node, op_types: frozenset[str]) -> ir.Node | None:
    """Return the node that computes the first input, if it is one of these in the same graph."""
    producer = node.inputs[0].producer() if node.inputs and node.inputs[0] is not None else None
    if producer is None or producer.graph is not node.graph:
        return None
    is_wanted = producer.op_type in op_types and producer.domain in ("", "ai.onnx")
    return producer if is_wanted else None


def _is_only_user(node: ir.Node, value: ir.Value) -> bool:
    return not value.is_graph_output() and all(user is node for user in value.consumers())


def _perm(node: ir.Node) -> list[int] | None:
    perm = node.attributes.get_ints("perm")
    if perm is not None:
        return list(perm)
    shape = node.inputs[0].shape if node.inputs[0] is not None else None
    return None if shape is None else list(range(len(shape)))[::-1]
