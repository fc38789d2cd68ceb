"""IsInf of one sign only; the plugin demands both.

Before:  IsInf<detect_negative=0>(x)      After:  Equal(x, +inf)
         IsInf<detect_positive=0>(x)              Equal(x, -inf)
         IsInf<both 0>(x)                         Less(x, x), which is false everywhere
"""

from __future__ import annotations

import math

from cannc.passes.base import Numerics
from cannc.passes.legalize.base import EditCure
from cannc.passes.opset.edit import Edit, needs_dtype


class OneSidedIsInf(EditCure):
    """See the module."""

    name = "one-sided-isinf"
    summary = "IsInf of one sign -> Equal with that infinity"
    numerics = Numerics.EXACT
    op_types = frozenset({"IsInf"})

    def needs(self, edit: Edit) -> bool:
        """Is one of the signs left out?"""
        return not all(_signs(edit))

    def obstacle(self, edit: Edit) -> str | None:
        """The infinity has the dtype of the data."""
        return needs_dtype(edit)

    def apply(self, edit: Edit) -> None:
        """Compare."""
        negative, positive = _signs(edit)
        x = edit.data()
        if not negative and not positive:
            edit.swap("Less", [x, x], {})
        else:
            edit.swap("Equal", [x, edit.scalar(-math.inf if negative else math.inf)], {})


def _signs(edit: Edit) -> tuple[bool, bool]:
    attributes = edit.node.attributes
    return (
        attributes.get_int("detect_negative", 1) == 1,
        attributes.get_int("detect_positive", 1) == 1,
    )
