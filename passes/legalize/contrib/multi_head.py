"""MultiHeadAttention of onnxruntime's domain: query, key and value come projected."""

from __future__ import annotations

import onnx_ir as ir

from cannc.passes.legalize.contrib.attention import attend, causal_bias, heads_of, mask_bias
from cannc.passes.legalize.contrib.body import Body, ObstacleError, rank_of, width_of

_PACKED = 5


def multi_head_attention(body: Body) -> None:
    """Write out MultiHeadAttention: separate or packed parts, bias, masks, past and present."""
    query, key, value = _parts(body)
    past = body.given(6), body.given(7)
    if past[0] is not None and past[1] is not None:
        key = body.op("Concat", past[0], key, axis=2)
        value = body.op("Concat", past[1], value, axis=2)
    mask, bias = body.given(4), body.given(5)
    biases = [] if mask is None else [mask_bias(body, mask, body.need(0), key, query)]
    if body.integer("unidirectional"):
        biases.append(causal_bias(body, query, key))
    if bias is not None:
        biases.append(bias)
    result = attend(body, query, key, value, body.number("scale", 0.0), biases)
    presents = (part if body.wants(1 + i) else None for i, part in enumerate((key, value)))
    body.put(result, *presents)


def _parts(body: Body) -> list[ir.Value]:
    """Return query, key and value as (B, N, S, H)."""
    query, key, value = body.need(0), body.given(1), body.given(2)
    if rank_of(query) == _PACKED:
        if body.given(3) is not None:
            raise ObstacleError("a bias of packed query, key and value has no counterpart")
        return _unpacked(body, query)
    heads = body.integer("num_heads")
    if key is None:
        raise ObstacleError("the key is missing")
    if rank_of(key) == _PACKED:
        if body.given(3) is not None:
            raise ObstacleError("a bias of packed key and value has no counterpart")
        return [heads_of(body, query, heads), *_unpacked(body, key)]
    if value is None:
        raise ObstacleError("the value is missing")
    given = [query, key, value]
    bias = body.given(3)
    if bias is not None:
        given = _biased(body, given, bias)
    return [part if rank_of(part) == 4 else heads_of(body, part, heads) for part in given]


def _biased(body: Body, parts: list[ir.Value], bias: ir.Value) -> list[ir.Value]:
    if any(rank_of(part) != 3 for part in parts):
        raise ObstacleError("a bias of keys in cache layout has no counterpart")
    biases = body.split(bias, 0, *(width_of(part) for part in parts))
    return [body.op("Add", part, own) for part, own in zip(parts, biases, strict=True)]


def _unpacked(body: Body, packed: ir.Value) -> list[ir.Value]:
    """(B, S, N, 2 or 3, H) -> two or three values (B, N, S, H)."""
    count = width_of(packed, 3)
    parts = [body.op("Gather", packed, body.index(i), axis=3) for i in range(count)]
    return [body.transpose(part, 0, 2, 1, 3) for part in parts]
