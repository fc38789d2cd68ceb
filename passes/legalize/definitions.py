"""Operators without a plugin that ONNX itself defines by others, written out by that definition.

Before:  NegativeLogLikelihoodLoss(x, t)      After:  the body that its OpSchema gives
         CenterCropPad, HannWindow, SequenceMap, ...

Operators that are newer than the model's opset are written out by ``opset-to-18`` already.
"""

from __future__ import annotations

from typing import Any

import onnx_ir as ir

from cannc.op_support.table import operators
from cannc.passes.base import Numerics, Pass, PassContext
from cannc.passes.inference import ensure_types, refresh_types
from cannc.passes.legalize.base import opset_of
from cannc.passes.opset.bodies import expand_by_definition, schema_of
from cannc.passes.opset.edit import Edit
from cannc.passes.rewrite import scoped_nodes

_OWN_CURES = frozenset({"DynamicQuantizeLinear", "ReduceL1", "ReduceL2", "ReduceSumSquare"})


class ExpandDefinitions(Pass):
    """See the module."""

    name = "expand-definitions"
    summary = "operators without a plugin written out by their ONNX definition"
    numerics = Numerics.REASSOCIATED

    def run(self, ctx: PassContext) -> None:
        """Expand until no node is left that can be."""
        while found := [s.node for s in scoped_nodes(ctx.model) if _applies(ctx.model, s.node)]:
            ensure_types(ctx.model)
            for node in found:
                expand_by_definition(Edit(ctx, node))
            refresh_types(ctx.model)


def _applies(model: ir.Model, node: ir.Node) -> bool:
    if node.domain != "" or node.op_type in _OWN_CURES:
        return False
    opset = opset_of(model)
    entry = operators().get(f"ai.onnx::{node.op_type}")
    if entry is not None and opset in entry.opsets:
        return False
    schema: Any = schema_of(node.op_type, opset)
    return schema is not None and (schema.has_function or schema.has_context_dependent_function)
