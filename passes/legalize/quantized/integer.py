"""MatMulInteger, ConvInteger, QLinearMatMul, QLinearConv and onnxruntime's forms of them.

sums = products of (a - a_zero) and (b - b_zero)       exact, see `products`
MatMulInteger, ConvInteger     sums as int32
QLinear*                       Clip(Round((sums + bias) * (a_scale * b_scale / y_scale)) + y_zero)
*ToFloat, DynamicQuantize*     sums * (a_scale * b_scale) + bias
"""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx_ir as ir

from cannc.compiler.core.shapes import rank
from cannc.passes.legalize.contrib.body import Body, ObstacleError, rank_of
from cannc.passes.legalize.quantized.levels import FLOAT, Scales, dequantize, floats, is_zero, place
from cannc.passes.legalize.quantized.linear import constant_weight, dynamic_levels, scales_at
from cannc.passes.legalize.quantized.products import INT32, Product
from cannc.passes.pattern import array_of

CONV_ATTRIBUTES = ("auto_pad", "dilations", "group", "kernel_shape", "pads", "strides")


def matmul_integer(body: Body) -> None:
    """Write out MatMulInteger, with the Cast and Mul that make floats of its sums if there are."""
    tail = _float_tail(body.node)
    if tail is None:
        body.put(body.cast(matmul_sums(body, (0, 2), (1, 3)), INT32))
        return
    cast, product, (a_scale, b_scale) = tail
    left = Scales(a_scale, _one(body, body.given(2)))
    right = Scales(b_scale, body.given(3), axis=-1)
    result = float_product(body, body.need(0), left, body.need(1), right)
    body.put(result, instead=(body.node, cast, product))


def _float_tail(node: ir.Node) -> tuple[ir.Node, ir.Node, list[ir.Value]] | None:
    """Return the Cast to float32 and the Mul by two scales that alone read the sums, or None."""
    cast = _only_user(node.outputs[0], "Cast")
    if cast is None or cast.attributes["to"].as_int() != FLOAT:
        return None
    product = _only_user(cast.outputs[0], "Mul")
    if product is None:
        return None
    others = [
        value for value in product.inputs if value is not None and value.producer() is not cast
    ]
    source = others[0].producer() if len(others) == 1 else None
    if source is None or source.op_type != "Mul":
        return None
    given = [value for value in source.inputs if value is not None]
    is_pair = len(given) == 2 and rank(given[0]) == 0 and rank(given[1]) in (0, 1)
    return (cast, product, given) if is_pair else None


def _only_user(value: ir.Value, op_type: str) -> ir.Node | None:
    users = value.consumers()
    if len(users) != 1 or users[0].op_type != op_type or value.is_graph_output():
        return None
    producer = value.producer()
    return users[0] if producer is not None and users[0].graph is producer.graph else None


def conv_integer(body: Body) -> None:
    """Write out ConvInteger."""
    zero = _one(body, body.given(2))
    product = Product(
        "Conv", body.need(0), zero, body.need(1), body.given(3), _conv_attributes(body)
    )
    body.put(body.cast(product.build(body), INT32))


def qlinear_matmul(body: Body) -> None:
    """Write out QLinearMatMul."""
    sums = body.cast(matmul_sums(body, (0, 2), (3, 5)), FLOAT)
    target = scales_at(body, 6)
    factor = _ratio(body, body.need(1), body.need(4), target.scale)
    scaled = body.op("Mul", sums, factor)
    body.put(place(body, scaled, target.offset(body, scaled), target.dtype))


def qlinear_conv(body: Body) -> None:
    """Write out QLinearConv."""
    body.forbid(channels_last=0)
    kernel, zero, target = body.need(3), _one(body, body.given(2)), scales_at(body, 6)
    product = Product("Conv", body.need(0), zero, kernel, body.given(5), _conv_attributes(body))
    sums, bias = product.build(body), body.given(8)
    spatial = [1] * (rank_of(kernel) - 2)
    if bias is not None:
        # Added as int32: with it the sum may leave the range that float32 holds exactly.
        sums = body.op("Add", body.cast(sums, INT32), _channels(body, bias, spatial))
    factor = _channels(body, _ratio(body, body.need(1), body.need(4), target.scale), spatial)
    scaled = body.op("Mul", body.cast(sums, FLOAT), factor)
    body.put(place(body, scaled, target.offset(body, scaled), target.dtype))


def matmul_integer_to_float(body: Body) -> None:
    """Write out MatMulIntegerToFloat."""
    left = Scales(body.need(2), _one(body, body.given(4)))
    right = Scales(body.need(3), body.given(5), axis=-1)
    _biased(body, float_product(body, body.need(0), left, body.need(1), right), body.given(6))


def dynamic_quantize_matmul(body: Body) -> None:
    """Write out DynamicQuantizeMatMul."""
    levels, left = dynamic_levels(body, body.need(0))
    right = Scales(body.need(2), body.given(3), axis=-1)
    _biased(body, float_product(body, levels, left, body.need(1), right), body.given(4))


def _biased(body: Body, result: ir.Value, bias: ir.Value | None) -> None:
    body.put(result if bias is None else body.op("Add", result, bias))


def float_product(body: Body, a: ir.Value, left: Scales, b: ir.Value, right: Scales) -> ir.Value:
    """Return the product of two dequantized matrices; large constant ones stay integers."""
    weight = constant_weight(b, right, FLOAT)
    if weight is None:
        matrix = dequantize(body, b, right)
    else:
        matrix = weight.place(body, keep_integers=True)
    return body.op("MatMul", dequantize(body, a, left), matrix)


def matmul_sums(body: Body, left: tuple[int, int], right: tuple[int, int]) -> ir.Value:
    """Return the sums of two inputs' products; each is given as (levels, zero point)."""
    (a, a_zero), (b, b_zero) = left, right
    zero = _one(body, body.given(a_zero))
    return Product("MatMul", body.need(a), zero, body.need(b), body.given(b_zero), {}).build(body)


def _ratio(body: Body, a: ir.Value, b: ir.Value, y: ir.Value | None = None) -> ir.Value:
    """Return ``a * b / y``, a constant if they are."""
    arrays = [array_of(value) for value in (a, b, y) if value is not None]
    if all(array is not None for array in arrays):
        numbers = [array.astype(np.float32) for array in arrays if array is not None]
        result = numbers[0] * numbers[1]
        return body.constant(np.asarray(result if y is None else result / numbers[2]))
    product = body.op("Mul", floats(body, a), floats(body, b))
    return product if y is None else body.op("Div", product, floats(body, y))


def _channels(body: Body, value: ir.Value, spatial: list[int]) -> ir.Value:
    """Return one number per channel so that it broadcasts to (N, C, ...)."""
    array = array_of(value)
    if array is not None:
        return body.constant(array if array.size == 1 else array.reshape(-1, *spatial))
    return body.reshape(value, -1, *spatial)


def _one(body: Body, zero: ir.Value | None) -> ir.Value | None:
    """Return a zero point that must be the same for all of the left side."""
    if zero is None or is_zero(zero):
        return None
    array = array_of(zero)
    if array is not None and array.size == 1:
        return body.constant(array.reshape(()))
    if rank_of(zero) > 0 and not (zero.shape is not None and zero.shape[0] == 1):
        raise ObstacleError("zero points that differ between rows have no counterpart")
    return zero


def _conv_attributes(body: Body) -> dict[str, Any]:
    return {n: a for n, a in body.node.attributes.items() if n in CONV_ATTRIBUTES}
