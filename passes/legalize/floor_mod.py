"""Integer Mod with the sign of the divisor; the device truncates.

Before:  m = Mod<fmod=0>(a, b)
After:   r = Mod<fmod=1>(a, b);  m = Where(r != 0 and (r < 0) xor (b < 0), r + b, r)

Exact for all integers. Operands that are known to be zero or more need nothing but the attribute.
"""

from __future__ import annotations

from cannc.op_support.rules.signs import nonnegative
from cannc.op_support.values import Values
from cannc.passes.base import Numerics
from cannc.passes.legalize.base import EditCure
from cannc.passes.opset.edit import Edit
from cannc.passes.opset.modulo import floor_mod, floor_mod_obstacle


class FloorMod(EditCure):
    """See the module."""

    name = "floor-mod"
    summary = "Mod with the divisor's sign written with the truncating remainder"
    numerics = Numerics.EXACT
    op_types = frozenset({"Mod"})

    def needs(self, edit: Edit) -> bool:
        """May an operand be negative?"""
        if edit.node.attributes.get_int("fmod", 0):
            return False
        values = Values(edit.ctx.model)
        return not all(nonnegative(value, values) for value in edit.node.inputs)

    def obstacle(self, edit: Edit) -> str | None:
        """See `floor_mod_obstacle`."""
        return floor_mod_obstacle(edit)

    def apply(self, edit: Edit) -> None:
        """See `floor_mod`."""
        floor_mod(edit)
