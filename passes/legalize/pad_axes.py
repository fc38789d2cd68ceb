"""Pad of some axes only; the device operator has no input for axes.

Before:  Pad(x, pads, value, axes=[1, 3])
After:   Pad(x, Gather(Concat(pads, 0), places), value)

`places` holds, for each start and then each end, where it stands in `pads`, or the place of the
zero that was appended. Constant pads are rearranged at once.
"""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from cannc.compiler.core.shapes import rank
from cannc.passes.base import Numerics
from cannc.passes.legalize.base import EditCure
from cannc.passes.opset.edit import Edit
from cannc.passes.pattern import ints_of

_AXES = 3


class PadAllAxes(EditCure):
    """See the module."""

    name = "pad-all-axes"
    summary = "Pad with axes -> Pad of all axes"
    numerics = Numerics.EXACT
    op_types = frozenset({"Pad"})

    def needs(self, edit: Edit) -> bool:
        """Does it name axes?"""
        return edit.input(_AXES) is not None

    def obstacle(self, edit: Edit) -> str | None:
        """Axes and rank must be known."""
        if ints_of(edit.input(_AXES)) is None:
            return "its axes are computed"
        return None if rank(edit.data()) is not None else "the rank of its input is unknown"

    def apply(self, edit: Edit) -> None:
        """Spread the pads over all axes."""
        axes, dims = ints_of(edit.input(_AXES)), rank(edit.data())
        assert axes is not None
        assert dims is not None
        places = np.full(2 * dims, 2 * len(axes), np.int64)
        for index, axis in enumerate(axes):
            places[axis % dims] = index
            places[axis % dims + dims] = len(axes) + index
        pads = ints_of(edit.input(1))
        nodes: list[ir.Node] = []
        if pads is not None:
            spread = edit.constant([[*pads, 0][place] for place in places])
        else:
            longer = edit.make("Concat", edit.input(1), edit.constant([0]), attributes={"axis": 0})
            longer.outputs[0].type = ir.TensorType(ir.DataType.INT64)
            nodes = [longer, edit.make("Gather", longer.outputs[0], edit.constant(places))]
            spread = nodes[-1].outputs[0]
        value = edit.input(2)
        inputs = [edit.data(), spread] + ([value] if value is not None else [])
        edit.put([*nodes, edit.make("Pad", *inputs, attributes=edit.node.attributes)])
