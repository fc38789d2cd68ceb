"""2-D MatMul + Add -> Gemm, only where it means the same.

Before:  A[M, K] @ B[K, N] + C
After:   Gemm(A, B, C)        C is one number, or one per column

Constants of shape [1, N] become [N]: ATC merges only 1-D biases into its matrix multiplication
(ge-fusions.md section 1). Products of higher rank keep MatMul + Add, which ATC fuses as it is, and
so do addends that vary by row or are activations: a residual sum is wanted by other fusions.
"""

from __future__ import annotations

from typing import ClassVar

import onnx_ir as ir

from cannc.compiler.core.tensors import DerivedTensor
from cannc.passes.base import Numerics, PassContext
from cannc.passes.fusion.base import FusionPass, choose
from cannc.passes.pattern import Match, constant_of, op, var

_FORM = (op("Add", op("MatMul", var("a"), var("b")), var("c")),)
_FLOATS = frozenset(
    {ir.DataType.FLOAT, ir.DataType.FLOAT16, ir.DataType.BFLOAT16, ir.DataType.DOUBLE}
)


class MatMulAddToGemm(FusionPass):
    """See the module."""

    name: ClassVar[str] = "matmul-add-to-gemm"
    summary: ClassVar[str] = "2-D MatMul + Add -> Gemm"
    numerics: ClassVar[Numerics] = Numerics.REASSOCIATED
    roots: ClassVar[frozenset[str]] = frozenset({"Add"})
    anchors: ClassVar[frozenset[str]] = frozenset({"MatMul"})
    reach: ClassVar[int] = 1

    def fuse(self, ctx: PassContext, node: ir.Node) -> None:
        """Fuse the product that feeds `node`."""
        match = choose(ctx, _FORM, node, _problem)
        if match is None:
            return
        result = node.outputs[0]
        inputs = [match["a"], match["b"], _bias(ctx, match["c"])]
        gemm = ctx.rewriter.node("Gemm", inputs, like=result)
        ctx.rewriter.replace(match.nodes, [gemm], {result: gemm.outputs[0]})


def _problem(match: Match) -> str | None:
    a, b, c = match["a"].shape, match["b"].shape, match["c"].shape
    if a is None or b is None or c is None:
        return "a shape is not known"
    if len(a) != 2 or len(b) != 2:
        return ""
    dtypes = {match[name].dtype for name in "abc"}
    if len(dtypes) != 1 or not dtypes <= _FLOATS:
        return f"Gemm on {', '.join(sorted(map(str, dtypes)))} is not widely implemented"
    if len(c) > 1 and constant_of(match["c"]) is None:
        return ""
    if len(c) > 2 or any(n not in (1, m) for n, m in zip(reversed(c), (b[1], 1), strict=False)):
        return f"the addend of shape {c} is not one number per column"
    return None


def _bias(ctx: PassContext, c: ir.Value) -> ir.Value:
    """Return the addend; a constant row as a 1-D tensor."""
    tensor = constant_of(c)
    if tensor is None or c.shape is None or len(c.shape) != 2 or c.shape[0] != 1:
        return c
    flat = DerivedTensor(tensor, lambda row: row.reshape(-1), tensor.dtype, ir.Shape(c.shape[1:]))
    return ctx.rewriter.constant(c, flat)
