"""Quantization on small models, with kernel tables replaced by plain answers."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import onnx_ir as ir
from tests.support.models import parse

from cannc.compiler.core.provenance import Fate
from cannc.compiler.core.target import Target
from cannc.compiler.core.unit import CompileUnit, load
from cannc.quant.quantize import quantize
from cannc.quant.report import QuantReport

NPU = Target("Ascend910B4")
OLD_NPU = Target("Ascend310P3")


def has_kernel(op_type: str, dtype: ir.DataType | None) -> str | None:
    """Every kernel exists."""
    return None


def no_kernel(op_type: str, dtype: ir.DataType | None) -> str | None:
    """No kernel exists."""
    return f"no kernel for {op_type}"


def only_antiquant(op_type: str, dtype: ir.DataType | None) -> str | None:
    """NPUAntiQuant is the only kernel."""
    return None if op_type == "NPUAntiQuant" else no_kernel(op_type, dtype)


def quantized(
    model: Any, *, target: Target = NPU, kernels: Any = has_kernel, **options: Any
) -> CompileUnit:
    """Quantize, and check what must hold for every result."""
    unit = load(model)
    before = snapshot(unit.model)
    result = quantize(unit, target=target, may_use_kernel=kernels, **options)
    assert snapshot(unit.model) == before
    assert not unknown_fates(result)
    onnx.checker.check_model(ir.to_proto(result.model))
    return result


def snapshot(model: ir.Model) -> bytes:
    """Return the model as bytes, without names of literals, which onnx-ir fills in on reading."""
    proto = ir.to_proto(model)
    for node in proto.graph.node:
        for attribute in node.attribute:
            attribute.t.name = ""
    return proto.SerializeToString(deterministic=True)


def unknown_fates(unit: CompileUnit) -> list[Fate]:
    """Return the original values that provenance lost."""
    return [fate for fate in unit.fates() if fate.kind == "unknown"]


def report_of(unit: CompileUnit) -> QuantReport:
    """Return the report, which must be there."""
    report = QuantReport.of(unit)
    assert report is not None
    return report


def op_types(unit: CompileUnit) -> list[str]:
    """Return the operators of the main graph in order."""
    return [node.op_type for node in unit.model.graph]


def constants(unit: CompileUnit) -> dict[str, np.ndarray]:
    """Return all initializers as they would be written to a file."""
    proto = ir.to_proto(unit.model)
    return {t.name: onnx.numpy_helper.to_array(t) for t in proto.graph.initializer}


def plain_levels(weight: np.ndarray, axis: int, dtype: str, high: int = 127) -> np.ndarray:
    """Return min-max quantized and dequantized weights, computed apart from cannc.

    One scale per index of `axis`, rounded to `dtype` before it is used.
    """
    others = tuple(a for a in range(weight.ndim) if a != axis)
    peak = np.abs(weight.astype(np.float64)).max(axis=others, keepdims=True)
    scale = (peak / high).astype(dtype).astype(np.float32)
    scale[peak == 0] = 1.0
    levels = np.rint(weight.astype(np.float32) / scale).clip(-high, high)
    return levels.astype(np.float64) * scale


def matmul(weight: np.ndarray, x: str = "M, {k}", dtype: str = "float16") -> onnx.ModelProto:
    """Return ``y = x @ w``; `x` holds the dims of x, the last one ``{k}``."""
    lead = x.format(k=weight.shape[0])
    out = x.format(k=weight.shape[1])
    return parse(
        f"m ({dtype}[{lead}] x) => ({dtype}[{out}] y) {{ y = MatMul(x, w) }}",
        w=weight.astype(np.float32 if dtype == "float" else dtype),
    )
