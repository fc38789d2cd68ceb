"""What cures share: a node that the target cannot take becomes several that it can."""

from __future__ import annotations

import abc
from typing import ClassVar

import onnx_ir as ir

from cannc.op_support.table import operators
from cannc.passes.base import Pass, PassContext
from cannc.passes.rewrite import scoped_nodes


class Cure(Pass):
    """Looks at every node of certain types, in all graphs, and rewrites those that need it.

    Attributes:
        op_types: Operators of the default domain that it looks at.
    """

    op_types: ClassVar[frozenset[str]]

    def run(self, ctx: PassContext) -> None:
        """See `Pass.run`."""
        for scoped in scoped_nodes(ctx.model):
            node = scoped.node
            if node.op_type in self.op_types and node.domain in ("", "ai.onnx"):
                self.cure(ctx, node)

    @abc.abstractmethod
    def cure(self, ctx: PassContext, node: ir.Node) -> None:
        """Rewrite the node if the target needs it, else leave it."""


def opset_of(model: ir.Model) -> int:
    """Return the opset of the default domain; 0 when it is not imported."""
    return model.opset_imports.get("") or model.opset_imports.get("ai.onnx") or 0


def is_registered(model: ir.Model, op_type: str) -> bool:
    """Return whether ATC's parser has a plugin for the operator at the model's opset."""
    known = operators().get(f"ai.onnx::{op_type}")
    return known is not None and opset_of(model) in known.opsets
