"""What cures share: a node that the target cannot take becomes several that it can."""

from __future__ import annotations

import abc
from typing import ClassVar

import onnx_ir as ir

from cannc.op_support.checker import check_node
from cannc.op_support.report import Finding
from cannc.op_support.site import Site, World
from cannc.op_support.table import operators
from cannc.op_support.values import Values
from cannc.passes.base import Pass, PassContext
from cannc.passes.opset.edit import Edit
from cannc.passes.rewrite import scoped_nodes


class Cure(Pass):
    """Looks at every node of certain types, in all graphs, and rewrites those that need it.

    Attributes:
        op_types: Operators of the default domain that it looks at.
    """

    op_types: ClassVar[frozenset[str]] = frozenset()

    def run(self, ctx: PassContext) -> None:
        """See `Pass.run`."""
        for scoped in scoped_nodes(ctx.model):
            node = scoped.node
            if node.op_type in self.op_types and node.domain in ("", "ai.onnx"):
                self.cure(ctx, node)

    @abc.abstractmethod
    def cure(self, ctx: PassContext, node: ir.Node) -> None:
        """Rewrite the node if the target needs it, else leave it."""


class EditCure(Cure):
    """A cure in two steps: is there an obstacle, and the rewrite itself."""

    def cure(self, ctx: PassContext, node: ir.Node) -> None:
        """See `Cure.cure`."""
        edit = Edit(ctx, node)
        if not self.needs(edit):
            return
        obstacle = self.obstacle(edit)
        if obstacle is None:
            self.apply(edit)
        else:
            ctx.refuse(node, obstacle)

    @abc.abstractmethod
    def needs(self, edit: Edit) -> bool:
        """Would the target refuse the node or get it wrong?"""

    @abc.abstractmethod
    def obstacle(self, edit: Edit) -> str | None:
        """Return why the node cannot be rewritten, or None."""

    @abc.abstractmethod
    def apply(self, edit: Edit) -> None:
        """Rewrite the node."""


def findings_about(ctx: PassContext, node: ir.Node) -> list[Finding]:
    """Return what the operator check says about one node."""
    world = World(ctx.target, Values(ctx.model), ctx.provenance, frozenset())
    imports = {domain or "ai.onnx": version for domain, version in ctx.model.opset_imports.items()}
    return list(check_node(Site.of(node, "", imports, world)))


def opset_of(model: ir.Model) -> int:
    """Return the opset of the default domain; 0 when it is not imported."""
    return model.opset_imports.get("") or model.opset_imports.get("ai.onnx") or 0


def is_registered(model: ir.Model, op_type: str) -> bool:
    """Return whether ATC's parser has a plugin for the operator at the model's opset."""
    known = operators().get(f"ai.onnx::{op_type}")
    return known is not None and opset_of(model) in known.opsets


def is_used(value: ir.Value) -> bool:
    """Does a node or the graph's interface read the value?"""
    return bool(value.uses()) or value.is_graph_output()
