"""Activations, norms and matrix products of onnxruntime's domain, against onnxruntime itself."""

from __future__ import annotations

import math

import numpy as np
import pytest
from tests.support.contrib import assert_same, legal, one_node, op_types, refusals
from tests.support.fusion import normal
from tests.support.runner import run_plain

X = normal(2, 3, 8)
BIAS = normal(8, seed=5)


@pytest.mark.parametrize(
    ("op_type", "inputs", "fused"),
    [
        ("Gelu", [X], "NPUGeluV2"),
        ("BiasGelu", [X, BIAS], "NPUGeluV2"),
        ("FastGelu", [X], "NPUGeluV2"),
        ("FastGelu", [X, BIAS], "NPUGeluV2"),
        ("QuickGelu", [X], "NPUFastGelu"),
    ],
)
def test_activations(op_type, inputs, fused):
    weights = range(1, len(inputs))
    model, feeds = one_node(op_type, inputs, [1], weights=weights, dims={0: ["B", "S", 8]})
    unit = assert_same(model, feeds)
    assert fused in op_types(unit)


def test_quick_gelu_with_another_slope():
    model, feeds = one_node("QuickGelu", [X], [1], alpha=0.5)
    assert "Sigmoid" in op_types(assert_same(model, feeds))


def test_bias_split_gelu_has_no_kernel_on_the_cpu_so_numbers_are_computed_here():
    model, feeds = one_node("BiasSplitGelu", [X, BIAS], [1])
    left, right = np.split((X + BIAS).astype(np.float64), 2, axis=-1)
    erf = np.vectorize(math.erf)
    expected = left * (0.5 * right * (1 + erf(right / math.sqrt(2))))
    actual = run_plain(legal(model).model, feeds)["o0"]
    np.testing.assert_allclose(actual, expected, rtol=1e-5, atol=1e-6)


SKIP = normal(2, 3, 8, seed=9)
GAMMA, BETA = normal(8, seed=6), normal(8, seed=7)


@pytest.mark.parametrize("opset", [14, 18])
@pytest.mark.parametrize("beta", [BETA, None])
@pytest.mark.parametrize("bias", [BIAS, None])
def test_skip_layer_norm(opset, beta, bias):
    inputs = [X, SKIP, GAMMA, beta, bias]
    weights = [i for i in (2, 3, 4) if inputs[i] is not None]
    model, feeds = one_node(
        "SkipLayerNormalization",
        inputs,
        [1, 0, 0, 1],
        weights=weights,
        dims={0: ["B", "S", 8], 1: ["B", "S", 8]},
        model_opset=opset,
        epsilon=1e-5,
    )
    assert op_types(assert_same(model, feeds)).count("LayerNormalization") == 1


def test_skip_layer_norm_without_epsilon_has_a_tiny_one():
    model, feeds = one_node("SkipLayerNormalization", [X * 1e-3, SKIP * 1e-3, GAMMA, BETA], [1])
    assert_same(model, feeds, rtol=1e-4)


@pytest.mark.parametrize("bias", [BIAS, None])
def test_skip_rms_norm(bias):
    inputs = [X, SKIP, GAMMA, bias]
    weights = [i for i in (2, 3) if inputs[i] is not None]
    model, feeds = one_node(
        "SkipSimplifiedLayerNormalization", inputs, [1, 0, 0, 1], weights=weights, epsilon=1e-6
    )
    unit = assert_same(model, feeds)
    assert {"NPURmsNorm", "NPUAddRmsNorm"} & set(op_types(unit))


def test_statistics_that_are_used_are_refused():
    model, _ = one_node("SkipLayerNormalization", [X, SKIP, GAMMA, BETA], [1, 1], epsilon=1e-5)
    assert "only training" in refusals(model)[0]


