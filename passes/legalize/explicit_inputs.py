"""Optional inputs that the target needs, written as constants with their default values.

Before:  Split<num_outputs=3>(x), 7 wide     After:  Split(x, [3, 3, 1])
         NonMaxSuppression(boxes, scores)            NonMaxSuppression(..., 0, 0.0, lowest)

Split: ``ceil(n / parts)`` each, the last one gets the rest. NonMaxSuppression: no boxes, an
overlap of 0, and no threshold, which is the lowest float32.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from cannc.passes.base import Numerics
from cannc.passes.legalize.base import EditCure
from cannc.passes.opset.edit import Edit

_NMS_DEFAULTS: tuple[Any, ...] = (
    np.array([0], np.int64),
    np.array([0.0], np.float32),
    np.array([np.finfo(np.float32).min], np.float32),
)


class ExplicitInputs(EditCure):
    """See the module."""

    name = "explicit-inputs"
    summary = "optional inputs of Split and NonMaxSuppression as constants"
    numerics = Numerics.EXACT
    op_types = frozenset({"Split", "NonMaxSuppression"})

    def needs(self, edit: Edit) -> bool:
        """Is an optional input absent?"""
        if edit.node.op_type == "Split":
            return edit.input(1) is None and "split" not in edit.node.attributes
        return any(edit.input(index) is None for index in (2, 3, 4))

    def obstacle(self, edit: Edit) -> str | None:
        """Sizes need the dimension."""
        if edit.node.op_type == "Split" and _sizes(edit) is None:
            return "the dimension that it splits is not known, or too short for its outputs"
        return None

    def apply(self, edit: Edit) -> None:
        """Write the inputs."""
        node = edit.node
        if node.op_type == "Split":
            sizes = edit.constant(_sizes(edit))
            edit.swap("Split", [edit.data(), sizes], edit.without("num_outputs"))
            return
        given = [edit.input(index) for index in range(5)]
        for index, default in enumerate(_NMS_DEFAULTS, start=2):
            if given[index] is None:
                given[index] = edit.constant(default, default.dtype)
        edit.swap(node.op_type, given, node.attributes)


def _sizes(edit: Edit) -> list[int] | None:
    shape = edit.data().shape
    dim = None if shape is None else shape[edit.node.attributes.get_int("axis", 0)]
    if not isinstance(dim, int):
        return None
    parts = len(edit.node.outputs)
    size = -(-dim // parts)
    rest = dim - size * (parts - 1)
    return [size] * (parts - 1) + [rest] if rest >= 0 else None
