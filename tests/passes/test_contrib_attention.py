"""Attention operators of onnxruntime's domain, against onnxruntime itself."""

from __future__ import annotations

import numpy as np
import pytest
from tests.support.contrib import assert_same, legal, one_node, op_types, refusals
from tests.support.fusion import normal
from tests.support.runner import run_plain

B, S, D, N, H = 2, 3, 16, 4, 4
X = normal(B, S, D)
WEIGHT, BIAS = normal(D, 3 * D, scale=0.4), normal(3 * D, seed=5)
RAGGED = np.array([[1, 1, 0], [1, 1, 1]], np.int32)
BATCH = {0: ["B", "S", D]}
INT = np.int32


def attention(inputs, outputs=(1,), dims=BATCH, **attributes):
    weights = [1] if inputs[2] is None else [1, 2]
    return one_node(
        "Attention", inputs, outputs, weights=weights, dims=dims, num_heads=N, **attributes
    )


@pytest.mark.parametrize("bias", [BIAS, None])
@pytest.mark.parametrize("attributes", [{}, {"unidirectional": 1}, {"scale": 0.3}])
def test_attention(bias, attributes):
    assert_same(*attention([X, WEIGHT, bias], **attributes))


@pytest.mark.parametrize(
    ("mask", "dims"),
    [
        (RAGGED, ["B", "S"]),
        (np.array([2, 3], INT), ["B"]),
        (np.array([2, 3, 1, 0], INT), None),
        (np.tril(np.ones((B, S, S), INT)), ["B", "S", "S"]),
    ],
    ids=["raw", "lengths", "ranges", "square"],
)
@pytest.mark.parametrize("attributes", [{}, {"unidirectional": 1}, {"mask_filter_value": -50.0}])
def test_attention_masks(mask, dims, attributes):
    inputs = [X, WEIGHT, BIAS, mask]
    given = {0: ["B", "S", D], 3: dims} if dims else {}
    assert_same(*attention(inputs, dims=given, **attributes))


def test_a_mask_of_unknown_form_is_refused():
    model, _ = attention(
        [X, WEIGHT, BIAS, np.array([2, 3], INT)], dims={0: ["B", "S", D], 3: ["M"]}
    )
    assert "a mask of M numbers for a batch of B" in refusals(model)[0]


@pytest.mark.parametrize("causal", [0, 1])
def test_attention_with_past(causal):
    past = normal(2, B, N, 2, H, seed=8)
    inputs = [X, WEIGHT, BIAS, np.ones((B, S + 2), INT), past]
    dims = {0: ["B", "S", D], 3: ["B", "T"], 4: [2, "B", N, "P", H]}
    assert_same(*attention(inputs, (1, 1), dims, unidirectional=causal))


def test_attention_with_bias():
    inputs = [X, WEIGHT, BIAS, RAGGED, None, normal(1, N, S, S, seed=4)]
    assert_same(*attention(inputs, dims={0: ["B", "S", D], 5: [1, N, "S", "S"]}))


def test_attention_with_sizes_of_its_own():
    weight, bias = normal(D, 16 + 16 + 32, scale=0.4), normal(64, seed=5)
    assert_same(*attention([X, weight, bias], qkv_hidden_sizes=[16, 16, 32]))


def test_rotation_inside_attention_is_refused():
    model, _ = attention([X, WEIGHT, BIAS], do_rotary=1)
    assert "do_rotary = 1 has no counterpart" in refusals(model)[0]


def test_attention_in_float16():
    half = [a.astype(np.float16) for a in (X, WEIGHT, BIAS)]
    model, feeds = attention([*half, RAGGED], dims={0: ["B", "S", D], 3: ["B", "S"]})
    wide, given = attention([X, WEIGHT, BIAS, RAGGED])
    expected = run_plain(wide, given)["o0"]
    actual = run_plain(legal(model).model, feeds)["o0"]
    assert actual.dtype == np.float16
    np.testing.assert_allclose(actual, expected, rtol=2e-2, atol=2e-2)


