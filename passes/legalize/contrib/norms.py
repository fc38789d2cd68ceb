"""Norms of onnxruntime's domain.

SkipLayerNormalization(x, skip, gamma, beta?, bias?)   LayerNormalization(x + skip + bias)
SkipSimplifiedLayerNormalization(x, skip, gamma, bias?)   RMSNorm(x + skip + bias)
SimplifiedLayerNormalization(x, scale)                 x / sqrt(mean(x^2) + eps) * scale
LayerNormalization before opset 17, where it was onnxruntime's
EmbedLayerNormalization(ids, segments, ...)            LayerNormalization(word + position + segment)

Statistics are taken in float32, as onnxruntime does; epsilon defaults to 1e-12 in the Skip forms.
"""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from cannc.passes.legalize.contrib.body import Body, ObstacleError, dtype_of, rank_of

_LAYER_NORM_SINCE = 17
_SKIP_EPSILON = 1e-12
_NORM_EPSILON = 1e-5


def layer_norm(
    body: Body, x: ir.Value, gamma: ir.Value, beta: ir.Value | None, epsilon: float
) -> ir.Value:
    """Return the LayerNorm of `x` over its last axis."""
    if body.opset >= _LAYER_NORM_SINCE:
        inputs = [x, gamma] if beta is None else [x, gamma, beta]
        return body.op("LayerNormalization", *inputs, axis=-1, epsilon=epsilon)
    wide = body.cast(x, ir.DataType.FLOAT)
    centred = body.op("Sub", wide, body.reduce("ReduceMean", wide, [-1]))
    normed = _over_root(body, centred, centred, epsilon)
    result = body.op("Mul", body.cast(normed, dtype_of(x)), gamma)
    return result if beta is None else body.op("Add", result, beta)


def rms_norm(body: Body, x: ir.Value, gamma: ir.Value, epsilon: float, axes: int = 1) -> ir.Value:
    """Return the RMSNorm of `x` over its last axes, the norm in float32."""
    wide = body.cast(x, ir.DataType.FLOAT)
    normed = _over_root(body, wide, wide, epsilon, axes)
    return body.op("Mul", body.cast(normed, dtype_of(x)), gamma)


def _over_root(
    body: Body, top: ir.Value, squared: ir.Value, epsilon: float, axes: int = 1
) -> ir.Value:
    square = body.op("Mul", squared, squared)
    mean = body.reduce("ReduceMean", square, range(-axes, 0))
    root = body.op("Sqrt", body.op("Add", mean, body.scalar(epsilon, mean)))
    return body.op("Div", top, root)


def old_layer_norm(body: Body) -> None:
    """Write out LayerNormalization as onnxruntime had it before ONNX."""
    x = body.need(0)
    if body.integer("axis", -1) not in (-1, rank_of(x) - 1):
        raise ObstacleError("more axes than the last one are normalized")
    body.forbid(stash_type=1)
    body.put(
        layer_norm(body, x, body.need(1), body.given(2), body.number("epsilon", _NORM_EPSILON))
    )


def simplified_layer_norm(body: Body) -> None:
    """Write out SimplifiedLayerNormalization."""
    x, axis = body.need(0), body.integer("axis", -1)
    axes = -axis if axis < 0 else rank_of(x) - axis
    body.forbid(stash_type=1)
    body.put(rms_norm(body, x, body.need(1), body.number("epsilon", _NORM_EPSILON), axes))


def skip_layer_norm(body: Body) -> None:
    """Write out SkipLayerNormalization; its fourth output is the sum."""
    total = _skip(body, body.given(4))
    epsilon = body.number("epsilon", _SKIP_EPSILON)
    result = layer_norm(body, total, body.need(2), body.given(3), epsilon)
    body.put(result, None, None, total if body.wants(3) else None)


def skip_rms_norm(body: Body) -> None:
    """Write out SkipSimplifiedLayerNormalization; its fourth output is the sum."""
    total = _skip(body, body.given(3))
    result = rms_norm(body, total, body.need(2), body.number("epsilon", _SKIP_EPSILON))
    body.put(result, None, None, total if body.wants(3) else None)


def _skip(body: Body, bias: ir.Value | None) -> ir.Value:
    if body.wants(1) or body.wants(2):
        raise ObstacleError("mean and inverse deviation are used, which only training does")
    total = body.op("Add", body.need(0), body.need(1))
    return total if bias is None else body.op("Add", total, bias)


def embed_layer_norm(body: Body) -> None:
    """Write out EmbedLayerNormalization with its three outputs."""
    ids, segments = body.need(0), body.given(1)
    words = body.op("Gather", body.need(2), ids, axis=0)
    places = body.given(8)
    if places is None:
        places = body.arange(body.dim(ids, 1))
    total = body.op("Add", words, body.op("Gather", body.need(3), places, axis=0))
    if segments is not None:
        total = body.op("Add", total, body.op("Gather", body.need(4), segments, axis=0))
    epsilon = body.number("epsilon", _SKIP_EPSILON)
    result = layer_norm(body, total, body.need(5), body.need(6), epsilon)
    mask = _lengths(body, ids, body.given(7)) if body.wants(1) else None
    body.put(result, mask, total if body.wants(2) else None)


def _lengths(body: Body, ids: ir.Value, mask: ir.Value | None) -> ir.Value:
    """Return how many positions of each row the mask keeps; zeros without a mask."""
    if body.integer("mask_index_type") != 0:
        raise ObstacleError("mask_index_type other than 0 has no counterpart")
    if mask is not None:
        return body.reduce("ReduceSum", body.cast(mask, ir.DataType.INT32), [1], keepdims=0)
    zero = ir.Tensor(np.zeros(1, np.int32))
    return body.op("ConstantOfShape", body.dim(ids, 0), value=zero)
