"""Attention scores are scaled before the MatMul instead of after it."""

from __future__ import annotations

import onnx_ir as ir

from cannc.passes.base import PassContext
from cannc.passes.pattern import constant_of, scalar_of
from cannc.passes.precision.slots import FLOAT
from cannc.passes.rewrite import scoped_nodes


def prescale(ctx: PassContext) -> None:
    """Move a shrinking factor from a MatMul's result to its first operand.

    ``Mul(MatMul(q, k), 0.125)`` -> ``MatMul(Mul(q, 0.125), k)``: the product of two activations
    overflows half before the factor brings it back; it is also the smaller tensor to scale.
    """
    for scoped in scoped_nodes(ctx.model):
        scale = scoped.node
        matmul = scale.inputs[0].producer() if scale.inputs and scale.inputs[0] else None
        if matmul is None or not _shrinks(scale) or not _movable(matmul):
            continue
        left, right = matmul.inputs
        scaled = ctx.rewriter.node(scale.op_type, [left, scale.inputs[1]], like=left)
        product = ctx.rewriter.node("MatMul", [scaled.outputs[0], right], like=scale.outputs[0])
        ctx.rewriter.replace(
            [matmul, scale], [scaled, product], {scale.outputs[0]: product.outputs[0]}
        )


def _shrinks(node: ir.Node) -> bool:
    if node.domain != "" or node.op_type not in ("Mul", "Div"):
        return False
    factor, tensor = scalar_of(node.inputs[1]), constant_of(node.inputs[1])
    if not factor or tensor is None or len(tensor.shape) > 1:
        return False
    return abs(factor) < 1 if node.op_type == "Mul" else abs(factor) > 1


def _movable(node: ir.Node) -> bool:
    """Only a MatMul of two activations, whose bare result nothing else reads."""
    (result,) = node.outputs
    return (
        node.op_type == "MatMul"
        and node.domain == ""
        and all(constant_of(v) is None for v in node.inputs)
        and result.dtype == FLOAT
        and len(result.uses()) == 1
        and not result.is_graph_output()
    )
