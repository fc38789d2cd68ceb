"""Replaces calls of model-local functions by their bodies.

    y = Act<alpha: 0.2>(x), Act(a) <alpha> => LeakyRelu<alpha: @alpha>(a)
    ->  y = LeakyRelu<alpha: 0.2>(x)

A function whose name the target's parser knows as an operator (``npu::NPURmsNorm``) stays: its body
only says what the kernel computes (D8). The nodes of a body inherit the origin of their call.
"""

from __future__ import annotations

from collections.abc import Mapping

import onnx_ir as ir

from cannc.compiler.core.graphs import subgraphs
from cannc.op_support.table import operators
from cannc.passes.base import Numerics, Pass, PassContext
from cannc.passes.rewrite import scoped_nodes


class InlineFunctions(Pass):
    """See the module."""

    name = "inline-functions"
    summary = "replace calls of model-local functions by their bodies"
    numerics = Numerics.EXACT

    def run(self, ctx: PassContext) -> None:
        """See `Pass.run`."""
        inlined = {
            key: function for key, function in ctx.model.functions.items() if not is_operator(key)
        }
        if not inlined:
            return
        cyclic = _cyclic(inlined)
        pending = [scoped.node for scoped in scoped_nodes(ctx.model)]
        while pending:
            node = pending.pop()
            function = inlined.get(node.op_identifier())
            if function is None:
                continue
            reason = _obstacle(ctx.model, node, function, cyclic)
            if reason:
                ctx.refuse(node, reason)
                continue
            body = instantiate(node, function)
            pending += body.all_nodes()
            _import_opsets(ctx.model, function)
            ctx.rewriter.splice(node, body)


def is_operator(identifier: ir.OperatorIdentifier) -> bool:
    """Does the target's parser know this name as an operator (D8)?"""
    domain, op_type, _ = identifier
    return operators().get(f"{domain}::{op_type}") is not None


def _obstacle(
    model: ir.Model, call: ir.Node, function: ir.Function, cyclic: set[ir.OperatorIdentifier]
) -> str | None:
    """Return why a call cannot be inlined, or None."""
    if call.op_identifier() in cyclic:
        return "the function calls itself"
    for domain, version in function.opset_imports.items():
        mine = model.opset_imports.get(domain)
        if mine is not None and mine != version:
            return f"its body is written for opset {version} of '{domain}', the model for {mine}"
    if len(call.inputs) > len(function.inputs) or len(call.outputs) > len(function.outputs):
        return "the call has more inputs or outputs than the function"
    return None


def _import_opsets(model: ir.Model, function: ir.Function) -> None:
    for domain, version in function.opset_imports.items():
        model.opset_imports.setdefault(domain, version)


def instantiate(call: ir.Node, function: ir.Function) -> ir.Graph:
    """Return a copy of the body that reads the call's inputs and has the call's attributes."""
    body = function.graph.clone()
    actual = dict.fromkeys(range(len(body.inputs)), None) | dict(enumerate(call.inputs))
    for index, formal in enumerate(body.inputs):
        value = actual[index]
        for user, position in formal.uses():
            user.replace_input_with(position, value)
        for position, output in enumerate(body.outputs):
            if output is formal and value is not None:
                body.outputs[position] = value
    given = {name: a for name, a in function.attributes.items() if a.value is not None}
    given.update(call.attributes)
    _resolve(body, given)
    return body


def _resolve(graph: ir.Graph, given: Mapping[str, ir.Attr]) -> None:
    """Replace references to the function's attributes by the call's, or by nothing."""
    for node in graph:
        for name, attribute in [*node.attributes.items()]:
            if not attribute.is_ref():
                continue
            actual = given.get(attribute.ref_attr_name or "")
            if actual is None:
                del node.attributes[name]
            else:
                node.attributes[name] = ir.Attr(name, actual.type, actual.value)
        for _, inner in subgraphs(node):
            _resolve(inner, given)


def _cyclic(
    functions: Mapping[ir.OperatorIdentifier, ir.Function],
) -> set[ir.OperatorIdentifier]:
    """Return the functions that reach themselves."""
    calls = {
        key: {node.op_identifier() for node in function.all_nodes()} & functions.keys()
        for key, function in functions.items()
    }
    reached = {key: set(inner) for key, inner in calls.items()}
    for middle in functions:
        for key in functions:
            if middle in reached[key]:
                reached[key] |= reached[middle]
    return {key for key in functions if key in reached[key]}
