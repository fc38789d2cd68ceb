"""Recurrent layers that the device has not, or computes otherwise, written out step by step.

Before:  RNN(x, w, r, b), and LSTM or GRU with clip, other activations or input_forget
After:   g = MatMul(x, w') + b       for all steps at once, then for each step t
         RNN:   h = f(g[t] + h r')
         LSTM:  i, o, f, c = split(g[t] + h r');  C = f C + i c;  h = o H(C)
         GRU:   z, r, n = ...;                    h = (1 - z) n + z h

The number of steps must be static. Sequences of their own length freeze their state when they end.
``layout=1`` alone becomes Transposes around the layer.
"""

from __future__ import annotations

from typing import ClassVar

import onnx_ir as ir

from cannc.compiler.core.shapes import static_shape
from cannc.op_support.report import Severity
from cannc.passes.base import Numerics
from cannc.passes.legalize.activations import unknown
from cannc.passes.legalize.base import EditCure, findings_about
from cannc.passes.legalize.cells import Layer, Sizes
from cannc.passes.opset.edit import Edit
from cannc.passes.pattern import ints_of

_MOST_STEPS = 512
_RECURRENT = frozenset({"GRU", "LSTM", "RNN"})


class RecurrentLayout(EditCure):
    """See the module."""

    name = "recurrent-layout"
    summary = "recurrent layers with batch first -> Transposes around them"
    numerics = Numerics.EXACT
    op_types = _RECURRENT
    _IN: ClassVar[dict[int, list[int]]] = {0: [1, 0, 2], 5: [1, 0, 2], 6: [1, 0, 2]}

    def needs(self, edit: Edit) -> bool:
        """Is the batch first?"""
        return edit.node.attributes.get_int("layout", 0) == 1

    def obstacle(self, edit: Edit) -> str | None:
        """There is none."""
        return None

    def apply(self, edit: Edit) -> None:
        """Turn inputs and outputs."""
        node = edit.node
        before: list[ir.Node] = []
        inputs = list(node.inputs)
        for index, perm in self._IN.items():
            value = edit.input(index)
            if value is not None:
                before.append(edit.make("Transpose", value, attributes={"perm": perm}))
                inputs[index] = before[-1].outputs[0]
        count = len(node.outputs)
        core = edit.ctx.rewriter.node(
            node.op_type, inputs, edit.without("layout"), num_outputs=count
        )
        perms = ([2, 0, 1, 3], [1, 0, 2], [1, 0, 2])
        after = [
            edit.make("Transpose", value, attributes={"perm": perm}, like=old)
            for old, value, perm in zip(node.outputs, core.outputs, perms, strict=False)
        ]
        values = dict(zip(node.outputs, (made.outputs[0] for made in after), strict=True))
        edit.ctx.rewriter.replace([node], [*before, core, *after], values)


class UnrollRecurrent(EditCure):
    """See the module."""

    name = "unroll-recurrent"
    summary = "RNN, and LSTM or GRU of unusual form, written out step by step"
    numerics = Numerics.REASSOCIATED
    op_types = _RECURRENT

    def needs(self, edit: Edit) -> bool:
        """Does the check refuse it, or say that the device would compute something else?"""
        if edit.node.attributes.get_int("layout", 0):
            return False
        found = findings_about(edit.ctx, edit.node)
        return any(f.severity in (Severity.WRONG, Severity.REFUSED) for f in found)

    def obstacle(self, edit: Edit) -> str | None:
        """Steps, batch and sizes must be static."""
        shape, weights = static_shape(edit.data()), static_shape(edit.input(2))
        if shape is None or weights is None or edit.data().dtype is None:
            return "the number of steps, the batch or the dtype is not known"
        if shape[0] > _MOST_STEPS:
            return f"{shape[0]} steps are more than the {_MOST_STEPS} that are written out"
        name = unknown(edit.node)
        return f"its activation {name} is not known" if name is not None else None

    def apply(self, edit: Edit) -> None:
        """Write out both directions."""
        node = edit.node
        shape, sizes = static_shape(edit.data()), static_shape(edit.input(2))
        assert shape is not None
        assert sizes is not None
        steps, batch = shape[:2]
        directions, hidden = sizes[0], sizes[2]
        given = edit.input(4)
        if given is not None and set(ints_of(given) or ()) == {steps}:
            given = None
        layer = Layer(edit, Sizes(steps, batch, hidden, directions), given)
        backward = node.attributes.get_string("direction", "forward")
        for direction in range(directions):
            layer.run(direction, reverse=backward == "reverse" or direction == 1)
        outputs = layer.outputs()
        values = {
            old: outputs[index]
            for index, old in enumerate(node.outputs)
            if old.uses() or old.is_graph_output()
        }
        for old, new in values.items():
            new.type, new.shape = old.type, old.shape
        edit.ctx.rewriter.replace([node], layer.nodes, values)