def mha(inputs, outputs=(1,), dims=None, **attributes):
    weights = [3] if len(inputs) > 3 and inputs[3] is not None else []
    return one_node(
        "MultiHeadAttention",
        inputs,
        outputs,
        weights=weights,
        dims=dims,
        num_heads=N,
        **attributes,
    )


QUERY, KEY, VALUE = (normal(B, size, D, seed=i) for i, size in enumerate((S, 5, 5)))
QKV = {0: ["B", "S", D], 1: ["B", "T", D], 2: ["B", "T", D]}


@pytest.mark.parametrize("bias", [BIAS, None])
def test_multi_head_attention(bias):
    assert_same(*mha([QUERY, KEY, VALUE, bias][: 4 if bias is not None else 3], dims=QKV))


def test_causal_multi_head_attention():
    own = [normal(B, S, D, seed=i) for i in range(3)]
    assert_same(*mha(own, unidirectional=1))


@pytest.mark.parametrize(
    ("mask", "dims"),
    [
        (np.array([[1, 1, 1, 0, 0], [1] * 5], INT), ["B", "T"]),
        (np.array([3, 5], INT), ["B"]),
        (np.ones((B, S, 5), INT), ["B", "S", "T"]),
    ],
)
def test_multi_head_attention_masks(mask, dims):
    inputs = [QUERY, KEY, VALUE, BIAS, mask, normal(B, N, S, 5, seed=4)]
    assert_same(*mha(inputs, dims={**QKV, 4: dims}))


def test_multi_head_attention_with_past():
    new = [normal(B, 1, D, seed=i) for i in range(3)]
    past = [normal(B, N, 4, H, seed=i) for i in (5, 6)]
    inputs = [*new, BIAS, None, None, *past]
    dims = {0: ["B", "S", D], 6: ["B", N, "P", H], 7: ["B", N, "P", H]}
    assert_same(*mha(inputs, (1, 1, 1), dims))


def test_keys_in_cache_layout():
    cache = [normal(B, N, 5, H, seed=i) for i in (5, 6)]
    assert_same(*mha([QUERY, *cache]))


def test_packed_inputs_equal_separate_ones():
    parts = [normal(B, S, D, seed=i) for i in range(3)]
    separate, feeds = mha(parts)
    expected = run_plain(separate, feeds)["o0"]
    heads = [part.reshape(B, S, N, 1, H) for part in parts]
    packed, feeds = mha([np.concatenate(heads, axis=3)])
    np.testing.assert_allclose(run_plain(legal(packed).model, feeds)["o0"], expected, atol=1e-6)
    packed, feeds = mha([parts[0], np.concatenate(heads[1:], axis=3)])
    np.testing.assert_allclose(run_plain(legal(packed).model, feeds)["o0"], expected, atol=1e-6)


def test_scores_as_an_output_are_refused():
    model, _ = mha([QUERY, KEY, VALUE], (1, 0, 0, 1))
    assert "output 3" in refusals(model)[0]


ANGLE = np.arange(12)[:, None] / 10.0 ** np.arange(0, 2)[None]
COS, SIN = np.cos(ANGLE).astype(np.float32), np.sin(ANGLE).astype(np.float32)


@pytest.mark.parametrize("interleaved", [0, 1])
@pytest.mark.parametrize("position", [np.array([3]), np.array([[0, 1, 2], [4, 5, 6]])])
@pytest.mark.parametrize("flat", [True, False])
@pytest.mark.parametrize("constant", [True, False])
def test_rotary_embedding(interleaved, position, flat, constant):
    x = X if flat else normal(B, N, S, H)
    dims = {0: ["B", "S", D] if flat else ["B", N, "S", H]}
    model, feeds = one_node(
        "RotaryEmbedding",
        [x, position, COS, SIN],
        [1],
        weights=[2, 3] if constant else [],
        dims=dims,
        interleaved=interleaved,
    )
    assert_same(model, feeds)


