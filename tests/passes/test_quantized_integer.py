"""Products of integers and quantized functions, against onnxruntime and exact arithmetic."""

from __future__ import annotations

import numpy as np
import pytest
from tests.support.contrib import assert_same, legal, one_node, op_types, refusals
from tests.support.fusion import normal
from tests.support.models import parse
from tests.support.runner import run_plain

RNG = np.random.default_rng(11)


def levels(*shape, dtype=np.uint8):
    """Return levels; signed ones of 7 bits, since some processors saturate pairs of larger ones."""
    low, high = (0, 256) if dtype is np.uint8 else (-64, 64)
    return RNG.integers(low, high, shape).astype(dtype)


def exact(model, feeds):
    return assert_same(model, feeds, rtol=0, atol=0)


@pytest.mark.parametrize("b_dtype", [np.uint8, np.int8])
@pytest.mark.parametrize("constant", [True, False])
@pytest.mark.parametrize("zeros", ["none", "scalars", "columns"])
def test_matmul_integer(b_dtype, constant, zeros):
    a, b = levels(2, 3, 16), levels(16, 5, dtype=b_dtype)
    inputs = [a, b]
    if zeros != "none":
        inputs.append(np.array(7, np.uint8))
        inputs.append(levels(5, dtype=b_dtype) if zeros == "columns" else np.array(3, b_dtype))
    weights = [i for i in range(1, len(inputs)) if constant or i > 1]
    model, feeds = one_node(
        "MatMulInteger", inputs, [1], weights=weights, domain="", dtypes=[6],
        dims={0: ["B", "S", 16]},
    )  # fmt: skip
    exact(model, feeds)


@pytest.mark.parametrize("constant", [True, False])
def test_long_sums_are_cut_and_stay_exact(constant):
    # Odd totals beyond 2^24, which float32 cannot hold.
    a, b = np.full((1, 1031), 255, np.uint8), np.full((1031, 2), 127, np.int8)
    model, feeds = one_node(
        "MatMulInteger", [a, b], [1], weights=[1] if constant else [], domain="", dtypes=[6]
    )
    total = int(a[0].astype(int) @ b[:, 0].astype(int))
    assert total > 1 << 24
    assert int(np.float32(total)) != total
    unit = legal(model)
    assert run_plain(unit.model, feeds)["o0"].tolist() == [[total, total]]
    assert op_types(unit).count("MatMul") == (2 if constant else 4)


def test_sums_of_unknown_length_are_refused():
    a, b = levels(3, 16), levels(16, 5)
    model, _ = one_node(
        "MatMulInteger", [a, b], [1], domain="", dtypes=[6], dims={0: ["M", "K"], 1: ["K", "N"]}
    )
    assert "is not fixed" in refusals(model)[0]


def test_zero_points_of_rows_are_refused():
    a, b = levels(3, 16), levels(16, 5)
    model, _ = one_node(
        "MatMulInteger", [a, b, levels(3)], [1], weights=[1, 2], domain="", dtypes=[6]
    )
    assert "differ between rows" in refusals(model)[0]


@pytest.mark.parametrize("pads", [[0] * 4, [1] * 4])
@pytest.mark.parametrize("constant", [True, False])
def test_conv_integer(pads, constant):
    inputs = [levels(1, 3, 6, 6), levels(4, 3, 3, 3), np.array(9, np.uint8), np.array(8, np.uint8)]
    model, feeds = one_node(
        "ConvInteger", inputs, [1], weights=[1, 2, 3] if constant else [2, 3], domain="",
        dtypes=[6], pads=pads,
    )  # fmt: skip
    exact(model, feeds)


def scalar(number):
    return np.array(number, np.float32)


