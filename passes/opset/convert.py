"""The pass that brings a model to opset 18."""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar

import onnx_ir as ir

from cannc.passes.base import Numerics, Pass, PassContext
from cannc.passes.fusion.npu_ops import NPU_DOMAIN, npu_function
from cannc.passes.inference import ensure_types, refresh_types
from cannc.passes.opset.bodies import expand_by_definition, has_body, schema_of
from cannc.passes.opset.down import down_adapter
from cannc.passes.opset.edit import TARGET_OPSET, Adapter, Edit
from cannc.passes.opset.expand import EXPANSIONS
from cannc.passes.opset.up import up_adapter
from cannc.passes.rewrite import scoped_nodes

IR_VERSION = 10
_OLDEST = 7


class OpsetTo18(Pass):
    """Opset 7 to 17 up, above 18 down, and operators that ATC does not know at 18 written out.

    Each operator that changed has its own small rewrite, so names, origins, nested graphs and lazy
    weights survive (onnx's own converter drops all of them). A model goes over as a whole or not at
    all: where one node has no way, it stays at its opset and a note says which node and why.
    """

    name: ClassVar[str] = "opset-to-18"
    summary: ClassVar[str] = "bring the model to opset 18, the newest that ATC's parser knows"
    numerics: ClassVar[Numerics] = Numerics.REASSOCIATED

    def run(self, ctx: PassContext) -> None:
        """See `Pass.run`."""
        opset = ctx.model.opset_imports.get("")
        if opset is None:
            return
        if opset != TARGET_OPSET or _has_expansions(ctx.model):
            ensure_types(ctx.model)
        while _expand(ctx, opset):
            refresh_types(ctx.model)
        if opset != TARGET_OPSET:
            _convert(ctx, opset)


def _has_expansions(model: ir.Model) -> bool:
    return any(node.op_type in EXPANSIONS for node in model.graph.all_nodes())


def _expand(ctx: PassContext, opset: int) -> bool:
    """Write out operators; say whether a definition came in, which may contain further ones."""
    spliced = False
    for scoped in scoped_nodes(ctx.model):
        node = scoped.node
        if node.domain != "":
            continue
        edit, adapter = Edit(ctx, node), EXPANSIONS.get(node.op_type)
        reason = adapter.obstacle(edit) if adapter is not None else None
        if adapter is not None and reason is None and opset >= adapter.since:
            adapter.apply(edit)
        elif has_body(node.op_type, opset):
            expand_by_definition(edit)
            spliced = True
        elif reason is not None:
            ctx.refuse(node, reason)
    return spliced


def _convert(ctx: PassContext, opset: int) -> None:
    model = ctx.model
    work = list(_work(ctx, opset))
    obstacles = [
        f"{edit.node.name} ({edit.node.op_type}): {reason}"
        for edit, adapter in work
        if (reason := adapter.obstacle(edit)) is not None
    ]
    obstacles += [
        f"function {domain}::{name} has a body of its own opset"
        for domain, name, _ in model.functions
        if domain != NPU_DOMAIN
    ]
    obstacles += _ancient(ctx, opset)
    if obstacles:
        ctx.note(f"the model stays at opset {opset}: {'; '.join(obstacles)}")
        return
    for edit, adapter in work:
        adapter.apply(edit)
    model.opset_imports[""] = TARGET_OPSET
    model.ir_version = IR_VERSION
    for key, function in [*model.functions.items()]:
        # A body must be written for the model's own opset (D7).
        model.functions[key] = npu_function(key[1], model, len(function.outputs))
    ctx.rewriter.applied += 1


def _ancient(ctx: PassContext, opset: int) -> Iterator[str]:
    """Yield nodes of opsets 1 to 6 whose operator had another form or other broadcasting then."""
    for scoped in scoped_nodes(ctx.model) if opset < _OLDEST else ():
        node = scoped.node
        then, later = schema_of(node.op_type, opset), schema_of(node.op_type, _OLDEST)
        if then is None or later is None or then.since_version != later.since_version:
            yield f"{node.name} ({node.op_type}): it changed before opset {_OLDEST}"


def _work(ctx: PassContext, opset: int) -> Iterator[tuple[Edit, Adapter]]:
    for scoped in scoped_nodes(ctx.model):
        node = scoped.node
        if node.domain != "":
            continue
        adapter = down_adapter(node, opset) if opset > TARGET_OPSET else up_adapter(node, opset)
        if adapter is not None:
            yield Edit(ctx, node), adapter
