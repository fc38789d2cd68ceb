"""GroupQueryAttention of onnxruntime's domain: groups of query heads share a key head.

Without a past it is causal attention. With one, keys of row b stand at ``0 .. seqlens_k[b]`` of
the present, the S new ones last; what lies behind them in the present is never read and may differ
from what onnxruntime leaves there.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import onnx_ir as ir

from cannc.passes.legalize.contrib.attention import heads_of, lowest, merged, penalty, scaled
from cannc.passes.legalize.contrib.body import Body, ObstacleError, width_of
from cannc.passes.legalize.contrib.rotary import rotate, tables_at

_INT64 = ir.DataType.INT64


@dataclass(frozen=True)
class _Past:
    """Where the new keys stand.

    Attributes:
        length: (B, 1) int64: how many old keys each row keeps.
        total: (1) int64: how many keys the present has.
    """

    length: ir.Value
    total: ir.Value


def group_query_attention(body: Body) -> None:
    """Write out GroupQueryAttention, rotation and cache included."""
    body.forbid(
        causal=1, sliding_window_cache=0, qk_output=0, smooth_softmax=(-1, 0), kv_cache_bit_width=0,
        k_quant_type="NONE", v_quant_type="NONE",
    )  # fmt: skip
    heads, groups = body.integer("num_heads"), body.integer("kv_num_heads")
    if not heads or not groups or heads % groups:
        raise ObstacleError(f"{heads} query heads do not divide into {groups} groups")
    query, key, value = _parts(body, heads, groups)
    past = _past(body, query)
    if body.integer("do_rotary"):
        query, key = _rotated(body, query, key, past)
    key = _cached(body, key, body.given(3), past)
    value = _cached(body, value, body.given(4), past)
    result = _attend(body, query, key, value, _mask(body, query, key, past))
    presents = (part if body.wants(1 + i) else None for i, part in enumerate((key, value)))
    body.put(result, *presents)


def _parts(body: Body, heads: int, groups: int) -> list[ir.Value]:
    query, key, value = body.need(0), body.given(1), body.given(2)
    if key is None or value is None:
        size = width_of(query) // (heads + 2 * groups)
        query, key, value = body.split(query, 2, heads * size, groups * size, groups * size)
    return [
        heads_of(body, part, count)
        for part, count in ((query, heads), (key, groups), (value, groups))
    ]


def _past(body: Body, query: ir.Value) -> _Past | None:
    old, lengths, total = body.given(3), body.need(5), body.need(6)
    if old is None or body.given(4) is None:
        return None
    new = body.dim(query, 2)
    total = body.reshape(body.cast(total, _INT64), 1)
    last = body.reshape(body.cast(lengths, _INT64), -1, 1)
    before = body.op("Sub", body.op("Add", last, body.ints(1)), new)
    is_prompt = body.op("Equal", total, new)
    length = body.op("Where", is_prompt, body.ints(0), before)
    return _Past(length, body.op("Max", total, body.dim(old, 2)))


def _cached(body: Body, new: ir.Value, old: ir.Value | None, past: _Past | None) -> ir.Value:
    """Return keys or values (B, groups, T, H): old ones, then at once the new ones."""
    if past is None or old is None:
        return new
    both = body.op("Concat", old, new, axis=2)
    place = body.unsqueeze(body.arange(past.total), 0)
    moved = body.op("Add", body.op("Sub", place, past.length), body.dim(old, 2))
    is_old = body.op("Less", place, past.length)
    last = body.op("Sub", body.dim(both, 2), body.ints(1))
    index = body.op("Min", body.op("Where", is_old, place, moved), last)
    if new.shape is not None and new.shape[0] == 1:
        return body.op("Gather", both, body.reshape(index, -1), axis=2)
    size = body.op(
        "Concat", body.dim(new, 0), body.dim(new, 1), past.total, body.dim(new, 3), axis=0
    )
    spread = body.op("Expand", body.unsqueeze(index, 1, 3), size)
    result = body.op("GatherElements", both, spread, axis=2)
    if new.shape is not None:
        result.shape = ir.Shape([*new.shape[:2], None, new.shape[3]])
    return result


def _positions(body: Body, query: ir.Value, past: _Past | None) -> ir.Value:
    """Return where the new tokens stand, (B or 1, S)."""
    new = body.unsqueeze(body.arange(body.dim(query, 2)), 0)
    return new if past is None else body.op("Add", new, past.length)


def _rotated(
    body: Body, query: ir.Value, key: ir.Value, past: _Past | None
) -> tuple[ir.Value, ir.Value]:
    position = body.given(9) or _positions(body, query, past)
    tables = tables_at(body, position, (body.need(7), body.need(8)), head_axis=1)
    interleaved = bool(body.integer("rotary_interleaved"))
    return (
        rotate(body, query, tables, interleaved=interleaved),
        rotate(body, key, tables, interleaved=interleaved),
    )


def _mask(body: Body, query: ir.Value, key: ir.Value, past: _Past | None) -> ir.Value:
    """Return the causal bias (B or 1, 1, S, T), within the window if there is one."""
    row = body.unsqueeze(_positions(body, query, past), 2)
    column = body.arange(past.total if past is not None else body.dim(key, 2))
    hidden = body.op("Less", row, column)
    window = body.integer("local_window_size", -1)
    if window >= 0:
        oldest = body.op("Sub", row, body.constant(np.array(window - 1, np.int64)))
        hidden = body.op("Or", hidden, body.op("Less", column, oldest))
    return body.unsqueeze(penalty(body, body.op("Not", hidden), lowest(query), query), 1)


def _attend(
    body: Body, query: ir.Value, key: ir.Value, value: ir.Value, mask: ir.Value
) -> ir.Value:
    """Like `attention.attend`; the query heads of a group are stacked and read one key head."""
    heads, groups, size = width_of(query, 1), width_of(key, 1), width_of(query)
    stacked = query if heads == groups else body.reshape(query, 0, groups, -1, size)
    scores = body.op("MatMul", stacked, body.transpose(key, 0, 1, 3, 2))
    scores = scaled(body, scores, query, body.number("scale", 0.0))
    if heads != groups:
        scores = body.reshape(scores, 0, heads, -1, 0)
    cap = body.number("softcap", 0.0)
    if cap:
        bent = body.op("Tanh", body.op("Div", scores, body.scalar(cap, scores)))
        scores = body.op("Mul", bent, body.scalar(cap, scores))
    for bias in (body.given(10), mask):
        scores = scores if bias is None else body.op("Add", scores, bias)
    weights = body.op("Softmax", scores, axis=-1)
    if heads != groups:
        weights = body.reshape(weights, 0, groups, -1, 0)
    context = body.op("MatMul", weights, value)
    if heads != groups:
        context = body.reshape(context, 0, heads, -1, width_of(value))
    return merged(body, context)