@pytest.mark.parametrize("dtype", [np.uint8, np.int8])
@pytest.mark.parametrize("columns", [False, True])
def test_qlinear_matmul(dtype, columns):
    b_scale = RNG.uniform(0.01, 0.1, 5).astype(np.float32) if columns else scalar(0.03)
    b_zero = np.zeros(5, dtype) if columns else np.array(4, dtype)
    inputs = [
        levels(2, 16, dtype=dtype), scalar(0.02), np.array(9, dtype),
        levels(16, 5, dtype=dtype), b_scale, b_zero, scalar(0.4), np.array(20, dtype),
    ]  # fmt: skip
    model, feeds = one_node(
        "QLinearMatMul", inputs, [1], weights=range(1, 8), domain="", dims={0: ["B", 16]}
    )
    exact(model, feeds)


def conv_inputs(channels, filters=4, group=1, bias=True):
    kernel = levels(filters, channels // group, 3, 3, dtype=np.int8)
    inputs = [
        levels(1, channels, 6, 6), scalar(0.02), np.array(128, np.uint8),
        kernel, RNG.uniform(0.001, 0.01, filters).astype(np.float32), np.zeros(filters, np.int8),
        scalar(0.3), np.array(100, np.uint8),
    ]  # fmt: skip
    return [*inputs, RNG.integers(-9999, 9999, filters).astype(np.int32)] if bias else inputs


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize(("channels", "group"), [(3, 1), (4, 2), (512, 1)])
def test_qlinear_conv(bias, channels, group):
    inputs = conv_inputs(channels, group=group, bias=bias)
    model, feeds = one_node(
        "QLinearConv", inputs, [1], weights=range(1, len(inputs)), domain="", group=group,
        pads=[1, 1, 1, 1], dims={0: ["B", channels, 6, 6]},
    )  # fmt: skip
    unit = exact(model, feeds)
    assert op_types(unit).count("Conv") == (2 if channels == 512 else 1)


def test_groups_whose_sums_are_too_long_are_refused():
    inputs = conv_inputs(512, group=2)
    inputs[3] = np.full_like(inputs[3], 127)
    model, _ = one_node("QLinearConv", inputs, [1], weights=range(1, 9), domain="", group=2)
    assert "groups cannot be cut" in refusals(model)[0]


def within_one(model, feeds):
    """Results may differ by one level where onnxruntime rounds in another order."""
    assert_same(model, feeds, rtol=0, atol=1)


X = [levels(2, 3, 4, 4), scalar(0.02), np.array(90, np.uint8)]
Y = [levels(2, 3, 4, 4), scalar(0.05), np.array(12, np.uint8)]
RESULT = [scalar(0.04), np.array(30, np.uint8)]


@pytest.mark.parametrize(
    ("op_type", "inputs", "attributes"),
    [
        ("QLinearAdd", [*X, *Y, *RESULT], {}),
        ("QLinearMul", [*X, *Y, *RESULT], {}),
        ("QLinearSigmoid", [*X, *RESULT], {}),
        ("QLinearLeakyRelu", [*X, *RESULT], {"alpha": 0.2}),
        ("QLinearSoftmax", [*X, *RESULT], {"axis": -1, "opset": 13}),
        ("QLinearGlobalAveragePool", [*X, *RESULT], {}),
        ("QLinearAveragePool", [*X, *RESULT], {"kernel_shape": [2, 2]}),
    ],
)
def test_functions(op_type, inputs, attributes):
    weights = [i for i, array in enumerate(inputs) if array.ndim == 0]
    model, feeds = one_node(op_type, inputs, [1], weights=weights, **attributes)
    within_one(model, feeds)


def test_concat_and_where():
    inputs = [*RESULT, *X, *Y]
    model, feeds = one_node(
        "QLinearConcat", inputs, [1], weights=[0, 1, 3, 4, 6, 7], axis=1, dtypes=[2]
    )
    within_one(model, feeds)
    condition = RNG.integers(0, 2, (2, 3, 4, 4)).astype(bool)
    inputs = [condition, *X, *Y, *RESULT]
    model, feeds = one_node("QLinearWhere", inputs, [1], weights=[2, 3, 5, 6, 7, 8], dtypes=[2])
    within_one(model, feeds)


@pytest.mark.parametrize("to_float", [True, False])
@pytest.mark.parametrize("trans_b", [0, 1])
def test_gemm(to_float, trans_b):
    b = levels(5, 8) if trans_b else levels(8, 5)
    bias = RNG.integers(-999, 999, 5).astype(np.int32)
    inputs = [levels(3, 8), *X[1:], b, *Y[1:], bias, *([] if to_float else RESULT)]
    model, feeds = one_node(
        "QGemm", inputs, [1], weights=range(1, len(inputs)), transB=trans_b,
        dtypes=[1 if to_float else 2],
    )  # fmt: skip
    assert_same(model, feeds, rtol=1e-5, atol=1e-4 if to_float else 1)


@pytest.mark.parametrize("bias", [True, False])
def test_products_to_float(bias):
    inputs = [
        levels(2, 3, 16), levels(16, 5), scalar(0.1), RNG.uniform(0.01, 0.1, 5).astype(np.float32),
        np.array(100, np.uint8), levels(5),
    ]  # fmt: skip
    inputs += [normal(5)] if bias else []
    model, feeds = one_node(
        "MatMulIntegerToFloat", inputs, [1], weights=range(1, len(inputs)), dtypes=[1]
    )
    assert_same(model, feeds, rtol=1e-5, atol=1e-5)
    inputs = [normal(2, 3, 16), levels(16, 5, dtype=np.int8), scalar(0.1), np.array(0, np.int8)]
    inputs += [normal(5)] if bias else []
    model, feeds = one_node("DynamicQuantizeMatMul", inputs, [1], weights=range(1, len(inputs)))
    assert_same(model, feeds, rtol=1e-5, atol=1e-4)


@pytest.mark.parametrize("mask", [True, False])
@pytest.mark.parametrize("causal", [0, 1])
def test_quantized_attention(mask, causal):
    inputs = [
        levels(2, 3, 16), levels(16, 48, dtype=np.int8), normal(48), scalar(0.01), scalar(0.01),
        np.array([[1, 1, 0], [1, 1, 1]], np.int32) if mask else None,
        np.array(120, np.uint8), np.array(0, np.int8),
    ]  # fmt: skip
    model, feeds = one_node(
        "QAttention", inputs, [1], weights=[1, 2, 3, 4, 6, 7], num_heads=4, dtypes=[1],
        unidirectional=causal,
    )  # fmt: skip
    assert_same(model, feeds)


def scaled_sums(scale):
    """MatMulInteger as onnxruntime's quantizer writes it, the scales multiplied beforehand."""
    return parse(
        """g (float[N, 16] x) => (float y) {
            a, s, z = DynamicQuantizeLinear(x) i = MatMulInteger(a, b, z, bz)
            f = Cast<to = 1>(i) t = Mul(s, bs) y = Mul(f, t)
        }""",
        b=levels(16, 3, dtype=np.int8),
        bs=scale,
        bz=np.array(3, np.int8),
    )


@pytest.mark.parametrize("scale", [scalar(0.1), np.array([0.1, 0.2, 0.3], np.float32)])
def test_sums_that_become_floats_are_a_product_of_floats(scale):
    unit = assert_same(scaled_sums(scale), {"x": normal(3, 16)}, rtol=1e-4, atol=1e-4)
    assert "Cast" not in op_types(unit)


def test_scales_of_rows_stay_behind_the_sums():
    scale = np.array([[0.1], [0.2], [0.3]], np.float32)
    unit = assert_same(scaled_sums(scale), {"x": normal(3, 16)}, rtol=1e-5, atol=1e-5)
    assert op_types(unit)[-1] == "Mul"


def test_a_product_of_one_part_needs_no_integers():
    inputs = [levels(2, 16), levels(16, 5), scalar(0.1), scalar(0.2)]
    model, _ = one_node("MatMulIntegerToFloat", inputs, [1], weights=[1, 2, 3], dtypes=[1])
    assert op_types(legal(model)) == ["Cast", "Mul", "MatMul"]
