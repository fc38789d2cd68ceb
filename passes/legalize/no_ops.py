"""Nodes that do nothing in a form that the target refuses or reads otherwise.

Before:  Clip(x)                                        After:  x
         ReduceMean<noop_with_empty_axes=1>(x)                  x
         MaxPool(x), two outputs, Indices unused                MaxPool(x), one output
         y, m = Dropout(x, ratio) at inference                  y = x, m = true everywhere
"""

from __future__ import annotations

import numpy as np

from cannc.compiler.core.shapes import static_shape
from cannc.passes.base import Numerics
from cannc.passes.legalize.base import EditCure, is_used
from cannc.passes.opset.edit import Edit
from cannc.passes.pattern import array_of, constant_of

_REDUCE = frozenset(
    f"Reduce{kind}"
    for kind in (
        "L1", "L2", "LogSum", "LogSumExp", "Max", "Mean", "Min", "Prod", "Sum", "SumSquare"
    )
)  # fmt: skip


class RemoveNoOps(EditCure):
    """See the module."""

    name = "remove-no-ops"
    summary = "drop nodes and outputs that do nothing and that the target refuses"
    numerics = Numerics.EXACT
    op_types = _REDUCE | {"Clip", "Dropout", "MaxPool"}

    def needs(self, edit: Edit) -> bool:
        """Does the node, or its second output, do nothing?"""
        node = edit.node
        if node.op_type == "Clip":
            named = {"min", "max"} & set(node.attributes)
            return edit.input(1) is None and edit.input(2) is None and not named
        if node.op_type == "MaxPool":
            return len(node.outputs) > 1 and not is_used(node.outputs[1])
        if node.op_type == "Dropout":
            return edit.input(1) is not None or any(map(is_used, node.outputs[1:]))
        axes = edit.input(1)
        tensor = constant_of(axes)
        empty = axes is None or (tensor is not None and tensor.size == 0)
        is_noop = node.attributes.get_int("noop_with_empty_axes", 0) == 1
        return is_noop and empty and "axes" not in node.attributes

    def obstacle(self, edit: Edit) -> str | None:
        """A Dropout that draws numbers does something."""
        training = edit.input(2) if edit.node.op_type == "Dropout" else None
        if training is None:
            return None
        flag, ratio = array_of(training), array_of(edit.input(1))
        draws = flag is None or bool(flag.any())
        return "it drops elements at random" if draws and (ratio is None or ratio.any()) else None

    def apply(self, edit: Edit) -> None:
        """Drop it; an Identity stays where the name of a graph output hangs on it."""
        node = edit.node
        if node.op_type == "MaxPool":
            # The order of storage only concerns the indices.
            edit.swap("MaxPool", node.inputs, edit.without("storage_order"), outputs=1)
        elif node.op_type == "Dropout":
            _keep_all(edit)
        elif not edit.ctx.rewriter.bypass(node, edit.data()):
            edit.swap("Identity", [edit.data()], {})


def _keep_all(edit: Edit) -> None:
    """Replace an idle Dropout; its mask is true wherever `x < x` is false."""
    x, rewriter = edit.data(), edit.ctx.rewriter
    kept = edit.make("Identity", x, like=edit.node.outputs[0])
    nodes, values = [kept], {edit.node.outputs[0]: kept.outputs[0]}
    for mask in filter(is_used, edit.node.outputs[1:]):
        shape = static_shape(x)
        if shape is not None:
            nodes.append(edit.make("Identity", edit.constant(np.ones(shape), np.bool_), like=mask))
        else:
            less = edit.make("Less", x, x)
            nodes += [less, edit.make("Not", less.outputs[0], like=mask)]
        values[mask] = nodes[-1].outputs[0]
    rewriter.replace([edit.node], nodes, values)
