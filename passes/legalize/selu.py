"""Selu with other constants than ONNX's; the plugin knows those only.

Before:  Selu<alpha=a, gamma=g>(x)      After:  Mul(Elu<alpha=a>(x), g)
"""

from __future__ import annotations

from cannc.passes.base import Numerics
from cannc.passes.legalize.base import EditCure
from cannc.passes.opset.edit import Edit, needs_dtype

_DEFAULTS = {"alpha": 1.67326319217681884765625, "gamma": 1.05070102214813232421875}


class GeneralSelu(EditCure):
    """See the module."""

    name = "general-selu"
    summary = "Selu with constants of its own -> Elu, Mul"
    numerics = Numerics.REASSOCIATED
    op_types = frozenset({"Selu"})

    def needs(self, edit: Edit) -> bool:
        """Does a constant differ from ONNX's default?"""
        return any(abs(_constant(edit, name) - value) > 1e-6 for name, value in _DEFAULTS.items())

    def obstacle(self, edit: Edit) -> str | None:
        """The factor has the dtype of the data."""
        return needs_dtype(edit)

    def apply(self, edit: Edit) -> None:
        """Scale Elu."""
        curve = edit.make("Elu", edit.data(), attributes={"alpha": _constant(edit, "alpha")})
        scale = edit.scalar(_constant(edit, "gamma"))
        edit.put([curve, edit.make("Mul", curve.outputs[0], scale)])


def _constant(edit: Edit, name: str) -> float:
    return edit.node.attributes.get_float(name, _DEFAULTS[name])
