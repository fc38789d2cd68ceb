"""Gemm without C that scales its product; without C the device drops the factor.

Before:  Gemm<alpha=a>(x, w)      After:  Mul(Gemm(x, w), a)
"""

from __future__ import annotations

from cannc.passes.base import Numerics
from cannc.passes.legalize.base import EditCure
from cannc.passes.opset.edit import Edit, needs_dtype


class GemmAlpha(EditCure):
    """See the module."""

    name = "gemm-alpha"
    summary = "Gemm with alpha but without C -> Gemm, Mul"
    numerics = Numerics.REASSOCIATED
    op_types = frozenset({"Gemm"})

    def needs(self, edit: Edit) -> bool:
        """Is a factor given and no C?"""
        return edit.input(2) is None and edit.node.attributes.get_float("alpha", 1.0) != 1.0

    def obstacle(self, edit: Edit) -> str | None:
        """The factor has the dtype of the data."""
        return needs_dtype(edit)

    def apply(self, edit: Edit) -> None:
        """Multiply afterwards."""
        alpha = edit.scalar(edit.node.attributes.get_float("alpha", 1.0))
        inputs = [edit.data(), edit.input(1)]
        product = edit.make("Gemm", *inputs, attributes=edit.without("alpha"))
        edit.put([product, edit.make("Mul", product.outputs[0], alpha)])
