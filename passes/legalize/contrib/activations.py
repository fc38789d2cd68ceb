"""Activations of onnxruntime's domain.

Gelu(x)             x * 0.5 * (1 + erf(x / sqrt 2))
BiasGelu(x, b)      the same of x + b
FastGelu(x, b?)     x * 0.5 * (1 + tanh(sqrt(2/pi) * (x + 0.044715 x^3))), of x + b when given
QuickGelu(x)        x * sigmoid(alpha x), alpha 1.702 unless it says else
BiasSplitGelu(x, b) left * gelu(right) of the halves of x + b
FusedConv and FusedGemm name theirs by an attribute, see `activate`.

All are written in the form that the fusions of this package recognize.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import onnx_ir as ir

from cannc.passes.legalize.contrib.body import Body, ObstacleError, width_of


def erf_gelu(body: Body, x: ir.Value) -> ir.Value:
    """Return the exact GELU of `x`."""
    curve = body.op("Erf", body.op("Div", x, body.scalar(math.sqrt(2), x)))
    product = body.op("Mul", x, body.op("Add", curve, body.scalar(1, x)))
    return body.op("Mul", product, body.scalar(0.5, x))


def gelu(body: Body) -> None:
    """Write out Gelu."""
    body.put(erf_gelu(body, body.need(0)))


def bias_gelu(body: Body) -> None:
    """Write out BiasGelu."""
    body.put(erf_gelu(body, body.op("Add", body.need(0), body.need(1))))


def bias_split_gelu(body: Body) -> None:
    """Write out BiasSplitGelu."""
    x = body.op("Add", body.need(0), body.need(1))
    half = width_of(body.need(1)) // 2
    left, right = (body.slice(x, -1, start, start + half) for start in (0, half))
    body.put(body.op("Mul", left, erf_gelu(body, right)))


def fast_gelu(body: Body) -> None:
    """Write out FastGelu."""
    x, bias = body.need(0), body.given(1)
    if bias is not None:
        x = body.op("Add", x, bias)
    cube = body.op("Mul", body.op("Pow", x, body.scalar(3, x)), body.scalar(0.044715, x))
    bent = body.op("Mul", body.op("Add", x, cube), body.scalar(math.sqrt(2 / math.pi), x))
    product = body.op("Mul", x, body.op("Add", body.op("Tanh", bent), body.scalar(1, x)))
    body.put(body.op("Mul", product, body.scalar(0.5, x)))


def quick_gelu(body: Body) -> None:
    """Write out QuickGelu."""
    x, alpha = body.need(0), body.number("alpha", 1.702)
    gate = x if alpha == 1 else body.op("Mul", x, body.scalar(alpha, x))
    body.put(body.op("Mul", x, body.op("Sigmoid", gate)))


def activate(body: Body, x: ir.Value, name: str, parameters: Sequence[float]) -> ir.Value:
    """Return the activation of `x` that a fused operator names; "" is none.

    Args:
        body: Where it goes.
        x: Input.
        name: Operator of ONNX: Relu, LeakyRelu, ...
        parameters: Its attributes alpha and beta, or the bounds of Clip.
    """
    named = dict(zip(("alpha", "beta"), parameters, strict=False))
    if name in ("Relu", "Sigmoid", "Tanh", "Softplus", "HardSwish"):
        return body.op(name, x)
    if name in ("LeakyRelu", "HardSigmoid", "Elu", "ThresholdedRelu"):
        return body.op(name, x, **named)
    if name == "Clip":
        return body.op("Clip", x, *(body.scalar(bound, x) for bound in parameters))
    if name:
        raise ObstacleError(f"its activation {name} is unknown here")
    return x
