"""RotaryEmbedding of onnxruntime's domain.

Half mode:    x * cos + Concat(-right, left) * sin      left and right halves of the rotated columns
Interleaved:  the same of even and odd columns
"""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from cannc.compiler.core.tensors import read
from cannc.passes.legalize.contrib.body import Body, ObstacleError, rank_of, width_of
from cannc.passes.pattern import constant_of


def rotary_embedding(body: Body) -> None:
    """Write out RotaryEmbedding for (B, S, N * H) and (B, N, S, H)."""
    x, position, cos = body.need(0), body.need(1), body.need(2)
    body.forbid(is_packed_batching=0, scale=1.0)
    rotated = body.integer("rotary_embedding_dim") or 2 * width_of(cos)
    flat = rank_of(x) == 3
    heads = body.integer("num_heads")
    if flat:
        size = width_of(x) // heads if heads else rotated
        parts = body.reshape(x, 0, 0, -1, size)
    else:
        parts = x
    if rank_of(position) == 1:
        position = body.unsqueeze(
            body.op("Add", body.arange(body.dim(x, 1 if flat else 2)), position), 0
        )
    tables = tables_at(body, position, (cos, body.need(3)), 2 if flat else 1)
    result = rotate(body, parts, tables, interleaved=bool(body.integer("interleaved")))
    body.put(body.reshape(result, 0, 0, width_of(x)) if flat else result)


def tables_at(
    body: Body, position: ir.Value, caches: tuple[ir.Value, ir.Value], head_axis: int
) -> list[ir.Value]:
    """Return cosines and sines at positions (B or 1, S) with an axis for the heads.

    Both have as many columns as are rotated; half mode repeats them, interleaved mode each one.
    """
    interleaved = bool(body.integer("interleaved") or body.integer("rotary_interleaved"))
    wide = (_widened(body, cache, interleaved=interleaved) for cache in caches)
    return [body.unsqueeze(body.op("Gather", c, position, axis=0), head_axis) for c in wide]


def _widened(body: Body, cache: ir.Value, *, interleaved: bool) -> ir.Value:
    tensor = constant_of(cache)
    if tensor is not None:
        table = read(tensor)
        double = np.repeat(table, 2, axis=1) if interleaved else np.concatenate([table] * 2, axis=1)
        return body.constant(double)
    if interleaved:
        columns = body.unsqueeze(cache, 2)
        pairs = body.op("Concat", columns, columns, axis=2)
        return body.reshape(pairs, 0, 2 * width_of(cache))
    return body.op("Concat", cache, cache, axis=1)


def rotate(body: Body, x: ir.Value, tables: list[ir.Value], *, interleaved: bool) -> ir.Value:
    """Return `x` (four dims, the last one H) with its first columns rotated.

    Args:
        body: Where it goes.
        x: (B, S, N, H) or (B, N, S, H).
        tables: Cosines and sines with an axis of size 1 for the heads.
        interleaved: Pairs are neighbours instead of halves.
    """
    size, width = width_of(x), width_of(tables[0])
    if width > size:
        raise ObstacleError(f"{width} columns are rotated, there are {size}")
    head, *rest = body.split(x, 3, width, size - width) if width < size else [x]
    turned = _turned_pairs(body, head) if interleaved else _turned_halves(body, head)
    cos, sin = tables
    result = body.op("Add", body.op("Mul", head, cos), body.op("Mul", turned, sin))
    return body.op("Concat", result, *rest, axis=-1) if rest else result


def _turned_halves(body: Body, x: ir.Value) -> ir.Value:
    half = width_of(x) // 2
    left, right = body.split(x, 3, half, half)
    return body.op("Concat", body.op("Neg", right), left, axis=-1)


def _turned_pairs(body: Body, x: ir.Value) -> ir.Value:
    width = width_of(x)
    pairs = body.reshape(x, 0, 0, -1, width // 2, 2)
    even, odd = body.split(pairs, 4, 1, 1)
    turned = body.op("Concat", body.op("Neg", odd), even, axis=4)
    return body.reshape(turned, 0, 0, -1, width)
