"""What all attention operators of onnxruntime's domain share: heads, scores, masks.

Dims: B batch, S queries, T keys, N heads, H head size.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import onnx_ir as ir

from cannc.passes.legalize.contrib.body import Body, ObstacleError, dtype_of, rank_of, width_of

MASK_FILTER = -10000.0
"""What onnxruntime adds to the score of a masked key unless the model says otherwise."""


def heads_of(body: Body, x: ir.Value, heads: int) -> ir.Value:
    """(B, S, N * H) -> (B, N, S, H)."""
    size = width_of(x)
    if heads < 1 or size % heads:
        raise ObstacleError(f"{size} columns are not {heads} heads")
    return body.transpose(body.reshape(x, 0, 0, heads, size // heads), 0, 2, 1, 3)


def attend(
    body: Body,
    query: ir.Value,
    key: ir.Value,
    value: ir.Value,
    scale: float,
    biases: Sequence[ir.Value],
) -> ir.Value:
    """Return softmax(scale * query * key' + biases) * value as (B, S, N * H).

    Args:
        body: Where it goes.
        query: (B, N, S, H).
        key: (B, N, T, H).
        value: (B, N, T, H of its own).
        scale: Of the scores; 0 means 1 / sqrt(H).
        biases: Each broadcasts to (B, N, S, T).
    """
    scores = scaled(body, body.op("MatMul", query, body.transpose(key, 0, 1, 3, 2)), query, scale)
    for bias in biases:
        scores = body.op("Add", scores, bias)
    weights = body.op("Softmax", scores, axis=-1)
    return merged(body, body.op("MatMul", weights, value))


def scaled(body: Body, scores: ir.Value, query: ir.Value, scale: float) -> ir.Value:
    """Return the scores times `scale`, 0 meaning 1 / sqrt(H)."""
    return body.op("Mul", scores, body.scalar(scale or 1 / math.sqrt(width_of(query)), query))


def merged(body: Body, context: ir.Value) -> ir.Value:
    """(B, N, S, H) -> (B, S, N * H)."""
    size = width_of(context) * width_of(context, 1)
    return body.reshape(body.transpose(context, 0, 2, 1, 3), 0, 0, size)


def penalty(body: Body, kept: ir.Value, filter_value: float, like: ir.Value) -> ir.Value:
    """Return 0 where a position is kept and `filter_value` elsewhere, in the dtype of `like`."""
    return body.op("Where", kept, body.scalar(0, like), body.scalar(filter_value, like))


def mask_bias(
    body: Body, mask: ir.Value, batch: ir.Value, keys: ir.Value, like: ir.Value
) -> ir.Value:
    """Return the bias of a mask in any of onnxruntime's forms.

    Args:
        body: Where it goes.
        mask: (B, T) or (B, S, T), kept where positive; or (B): how many keys are kept; or (2 B):
            ends, then starts, of the ranges that are kept.
        batch: A value whose first dim is B.
        keys: (B, N, T, H).
        like: Gives the dtype.
    """
    filter_value = body.number("mask_filter_value", MASK_FILTER)
    axes = rank_of(mask)
    if axes in (2, 3):
        kept = body.op("Greater", mask, body.scalar(0, mask))
        kept = body.unsqueeze(kept, *((1, 2) if axes == 2 else (1,)))
    elif axes == 1:
        kept = _ranges(body, mask, batch, keys)
    else:
        raise ObstacleError(f"a mask of {axes} dimensions has no counterpart")
    return penalty(body, kept, filter_value, like)


def _ranges(body: Body, mask: ir.Value, batch: ir.Value, keys: ir.Value) -> ir.Value:
    given = mask.shape[0] if mask.shape else None
    rows = batch.shape[0] if batch.shape else None
    place = body.unsqueeze(body.cast(body.arange(body.dim(keys, 2)), dtype_of(mask)), 0)
    if given == rows and given is not None:
        kept = body.op("Less", place, body.unsqueeze(mask, 1))
    elif isinstance(given, int) and isinstance(rows, int) and given == 2 * rows:
        ends, starts = body.split(mask, 0, rows, rows)
        before_end = body.op("Less", place, body.unsqueeze(ends, 1))
        early = body.op("Less", place, body.unsqueeze(starts, 1))
        kept = body.op("And", before_end, body.op("Not", early))
    else:
        raise ObstacleError(f"a mask of {given} numbers for a batch of {rows} has no counterpart")
    return body.unsqueeze(kept, 1, 2)


def causal_bias(body: Body, query: ir.Value, key: ir.Value) -> ir.Value:
    """Return the bias (S, T) that keeps a query from keys after its own, the last S of T."""
    queries, keys = body.dim(query, 2), body.dim(key, 2)
    first = body.op("Sub", keys, queries)
    row = body.unsqueeze(body.op("Add", body.arange(queries), first), 1)
    column = body.unsqueeze(body.arange(keys), 0)
    later = body.op("Less", row, column)
    return penalty(body, body.op("Not", later), lowest(query), query)


def lowest(value: ir.Value) -> float:
    """Return the most negative finite number of the dtype of `value`."""
    dtype = dtype_of(value)
    if dtype == ir.DataType.BFLOAT16:
        return float(ir.DataType.BFLOAT16.max) * -1
    return float(np.finfo(dtype.numpy()).min)
