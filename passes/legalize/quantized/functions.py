"""Quantized functions of onnxruntime's domain: dequantize, apply the function, quantize.

onnxruntime adds and multiplies in another order in places, so that a result that lies between two
levels within rounding may become the other one.
"""

from __future__ import annotations

from typing import Any

import onnx_ir as ir

from cannc.passes.legalize.contrib.attention import heads_of
from cannc.passes.legalize.contrib.body import Body, ObstacleError, rank_of, width_of
from cannc.passes.legalize.contrib.self_attention import finish
from cannc.passes.legalize.quantized.integer import float_product
from cannc.passes.legalize.quantized.levels import FLOAT, Scales, dequantize, quantize
from cannc.passes.legalize.quantized.linear import scales_at


def _read(body: Body, index: int) -> ir.Value:
    """Return the floats of levels at `index`, with scale and zero point behind them."""
    return dequantize(body, body.need(index), scales_at(body, index + 1))


def _write(body: Body, result: ir.Value, index: int) -> None:
    """Put the levels of the result; scale and zero point stand at `index`."""
    scales = scales_at(body, index)
    body.put(quantize(body, result, scales, scales.dtype))


def add(body: Body) -> None:
    """Write out QLinearAdd."""
    _write(body, body.op("Add", _read(body, 0), _read(body, 3)), 6)


def multiply(body: Body) -> None:
    """Write out QLinearMul."""
    _write(body, body.op("Mul", _read(body, 0), _read(body, 3)), 6)


def where(body: Body) -> None:
    """Write out QLinearWhere."""
    _write(body, body.op("Where", body.need(0), _read(body, 1), _read(body, 4)), 7)


def sigmoid(body: Body) -> None:
    """Write out QLinearSigmoid."""
    _write(body, body.op("Sigmoid", _read(body, 0)), 3)


def leaky_relu(body: Body) -> None:
    """Write out QLinearLeakyRelu."""
    alpha = body.number("alpha", 0.01)
    _write(body, body.op("LeakyRelu", _read(body, 0), alpha=alpha), 3)


def softmax(body: Body) -> None:
    """Write out QLinearSoftmax; before opset 13 it was over all axes from one on."""
    x = _read(body, 0)
    size = rank_of(x)
    axis = body.integer("axis", -1) % size
    if body.integer("opset", 13) < 13 and axis != size - 1:
        raise ObstacleError("it runs over several axes")
    if body.opset < 13 and axis != size - 1:
        raise ObstacleError("Softmax over an inner axis needs opset 13")
    _write(body, body.op("Softmax", x, axis=axis), 3)


def global_average_pool(body: Body) -> None:
    """Write out QLinearGlobalAveragePool."""
    body.forbid(channels_last=0)
    _write(body, body.op("GlobalAveragePool", _read(body, 0)), 3)


def average_pool(body: Body) -> None:
    """Write out QLinearAveragePool."""
    body.forbid(channels_last=0)
    kept = {n: a for n, a in body.node.attributes.items() if n != "channels_last"}
    _write(body, body.op("AveragePool", _read(body, 0), **kept), 3)


def concat(body: Body) -> None:
    """Write out QLinearConcat."""
    count = len(body.node.inputs)
    parts = [_read(body, index) for index in range(2, count, 3)]
    joined = body.op("Concat", *parts, axis=body.integer("axis"))
    _write(body, joined, 0)


def gemm(body: Body) -> None:
    """Write out QGemm; without an output scale its result is float32."""
    left, right = _read(body, 0), _read_columns(body, 3)
    names: dict[str, Any] = {n: body.integer(n) for n in ("transA", "transB")}
    product = body.op("Gemm", left, right, alpha=body.number("alpha", 1.0), **names)
    bias = body.given(6)
    if bias is not None:
        scale = body.op("Mul", body.need(1), body.need(4))
        if body.number("alpha", 1.0) != 1:
            scale = body.op("Mul", scale, body.scalar(body.number("alpha", 1.0), scale))
        product = body.op("Add", product, body.op("Mul", body.cast(bias, FLOAT), scale))
    if body.given(7) is None:
        body.put(product)
    else:
        _write(body, product, 7)


def _read_columns(body: Body, index: int) -> ir.Value:
    scale, zero = body.need(index + 1), body.given(index + 2)
    axis = 0 if body.integer("transB") else 1
    return dequantize(body, body.need(index), Scales(scale, zero, axis))


def attention(body: Body) -> None:
    """Write out QAttention: in floats."""
    body.forbid(do_rotary=0, past_present_share_buffer=0)
    left = Scales(body.need(3), body.given(6))
    right = Scales(body.need(4), body.given(7), axis=-1)
    sums = float_product(body, body.need(0), left, body.need(1), right)
    product = body.op("Add", sums, body.need(2))
    size = width_of(body.need(1)) // 3
    heads = body.integer("num_heads")
    parts = [heads_of(body, part, heads) for part in body.split(product, 2, size, size, size)]
    finish(body, body.need(0), parts, mask=body.given(5), past=body.given(8))
