"""Matrix products of onnxruntime's domain.

FusedMatMul(a, b)     alpha * MatMul(a or a', b or b'), a' with its last two axes swapped
FusedGemm(a, b, c?)   activation(Gemm(a, b, c))
FusedConv(x, w, b?, z?)  activation(Conv(x, w, b) + z)
MatMulNBits(a, b, scales, zero points?, g_idx?, bias?)  MatMul(a, dequantized b) + bias
"""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx_ir as ir

from cannc.compiler.core.runner import Array
from cannc.compiler.core.tensors import DerivedTensor, read
from cannc.passes.legalize.contrib.activations import activate
from cannc.passes.legalize.contrib.body import Body, ObstacleError, dtype_of, rank_of
from cannc.passes.legalize.contrib.weights import Quantized
from cannc.passes.pattern import constant_of


def fused_matmul(body: Body) -> None:
    """Write out FusedMatMul (also called TransposeMatMul)."""
    body.forbid(transBatchA=0, transBatchB=0)
    sides = []
    for index, name in enumerate(("transA", "transB")):
        side = body.need(index)
        sides.append(_swapped(body, side) if body.integer(name) else side)
    product = body.op("MatMul", *sides)
    alpha = body.number("alpha", 1.0)
    body.put(product if alpha == 1 else body.op("Mul", product, body.scalar(alpha, product)))


def _swapped(body: Body, x: ir.Value) -> ir.Value:
    axes = rank_of(x)
    if axes == 1:
        return x  # onnxruntime ignores the flag of a vector
    return body.transpose(x, *range(axes - 2), axes - 1, axes - 2)


def fused_gemm(body: Body) -> None:
    """Write out FusedGemm."""
    inputs = [body.need(0), body.need(1), *filter(None, [body.given(2)])]
    product = body.op("Gemm", *inputs, **_kept(body, "alpha", "beta", "transA", "transB"))
    name = body.node.attributes.get_string("activation", "")
    names = ("activation_alpha", "activation_beta", "activation_gamma")
    given = [n for n in names if n in body.node.attributes]
    parameters = [body.node.attributes[n].as_float() for n in given]
    body.put(activate(body, product, name, parameters))


def fused_conv(body: Body) -> None:
    """Write out FusedConv; its fourth input is added before the activation."""
    inputs = [body.need(0), body.need(1), *filter(None, [body.given(2)])]
    names = ("auto_pad", "dilations", "group", "kernel_shape", "pads", "strides")
    result = body.op("Conv", *inputs, **_kept(body, *names))
    added = body.given(3)
    if added is not None:
        result = body.op("Add", result, added)
    name = body.node.attributes.get_string("activation", "")
    parameters = body.node.attributes.get_floats("activation_params", ())
    body.put(activate(body, result, name, parameters))


def _kept(body: Body, *names: str) -> dict[str, Any]:
    return {name: a for name, a in body.node.attributes.items() if name in names}


def matmul_nbits(body: Body) -> None:
    """Write out MatMulNBits with constant weights of 2, 4 or 8 bits."""
    x, bias = body.need(0), body.given(5)
    body.forbid(weight_prepacked=0)
    weight = _nbits_weight(body, dtype_of(x))
    product = body.op("MatMul", x, weight.place(body, keep_integers=True))
    body.put(product if bias is None else body.op("Add", product, bias))


def _nbits_weight(body: Body, dtype: ir.DataType) -> Quantized:
    k, n, block = (body.integer(name) for name in ("K", "N", "block_size"))
    bits = body.integer("bits", 4)
    if bits not in (2, 4, 8):
        raise ObstacleError(f"weights of {bits} bits have no counterpart")
    blocks = -(-k // block)
    half = 1 << (bits - 1)
    packed = _constant(body.need(1))
    scale = read(_constant(body.need(2))).reshape(n, blocks).T

    def unpack(array: Array) -> Array:
        levels = _bits(array.reshape(n, -1), bits)[:, :k]
        return (levels.astype(np.int16) - half).T.astype(np.int8)

    groups, points = body.given(4), body.given(3)
    if groups is not None and points is not None and points.dtype == ir.DataType.UINT8:
        raise ObstacleError("onnxruntime reads packed zero points with a group index otherwise")
    zero = _nbits_zero(points, n, blocks, bits)
    index = np.arange(k) // block if groups is None else read(_constant(groups))
    levels = DerivedTensor(packed, unpack, ir.DataType.INT8, ir.Shape([k, n]))
    return Quantized(levels, scale, zero, dtype, index)


def _nbits_zero(value: ir.Value | None, n: int, blocks: int, bits: int) -> Array | None:
    """Return zero points (blocks, n) of levels that were moved by half of their range."""
    if value is None:
        return None
    array = read(_constant(value))
    if array.dtype == np.uint8:
        array = _bits(array.reshape(n, -1), bits)[:, :blocks]
    return (array.reshape(n, blocks).astype(np.float32) - (1 << (bits - 1))).T


def _bits(packed: Array, bits: int) -> Array:
    """Return the numbers packed in the rows of a uint8 matrix, the lowest bits first."""
    shifts = np.arange(0, 8, bits, dtype=np.uint8)
    numbers = np.right_shift(packed[..., None].astype(np.uint8), shifts) & ((1 << bits) - 1)
    return np.asarray(numbers.reshape(packed.shape[0], -1))


def _constant(value: ir.Value) -> ir.TensorProtocol:
    tensor = constant_of(value)
    if tensor is None:
        raise ObstacleError(f"{value.name} is not constant")
    return tensor