@pytest.mark.parametrize("opset", [14, 17, 18])
@pytest.mark.parametrize("axis", [-1, 1])
def test_simplified_layer_norm(opset, axis):
    scale = GAMMA if axis == -1 else normal(3, 8, seed=4)
    model, feeds = one_node(
        "SimplifiedLayerNormalization", [X, scale], [1], weights=[1], domain="", model_opset=opset,
        axis=axis, epsilon=1e-6,
    )  # fmt: skip
    assert_same(model, feeds)


def test_layer_norm_from_before_onnx_had_it():
    model, feeds = one_node(
        "LayerNormalization",
        [X, GAMMA, BETA],
        [1],
        weights=[1, 2],
        domain="",
        model_opset=13,
        axis=-1,
    )
    assert op_types(assert_same(model, feeds)) == ["LayerNormalization"]


@pytest.mark.parametrize("segments", [True, False])
@pytest.mark.parametrize("mask", [True, False])
@pytest.mark.parametrize("positions", [True, False])
def test_embed_layer_norm(segments, mask, positions):
    rng = np.random.default_rng(1)
    ids = rng.integers(0, 10, (2, 3)).astype(np.int32)
    inputs = [
        ids,
        rng.integers(0, 2, (2, 3)).astype(np.int32) if segments else None,
        normal(10, 8),
        normal(5, 8),
        normal(2, 8) if segments else None,
        GAMMA,
        BETA,
        np.array([[1, 1, 0], [1, 1, 1]], np.int32) if mask else None,
        np.array([[0, 1, 2], [2, 1, 0]], np.int32) if positions else None,
    ]
    model, feeds = one_node(
        "EmbedLayerNormalization",
        inputs,
        [1, 1, 1],
        weights=[i for i in (2, 3, 4, 5, 6) if inputs[i] is not None],
        dims={i: ["B", "S"] for i in (0, 1, 7, 8)},
        dtypes=[1, 6, 1],
        epsilon=1e-5,
    )
    assert_same(model, feeds)


A, B = normal(2, 3, 4), normal(2, 4, 5)


@pytest.mark.parametrize("trans_a", [0, 1])
@pytest.mark.parametrize("trans_b", [0, 1])
@pytest.mark.parametrize("alpha", [1.0, 0.125])
def test_fused_matmul(trans_a, trans_b, alpha):
    a = A.swapaxes(1, 2) if trans_a else A
    b = B.swapaxes(1, 2) if trans_b else B
    model, feeds = one_node(
        "FusedMatMul", [a, b], [1], transA=trans_a, transB=trans_b, alpha=alpha,
        dims={0: ["N", *a.shape[1:]]},
    )  # fmt: skip
    assert_same(model, feeds)


def test_transposed_batches_are_refused():
    model, _ = one_node("FusedMatMul", [A, B], [1], transBatchA=1)
    assert "transBatchA = 1 has no counterpart" in refusals(model)[0]


@pytest.mark.parametrize(
    ("activation", "parameters"),
    [("Relu", {}), ("Tanh", {}), ("LeakyRelu", {"activation_alpha": 0.3}), ("Sigmoid", {})],
)
def test_fused_gemm(activation, parameters):
    model, feeds = one_node(
        "FusedGemm", [A[0], B[0], normal(5)], [1], weights=[1, 2], activation=activation,
        alpha=0.5, **parameters,
    )  # fmt: skip
    assert_same(model, feeds)


@pytest.mark.parametrize(
    ("activation", "parameters"),
    [("Relu", []), ("Clip", [-0.5, 1.0]), ("LeakyRelu", [0.2]), ("HardSigmoid", [0.2, 0.5])],
)
@pytest.mark.parametrize("added", [False, True])
def test_fused_conv(activation, parameters, added):
    image, kernel = normal(1, 2, 6, 6), normal(3, 2, 3, 3)
    inputs = [image, kernel, normal(3), normal(1, 3, 6, 6) if added else None]
    given = {"activation_params": parameters} if parameters else {}
    model, feeds = one_node(
        "FusedConv", inputs[: 4 if added else 3], [1], weights=[1, 2], activation=activation,
        pads=[1, 1, 1, 1], **given,
    )  # fmt: skip
    assert_same(model, feeds)


