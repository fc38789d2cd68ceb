"""ArgMax and ArgMin that want the last of equal elements; the plugin knows the first only.

Before:  i = ArgMax<axis=a, select_last_index=1>(x)
After:   i = (n - 1) - ArgMax<axis=a>(x reversed along a)

The first one from the end is the last one. The reversal is a Slice with step -1; n is x's size.
"""

from __future__ import annotations

import numpy as np

from cannc.compiler.core.shapes import rank
from cannc.passes.base import Numerics
from cannc.passes.legalize.base import EditCure
from cannc.passes.opset.edit import Edit

_ALL = np.iinfo(np.int64).min


class LastIndex(EditCure):
    """See the module."""

    name = "arg-last-index"
    summary = "ArgMax and ArgMin with select_last_index on the reversed axis"
    numerics = Numerics.EXACT
    op_types = frozenset({"ArgMax", "ArgMin"})

    def needs(self, edit: Edit) -> bool:
        """Does it want the last index?"""
        return edit.node.attributes.get_int("select_last_index", 0) == 1

    def obstacle(self, edit: Edit) -> str | None:
        """The size of the axis enters as a constant."""
        return None if _size(edit) is not None else "the size of its axis is not known"

    def apply(self, edit: Edit) -> None:
        """Reverse, find the first, count from the other end."""
        x, size = edit.data(), _size(edit)
        assert size is not None
        axis = edit.node.attributes.get_int("axis", 0) % (rank(x) or 1)
        bounds = [edit.constant([number]) for number in (-1, _ALL, axis, -1)]
        reverse = edit.make("Slice", x, *bounds, like=x)
        first = edit.make(
            edit.node.op_type, reverse.outputs[0], attributes=edit.without("select_last_index")
        )
        edit.put([reverse, first, edit.make("Sub", edit.constant(size - 1), first.outputs[0])])


def _size(edit: Edit) -> int | None:
    shape = edit.data().shape
    dim = None if shape is None else shape[edit.node.attributes.get_int("axis", 0)]
    return dim if isinstance(dim, int) else None
