"""Attention of onnxruntime's domain: one weight makes query, key and value.

q, k, v = Split(x * weights + bias)
softmax(q k' / sqrt(H) + mask + attention bias) v
"""

from __future__ import annotations

import onnx_ir as ir

from cannc.passes.legalize.contrib.attention import attend, causal_bias, heads_of, mask_bias
from cannc.passes.legalize.contrib.body import Body, width_of


def attention(body: Body) -> None:
    """Write out Attention with its masks, past and present."""
    x, weights, bias = body.need(0), body.need(1), body.given(2)
    body.forbid(do_rotary=0, past_present_share_buffer=0, rotary_embedding_dim=0)
    product = body.op("MatMul", x, weights)
    if bias is not None:
        product = body.op("Add", product, bias)
    sizes = body.node.attributes.get_ints("qkv_hidden_sizes") or [width_of(weights) // 3] * 3
    heads = body.integer("num_heads")
    parts = body.split(product, 2, *sizes)
    mask, past, added = (body.given(index) for index in (3, 4, 5))
    finish(body, x, [heads_of(body, part, heads) for part in parts], mask, past, added)


def finish(
    body: Body,
    x: ir.Value,
    parts: list[ir.Value],
    mask: ir.Value | None,
    past: ir.Value | None,
    bias: ir.Value | None = None,
) -> None:
    """Attend with query, key and value (B, N, S, H), and put the result and the present.

    Args:
        body: Where it goes.
        x: A value whose first dim is the batch.
        parts: Query, key and value.
        mask: See `mask_bias`.
        past: (2, B, N, P, H): keys and values from before.
        bias: Of the scores.
    """
    query, key, value = parts
    if past is not None:
        key, value = (
            body.op("Concat", body.op("Gather", past, body.index(i), axis=0), new, axis=2)
            for i, new in enumerate((key, value))
        )
    biases = [] if mask is None else [mask_bias(body, mask, x, key, query)]
    if body.integer("unidirectional"):
        biases.append(causal_bias(body, query, key))
    if bias is not None:
        biases.append(bias)
    present = None
    if body.wants(1):
        present = body.op("Concat", *(body.unsqueeze(p, 0) for p in (key, value)), axis=0)
    body.put(attend(body, query, key, value, body.number("scale", 0.0), biases), present)
