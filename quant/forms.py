"""Which form a quantized weight takes on a target (D11), and why not a better one.

1. ``npu::WeightQuantBatchMatmulV2``: integers go into the matrix unit's own kernel.
2. ``npu::NPUAntiQuant`` + the node as it was: the weight is expanded by a kernel before use.
3. ``Cast + Mul(scale)`` + the node as it was: right everywhere, but ATC may fold it back to
   float16, so the report says it.

For other tools: ``DequantizeLinear`` + the node as it was, whatever the target.
"""

from __future__ import annotations

import enum
from collections.abc import Callable
from dataclasses import dataclass

import onnx_ir as ir

from cannc.compiler.core.target import Target
from cannc.passes.fusion.npu_ops import MIN_OPSET
from cannc.quant.collect import WeightUse
from cannc.quant.packing import PER_WORD
from cannc.quant.scheme import Scheme

MayUseKernel = Callable[[str, ir.DataType | None], str | None]

MAX_DIMENSION = 65535
"""Largest k and n of WeightQuantBatchMatmulV2 (npu-ops.md section 4)."""

MIN_QDQ = 13
"""Opset from which DequantizeLinear takes an axis."""

_FUSED_FAMILIES = ("ascend910b", "ascend910_93", "ascend950")
"""Where the kernel takes the plain ND weight that an ONNX file can hold."""

_HALVES = (ir.DataType.FLOAT16, ir.DataType.BFLOAT16)


class Form(enum.Enum):
    """How a quantized weight stands in the graph."""

    FUSED = "WeightQuantBatchMatmulV2"
    ANTIQUANT = "NPUAntiQuant"
    DEQUANT = "Cast+Mul"
    QDQ = "DequantizeLinear"


@dataclass(frozen=True)
class Choice:
    """The form of one weight.

    Attributes:
        form: The form.
        scheme: The scheme that holds for this weight; groups only where the form has them.
        why: What stood against a better form or against groups; empty when nothing did.
    """

    form: Form
    scheme: Scheme
    why: str = ""


@dataclass(frozen=True)
class FormRules:
    """What decides about forms.

    Attributes:
        target: SoC and CANN release.
        may_use_kernel: Asks the kernel tables, see `PassContext.may_use_kernel`.
        opset: Opset of the model.
        qdq: Take DequantizeLinear wherever it can hold the scales.
    """

    target: Target
    may_use_kernel: MayUseKernel
    opset: int
    qdq: bool = False

    def choose(self, use: WeightUse, scheme: Scheme) -> Choice:
        """Return the best form that the target has for one weight."""
        if self.qdq:
            return self._qdq(use, scheme)
        scheme, coarse = _granularity(use, scheme)
        gap = self._fused_gap(use, scheme)
        if gap is None:
            return Choice(Form.FUSED, scheme, coarse)
        if self._antiquant_gap(use, scheme) is None:
            form = Form.ANTIQUANT
        else:
            form = Form.DEQUANT
            if scheme.bits < 8:
                gap += f"; its {scheme.bits}-bit levels take a byte each"
        return Choice(form, scheme, "; ".join(filter(None, (gap, coarse))))

    def _qdq(self, use: WeightUse, scheme: Scheme) -> Choice:
        """DequantizeLinear has scales along one axis; blocks only from opset 21 on."""
        coarse = "" if scheme.group is None else "no groups in DequantizeLinear before opset 21"
        if use.node.op_type == "Gather" or len(use.layout.channels) != 1 or self.opset < MIN_QDQ:
            why = "DequantizeLinear cannot hold its scales"
            return Choice(
                Form.DEQUANT, scheme.per_channel(), "; ".join(filter(None, (why, coarse)))
            )
        return Choice(Form.QDQ, scheme.per_channel(), coarse)

    def _fused_gap(self, use: WeightUse, scheme: Scheme) -> str | None:
        """Return why WeightQuantBatchMatmulV2 cannot be used, or None."""
        layout, dtype = use.layout, use.weight.dtype
        if use.node.op_type not in ("MatMul", "Gemm"):
            return f"{use.node.op_type} has no kernel with integer weights"
        if use.operand != 1:
            return "the kernel takes the weight as right operand only"
        if len(layout.shape) != 2:
            return f"the kernel takes 2-D weights, this one has {len(layout.shape)} dimensions"
        if dtype not in _HALVES:
            return f"the kernel takes float16 or bfloat16 activations, these are {dtype.name}"
        if max(layout.k, layout.n) > MAX_DIMENSION:
            return f"{layout.k} x {layout.n} is over the kernel's limit of {MAX_DIMENSION}"
        if scheme.bits == 4 and layout.n % PER_WORD:
            return f"4-bit weights need columns in multiples of {PER_WORD}, there are {layout.n}"
        if self.opset < MIN_OPSET:
            return f"opset {self.opset} is below {MIN_OPSET}"
        if self.target.family not in _FUSED_FAMILIES:
            return f"no proven kernel on {self.target.soc}"
        return self.may_use_kernel(Form.FUSED.value, dtype)

    def _antiquant_gap(self, use: WeightUse, scheme: Scheme) -> str | None:
        """Return why NPUAntiQuant cannot be used, or None. It scales the last axis only."""
        if use.node.op_type not in ("MatMul", "Gemm") or use.operand != 1:
            return "it scales the last axis only"
        if len(use.layout.shape) != 2 or scheme.group is not None or scheme.bits != 8:
            return "it has one int8 scale per column"
        if use.weight.dtype != ir.DataType.FLOAT16 or self.opset < MIN_OPSET:
            return "it makes float16 weights"
        return self.may_use_kernel(Form.ANTIQUANT.value, use.weight.dtype)


def _granularity(use: WeightUse, scheme: Scheme) -> tuple[Scheme, str]:
    """Return the scheme with groups only where the weight can have them, and why not."""
    if scheme.group is None:
        return scheme, ""
    if use.node.op_type == "Gather" or len(use.layout.reduced) != 1:
        return scheme.per_channel(), f"{use.node.op_type}: one scale per channel, no groups"
    if use.layout.k <= scheme.group:
        why = f"{use.layout.k} weights per channel are one group: one scale per channel"
        return scheme.per_channel(), why
    return scheme, ""