def test_an_unknown_activation_is_refused():
    model, _ = one_node(
        "FusedConv", [normal(1, 2, 6, 6), normal(3, 2, 3, 3)], [1], activation="Foo"
    )
    assert "activation Foo is unknown" in refusals(model)[0]


def nbits(k, n, block, bits, zero, groups=None):
    rng = np.random.default_rng(7)
    blocks = -(-k // block)
    packed = rng.integers(0, 256, (n, blocks, block * bits // 8)).astype(np.uint8)
    scale = rng.uniform(0.01, 0.1, (n, blocks)).astype(np.float32)
    points = None
    if zero == "packed":
        points = rng.integers(0, 256, (n, -(-blocks * bits // 8))).astype(np.uint8)
    elif zero == "float":
        points = rng.uniform(0, 1 << bits, (n, blocks)).astype(np.float32)
    return packed, scale, points, groups


@pytest.mark.parametrize(
    ("bits", "k", "n", "block", "zero"),
    [
        (4, 64, 16, 32, None),
        (4, 96, 16, 32, "packed"),
        (4, 80, 16, 32, "packed"),
        (4, 64, 16, 16, "float"),
        (8, 64, 16, 32, None),
        (8, 64, 16, 32, "packed"),
        (4, 512, 256, 128, "packed"),
        (8, 512, 256, 64, None),
    ],
)
@pytest.mark.parametrize("bias", [False, True])
def test_matmul_nbits(bits, k, n, block, zero, bias):
    packed, scale, points, _ = nbits(k, n, block, bits, zero)
    inputs = [normal(2, 3, k), packed, scale, points, None, normal(n) if bias else None]
    while inputs[-1] is None:
        inputs.pop()
    model, feeds = one_node(
        "MatMulNBits",
        inputs,
        [1],
        weights=[i for i in range(1, len(inputs)) if inputs[i] is not None],
        dims={0: ["B", "S", k]},
        K=k,
        N=n,
        bits=bits,
        block_size=block,
    )
    unit = assert_same(model, feeds, rtol=1e-4, atol=1e-4)
    assert ("Cast" in op_types(unit)) == (k * n > 65536)


def test_matmul_nbits_with_group_index():
    packed, scale, points, _ = nbits(64, 16, 32, 4, "float")
    groups = np.random.default_rng(2).integers(0, 2, 64).astype(np.int32)
    inputs = [normal(3, 64), packed, scale, points, groups]
    model, feeds = one_node(
        "MatMulNBits", inputs, [1], weights=[1, 2, 3, 4], K=64, N=16, bits=4, block_size=32
    )
    assert_same(model, feeds, rtol=1e-4, atol=1e-4)


def test_group_index_with_packed_zero_points_is_refused():
    packed, scale, points, _ = nbits(64, 16, 32, 4, "packed")
    inputs = [normal(3, 64), packed, scale, points, np.zeros(64, np.int32)]
    model, _ = one_node(
        "MatMulNBits", inputs, [1], weights=[1, 2, 3, 4], K=64, N=16, bits=4, block_size=32
    )
    assert "packed zero points with a group index" in refusals(model)[0]


def test_weights_that_are_no_constants_are_refused():
    packed, scale, _, _ = nbits(64, 16, 32, 4, None)
    model, _ = one_node(
        "MatMulNBits", [normal(3, 64), packed, scale], [1], K=64, N=16, bits=4, block_size=32
    )
    assert "i1 is not constant" in refusals(model)[0]


def test_other_operators_and_unknown_attributes_are_refused_by_name():
    model, _ = one_node("CDist", [A[0], A[0]], [1])
    assert "nobody has written" in refusals(model)[0]
    model, _ = one_node("QuickGelu", [X], [1], beta=1.0)
    assert "attribute beta is unknown" in refusals(model)[0]
