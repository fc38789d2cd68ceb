"""What to do about findings: cures by operator, and which opset supports most nodes."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

from cannc.compiler.core.graphs import walk
from cannc.compiler.core.unit import CompileUnit
from cannc.op_support.table import operators

OPSETS = range(8, 19)

_QUANTIZED = "fold it into float weights, or quantize with cannc (npu operators) instead"
_UNROLL = "unroll it: the trip count must be constant or bounded by the input shapes"
_OPTIONAL = "remove it: pass the tensor itself"
_CURES = {
    "Attention": "decompose it into MatMul, Softmax, MatMul",
    "CenterCropPad": "replace it by Slice and Pad",
    "ConvInteger": _QUANTIZED,
    "DeformConv": "use the custom operator npu::NPUDeformableConv2d",
    "DequantizeLinear": _QUANTIZED,
    "DynamicQuantizeLinear": "decompose it, or use npu::NPUDynamicQuant",
    "Gelu": "export at opset 18 or lower, or let cannc optimize use npu::NPUGeluV2",
    "GroupNormalization": "decompose it into InstanceNormalization, Mul, Add",
    "Loop": _UNROLL,
    "MatMulInteger": _QUANTIZED,
    "NegativeLogLikelihoodLoss": "export the inference graph; this is a training operator",
    "Optional": _OPTIONAL,
    "OptionalGetElement": _OPTIONAL,
    "OptionalHasElement": _OPTIONAL,
    "QLinearConv": _QUANTIZED,
    "QLinearMatMul": _QUANTIZED,
    "QuantizeLinear": _QUANTIZED,
    "RMSNormalization": "decompose it, or let cannc optimize use npu::NPURmsNorm",
    "RNN": "decompose it into MatMul, Add, Tanh",
    "RotaryEmbedding": "decompose it, or use npu::NPURotaryMul",
    "Scan": _UNROLL,
    "SequenceMap": _UNROLL,
    "Swish": "decompose it into Sigmoid and Mul",
}


def cure_for(key: str) -> str:
    """Return what to do about an operator without a plugin; "" when nothing is known.

    Args:
        key: ``domain::type``.
    """
    domain, _, op_type = key.partition("::")
    if domain == "com.microsoft":
        return "export without onnxruntime's own fusions, or expand the contrib operator"
    if domain == "ai.onnx.ml":
        return "keep classical machine-learning operators outside the compiled model"
    return _CURES.get(op_type, "") if domain == "ai.onnx" else ""


@dataclass(frozen=True)
class OpsetAdvice:
    """How many nodes would find a plugin at one opset.

    Attributes:
        opset: Opset of the default domain.
        supported: Number of nodes with a plugin there.
        missing: Operator types without one, with counts.
    """

    opset: int
    supported: int
    missing: dict[str, int]


def opset_advice(unit: CompileUnit) -> list[OpsetAdvice]:
    """Return the opsets that ATC reads, the one that supports most nodes first.

    Only registrations are compared; whether the model can be converted to that opset is not
    judged. Among equals the model's own opset comes first, then the highest.
    """
    counts = Counter(
        scoped.node.op_type
        for scoped in walk(unit.model.graph)
        if scoped.node.domain in ("", "ai.onnx")
    )
    own = unit.model.opset_imports.get("", 0)
    advice = []
    for opset in OPSETS:
        missing = {}
        for op_type, count in sorted(counts.items()):
            entry = operators().get(f"ai.onnx::{op_type}")
            if entry is None or not entry.registered_at(opset):
                missing[op_type] = count
        supported = counts.total() - sum(missing.values())
        advice.append(OpsetAdvice(opset, supported, missing))
    return sorted(advice, key=lambda a: (-a.supported, a.opset != own, -a.opset))
