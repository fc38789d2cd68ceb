"""What to do about findings: cures by operator, and which opset supports most nodes."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from functools import cache
from typing import Any

import onnx.defs

from cannc.compiler.core.graphs import walk
from cannc.compiler.core.unit import CompileUnit
from cannc.op_support.table import operators

OPSETS = range(8, 19)

_LATEST_PARSED = OPSETS[-1]

_PASSES = {
    "ArgMax": "arg-last-index",
    "ArgMin": "arg-last-index",
    "Clip": "remove-no-ops",
    "Constant": "explicit-attributes",
    "Conv": "explicit-attributes",
    "ConvInteger": "lower-quantized",
    "ConvTranspose": "explicit-attributes",
    "DequantizeLinear": "lower-quantized",
    "Dropout": "remove-no-ops",
    "DynamicQuantizeLinear": "lower-quantized",
    "GatherND": "batch-gather-nd",
    "GridSample": "explicit-attributes",
    "IsInf": "one-sided-isinf",
    "Loop": "unroll-loop",
    "MatMulInteger": "lower-quantized",
    "NonMaxSuppression": "explicit-inputs",
    "Optional": "resolve-optionals",
    "OptionalGetElement": "resolve-optionals",
    "OptionalHasElement": "resolve-optionals",
    "Pad": "pad-all-axes",
    "QLinearConv": "lower-quantized",
    "QLinearMatMul": "lower-quantized",
    "QuantizeLinear": "lower-quantized",
    "RNN": "unroll-recurrent",
    "ReduceL1": "expand-reduce-norms",
    "ReduceL2": "expand-reduce-norms",
    "ReduceSumSquare": "expand-reduce-norms",
    "Scan": "unroll-scan",
    "ScatterND": "scatter-nd-reduction",
    "Selu": "general-selu",
    "Split": "explicit-inputs",
    "Transpose": "explicit-attributes",
}
"""Operator -> pass that cures a refused node of it."""

_ATTRIBUTE_PASSES = {
    ("AveragePool", "auto_pad"): "explicit-pads",
    ("EyeLike", "dtype"): "explicit-attributes",
    ("Gemm", "alpha"): "gemm-alpha",
    ("GRU", "layout"): "recurrent-layout",
    ("LSTM", "layout"): "recurrent-layout",
    ("LpPool", "auto_pad"): "explicit-pads",
    ("LpPool", "ceil_mode"): "explicit-pads",
    ("LpPool", "dilations"): "dilated-pooling",
    ("MaxPool", "auto_pad"): "explicit-pads",
    ("MaxPool", "ceil_mode"): "explicit-pads",
    ("MaxPool", "dilations"): "dilated-pooling",
    ("Mod", "fmod"): "floor-mod",
    ("ScatterND", "reduction"): "scatter-nd-reduction",
    ("Shape", "end"): "expand-shape-range",
    ("Shape", "start"): "expand-shape-range",
}
"""Operator and attribute that the device ignores -> pass that does without it."""

_WHOLE_NODE_PASSES = {
    "GRU": "unroll-recurrent",
    "LSTM": "unroll-recurrent",
    "Resize": "resize-by-constants",
}
"""The same for operators of which any ignored attribute makes the pass rewrite the node."""

_KERNELS = {
    "Gelu": "npu::NPUGeluV2",
    "RMSNormalization": "npu::NPURmsNorm",
    "RotaryEmbedding": "npu::NPURotaryMul",
}
"""Operators that are written out and may then be fused again."""

_NO_PASS = {"DeformConv": "use the custom operator npu::NPUDeformableConv2d"}


def by_pass(name: str) -> str:
    """Return the advice to let a pass cure it."""
    return f"cannc optimize (pass {name})"


def refusal_cure(op_type: str) -> str:
    """Return what to do about a refused form of a registered operator; "" when unknown."""
    return by_pass(_PASSES[op_type]) if op_type in _PASSES else ""


def attribute_cure(op_type: str, attribute: str) -> str:
    """Return what to do about an attribute that the device ignores; "" when unknown."""
    name = _ATTRIBUTE_PASSES.get((op_type, attribute)) or _WHOLE_NODE_PASSES.get(op_type)
    return by_pass(name) if name is not None else ""


def cure_for(key: str) -> str:
    """Return what to do about an operator without a plugin; "" when nothing is known.

    Args:
        key: ``domain::type``.
    """
    domain, _, op_type = key.partition("::")
    if domain == "com.microsoft":
        return f"{by_pass('expand-contrib')}, or export without onnxruntime's own fusions"
    if domain == "ai.onnx.ml":
        return "keep classical machine-learning operators outside the compiled model"
    if domain != "ai.onnx":
        return ""
    return refusal_cure(op_type) or _NO_PASS.get(op_type) or _by_definition(op_type)


def _by_definition(op_type: str) -> str:
    """Operators that ONNX defines by others are written out."""
    schemas: list[Any] = [s for s in _schemas() if s.name == op_type and s.domain == ""]
    if not any(s.has_function or s.has_context_dependent_function for s in schemas):
        return ""
    is_newer = min(schema.since_version for schema in schemas) > _LATEST_PARSED
    kernel = f"; it may then use {_KERNELS[op_type]}" if op_type in _KERNELS else ""
    return by_pass("opset-to-18" if is_newer else "expand-definitions") + kernel


@cache
def _schemas() -> list[Any]:
    return list(onnx.defs.get_all_schemas_with_history())


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
