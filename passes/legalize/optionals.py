"""Optional values of which it is known whether they hold something.

Before:  OptionalGetElement(Optional(x))      After:  x
         OptionalHasElement(Optional(x))              true
         OptionalHasElement()                         false
"""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from cannc.passes.base import Numerics, Pass, PassContext
from cannc.passes.opset.edit import Edit
from cannc.passes.rewrite import scoped_nodes


class ResolveOptionals(Pass):
    """See the module."""

    name = "resolve-optionals"
    summary = "optional values that are known -> the tensors that they hold"
    numerics = Numerics.EXACT
    op_types = frozenset({"Optional", "OptionalGetElement", "OptionalHasElement"})

    def run(self, ctx: PassContext) -> None:
        """See `Pass.run`."""
        makers = []
        for scoped in scoped_nodes(ctx.model):
            node = scoped.node
            if node.domain not in ("", "ai.onnx"):
                continue
            if node.op_type == "Optional":
                makers.append(node)
            elif node.op_type == "OptionalGetElement":
                _get(Edit(ctx, node))
            elif node.op_type == "OptionalHasElement":
                _has(Edit(ctx, node))
        for node in makers:
            value = node.outputs[0]
            if not value.uses() and not value.is_graph_output():
                ctx.rewriter.erase([node])


def _get(edit: Edit) -> None:
    held = _held(edit.input(0))
    if held is None:
        edit.ctx.refuse(edit.node, "what the optional value holds is known at run time only")
    elif not edit.ctx.rewriter.bypass(edit.node, held):
        edit.swap("Identity", [held], {})


def _has(edit: Edit) -> None:
    given = edit.input(0)
    maker = None if given is None else given.producer()
    empty = given is None or (
        maker is not None and maker.op_type == "Optional" and not any(maker.inputs)
    )
    if empty or _held(given) is not None:
        edit.ctx.rewriter.fold(edit.node, [ir.Tensor(np.array(not empty))])
    else:
        edit.ctx.refuse(edit.node, "whether the optional value is empty is known at run time only")


def _held(value: ir.Value | None) -> ir.Value | None:
    """Return what an optional value holds, None when that is not known."""
    maker = None if value is None else value.producer()
    if maker is not None and maker.op_type == "Optional":
        return maker.inputs[0] if maker.inputs else None
    is_plain = value is not None and isinstance(value.type, (ir.TensorType, ir.SequenceType))
    return value if is_plain else None
