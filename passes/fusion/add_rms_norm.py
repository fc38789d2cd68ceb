"""Residual sum + NPURmsNorm -> npu::NPUAddRmsNorm.

Before:  s = a + b;  y = NPURmsNorm(s, gamma)         s may be used elsewhere, as residuals are
After:   y, rstd, s = NPUAddRmsNorm(a, b, gamma)

The kernel wants both addends of one shape and one dtype with gamma. Where `fuse-rms-norm` had to
rescale for another epsilon, a Mul stands between the two and the sum stays as it is (D10).
"""

from __future__ import annotations

from typing import ClassVar

import onnx_ir as ir

from cannc.passes.base import Numerics, PassContext
from cannc.passes.fusion.base import FusionPass, dtype_of, kernel_problem
from cannc.passes.fusion.npu_ops import NPU_DOMAIN
from cannc.passes.pattern import constant_of


class FuseAddRmsNorm(FusionPass):
    """See the module."""

    name: ClassVar[str] = "fuse-add-rms-norm"
    summary: ClassVar[str] = "Add + NPURmsNorm -> NPUAddRmsNorm"
    numerics: ClassVar[Numerics] = Numerics.REASSOCIATED
    roots: ClassVar[frozenset[str]] = frozenset({"NPURmsNorm"})
    domain: ClassVar[str] = NPU_DOMAIN
    emits: ClassVar[tuple[str, ...]] = ("NPUAddRmsNorm", "NPURmsNorm")

    def fuse(self, ctx: PassContext, node: ir.Node) -> None:
        """Fuse the sum that feeds `node`."""
        total, gamma = node.inputs[0], node.inputs[1]
        add = total.producer() if total is not None else None
        if add is None or gamma is None or add.op_type != "Add" or add.domain != "":
            return
        reason = _problem(ctx, node, add, gamma)
        if reason is not None:
            ctx.refuse(node, reason)
            return
        y, *rstd = node.outputs
        fused = ctx.rewriter.node(
            "NPUAddRmsNorm", [*add.inputs, gamma], domain=NPU_DOMAIN, num_outputs=3, like=y
        )
        values = {y: fused.outputs[0], add.outputs[0]: fused.outputs[2]}
        if rstd:
            values[rstd[0]] = fused.outputs[1]
        ctx.rewriter.replace([add, node], [fused], values)


def _problem(ctx: PassContext, node: ir.Node, add: ir.Node, gamma: ir.Value) -> str | None:
    if add.graph is not node.graph:
        return "the sum stands outside this branch or body"
    a, b = add.inputs
    assert a is not None
    assert b is not None
    if not _same_shape(a.shape, b.shape):
        return f"the addends have shapes {a.shape} and {b.shape}, the kernel wants one"
    dtypes = {dtype_of(value) for value in (a, b, gamma)}
    if len(dtypes) != 1:
        return f"the addends and gamma have dtypes {', '.join(sorted(map(str, dtypes)))}"
    if constant_of(gamma) is None:
        return f"gamma {gamma.name} is computed and might depend on the sum"
    return kernel_problem(ctx, "NPUAddRmsNorm", dtypes.pop())


def _same_shape(a: ir.Shape | None, b: ir.Shape | None) -> bool:
    """Return whether two shapes are known to be equal; unnamed dims are not."""
    if a is None or b is None or len(a) != len(b):
        return False
    known = all(isinstance(dim, int) or dim.value is not None for dim in a)
    return known and a == b