@pytest.mark.parametrize("interleaved", [0, 1])
def test_a_part_of_the_columns_is_rotated(interleaved):
    x = normal(B, S, 4 * 6)
    model, feeds = one_node(
        "RotaryEmbedding", [x, np.array([0]), COS, SIN], [1], weights=[2, 3], num_heads=4,
        rotary_embedding_dim=4, interleaved=interleaved,
    )  # fmt: skip
    assert_same(model, feeds)


KV, G = 2, 16
_FAST = np.arange(12)[:, None] / 10.0 ** np.arange(0, 8)[None]
COS_G, SIN_G = np.cos(_FAST).astype(np.float32), np.sin(_FAST).astype(np.float32)


def gqa(size, past, lengths, total, **options):
    """Return GroupQueryAttention: `past` is the length of the cache, None for no cache."""
    batch = len(lengths)
    packed = options.pop("packed", False)
    caches = options.pop("rotary", False)
    bias = options.pop("bias", None)
    dims = options.pop("dims", None)
    parts = [normal(batch, size, heads * G, seed=i) for i, heads in enumerate((N, KV, KV))]
    inputs = [np.concatenate(parts, 2), None, None] if packed else parts
    inputs += [None if past is None else normal(batch, KV, past, G, seed=i) for i in (7, 8)]
    inputs += [np.array(lengths, INT), np.array(total, INT)]
    inputs += [COS_G, SIN_G] if caches else [None, None]
    inputs += [None, bias]
    while inputs[-1] is None:
        inputs.pop()
    return one_node(
        "GroupQueryAttention",
        inputs,
        [1, 1, 1],
        dims=dims,
        weights=[7, 8] if caches else [],
        num_heads=N,
        kv_num_heads=KV,
        do_rotary=int(caches),
        **options,
    )


@pytest.mark.parametrize("packed", [True, False])
@pytest.mark.parametrize("rotary", [True, False])
@pytest.mark.parametrize("options", [{}, {"local_window_size": 2}, {"softcap": 2.0}])
def test_prompt(packed, rotary, options):
    width = (N + 2 * KV) * G if packed else N * G
    dims = {0: ["B", "S", width]}
    assert_same(*gqa(5, None, [4, 4], 5, packed=packed, rotary=rotary, dims=dims, **options))


@pytest.mark.parametrize("rotary", [True, False])
@pytest.mark.parametrize("batch", [1, 2])
@pytest.mark.parametrize("options", [{}, {"local_window_size": 3}, {"scale": 0.7}])
def test_one_more_token(rotary, batch, options):
    dims = {3: [batch, KV, "P", G], 4: [batch, KV, "P", G]}
    assert_same(*gqa(1, 6, [6] * batch, 7, rotary=rotary, dims=dims, **options))


def test_several_more_tokens():
    assert_same(*gqa(3, 4, [6], 7, rotary=True))


def test_interleaved_rotation_inside():
    assert_same(*gqa(5, None, [4, 4], 5, rotary=True, rotary_interleaved=1))


@pytest.mark.parametrize("batch", [1, 2])
def test_a_cache_of_fixed_size(batch):
    model, feeds = gqa(1, 8, [4, 3][:batch], 5, rotary=True)
    expected = run_plain(model, feeds)
    actual = run_plain(legal(model).model, feeds)
    np.testing.assert_allclose(actual["o0"], expected["o0"], rtol=1e-5, atol=1e-6)
    for name in ("o1", "o2"):
        assert actual[name].shape == expected[name].shape
        for row, last in enumerate([4, 3][:batch]):
            np.testing.assert_allclose(
                actual[name][row, :, : last + 1], expected[name][row, :, : last + 1], atol=1e-6
            )


def test_attention_bias_of_groups():
    assert_same(*gqa(5, None, [4, 4], 5, bias=normal(1, N, 5, 5), softcap=2.0))


def test_smooth_softmax_is_refused():
    model, _ = gqa(5, None, [4, 4], 5, smooth_softmax=1)
    assert "smooth_softmax = 1" in refusals(model)[0]


def test_a_prompt_uses_the_rotary_kernel():
    unit = legal(gqa(5, None, [4], 5, rotary=True)[0], "O2")
    assert op_types(unit).count("NPURotaryMul") == 2
