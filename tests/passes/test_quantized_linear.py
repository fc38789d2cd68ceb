"""QuantizeLinear, DequantizeLinear and what dequantized weights become, against onnxruntime."""

from __future__ import annotations

from pathlib import Path

import ml_dtypes
import numpy as np
import onnx
import onnx_ir as ir
import pytest
from tests.support.contrib import assert_same, legal, one_node, op_types, refusals
from tests.support.fusion import normal
from tests.support.models import parse
from tests.support.runner import run_plain

SCALE = np.float32(0.25)
# Halves of a step, both limits, beyond them, and infinities.
EDGES = np.array([[-0.375, -0.125, 0.125, 0.375, 0.625, 31.75, -32.0, 1e6, -1e6, np.inf, -np.inf]])
EDGES = EDGES.astype(np.float32)


def pair(zero, scale=SCALE, opset=18, axis=1, shape="[N, 11]"):
    return parse(
        f"""<ir_version: 10, opset_import: ["" : {opset}]>
        g (float{shape} x) => (float y) {{
            q = QuantizeLinear<axis = {axis}>(x, s, z)
            y = DequantizeLinear<axis = {axis}>(q, s, z)
        }}""",
        s=np.asarray(scale),
        z=np.asarray(zero),
    )


def exact(model, feeds):
    return assert_same(model, feeds, rtol=0, atol=0)


@pytest.mark.parametrize(
    "zero",
    [np.uint8(0), np.uint8(128), np.uint8(3), np.int8(0), np.int8(-5)],
    ids=lambda zero: f"{zero.dtype}_{zero}",
)
@pytest.mark.parametrize("opset", [10, 13, 18, 21])
def test_fake_quantization_is_exact_and_holds_no_integers(zero, opset):
    model = pair(zero, opset=opset) if opset > 10 else parse(
        """<ir_version: 6, opset_import: ["" : 10]>
        g (float[N, 11] x) => (float y) {
            q = QuantizeLinear(x, s, z) y = DequantizeLinear(q, s, z)
        }""",
        s=np.asarray(SCALE),
        z=np.asarray(zero),
    )  # fmt: skip
    unit = exact(model, {"x": EDGES})
    assert "Cast" not in op_types(unit)
    assert ("Sub" in op_types(unit)) == bool(zero)


@pytest.mark.parametrize("zero", [np.uint16(7), np.int16(-7)])
def test_sixteen_bits(zero):
    exact(pair(zero, opset=21), {"x": EDGES * 50})


def test_each_channel_has_its_scale():
    scale, zero = np.array([0.25, 0.5, 0.1], np.float32), np.array([0, 3, 128], np.uint8)
    model = pair(zero, scale, shape="[N, 3, 4]")
    exact(model, {"x": normal(2, 3, 4, scale=5)})


@pytest.mark.parametrize("dtype", [np.uint8, np.int8])
def test_levels_as_an_output(dtype):
    info = np.iinfo(dtype)
    inputs = [EDGES, np.array(SCALE), np.array(info.max // 2, dtype)]
    kind = onnx.helper.np_dtype_to_tensor_dtype(np.dtype(dtype))
    model, feeds = one_node("QuantizeLinear", inputs, [1], weights=[1, 2], domain="", dtypes=[kind])
    exact(model, feeds)


def test_scales_may_be_computed():
    inputs = [EDGES, np.array(SCALE), np.array(9, np.uint8)]
    model, feeds = one_node("QuantizeLinear", inputs, [1], domain="", dtypes=[2])
    exact(model, feeds)


def test_onnxruntimes_own_pair():
    model, feeds = one_node(
        "QuantizeLinear", [EDGES, np.array(SCALE), np.array(9, np.uint16)], [1], weights=[1, 2],
        dtypes=[4],
    )  # fmt: skip
    exact(model, feeds)
    levels = np.arange(6, dtype=np.uint16).reshape(2, 3)
    model, feeds = one_node(
        "DequantizeLinear", [levels, np.array(SCALE), np.array(9, np.uint16)], [1],
        weights=[1, 2], dtypes=[1],
    )  # fmt: skip
    exact(model, feeds)


def test_what_moves_levels_moves_floats():
    model = parse(
        """g (float[N, 2, 4, 4] x) => (float y) {
            q = QuantizeLinear(x, s, z)
            m = MaxPool<kernel_shape = [2, 2], strides = [2, 2]>(q)
            t = Transpose<perm = [0, 2, 3, 1]>(m)
            r = Reshape(t, dims)
            y = DequantizeLinear(r, s, z)
        }""",
        s=np.array(0.05, np.float32),
        z=np.array(100, np.uint8),
        dims=np.array([0, -1], np.int64),
    )
    assert "Cast" not in op_types(exact(model, {"x": normal(3, 2, 4, 4)}))


def test_levels_read_twice_are_kept_where_they_are_needed():
    model = parse(
        """g (float[4] x) => (float y, uint8[4] q) {
            q = QuantizeLinear(x, s, z) y = DequantizeLinear(q, s, z)
        }""",
        s=np.array(0.05, np.float32),
        z=np.array(100, np.uint8),
    )
    assert op_types(exact(model, {"x": normal(4)})).count("Cast") == 1


def test_a_cast_that_rounds_is_no_quantization():
    model = parse(
        """g (float[4] x) => (float y) {
            k = Clip(x, low, high) q = Cast<to = 2>(k) y = DequantizeLinear(q, s, z)
        }""",
        s=np.array(0.5, np.float32),
        z=np.array(1, np.uint8),
        low=np.array(0, np.float32),
        high=np.array(255, np.float32),
    )
    exact(model, {"x": np.array([0.4, 1.6, 254.9, 300], np.float32)})


def weight_model(levels, scale, zero, *, opset=18, attributes="axis = 1", rows=None):
    zeros = {} if zero is None else {"z": zero}
    model = parse(
        f"""<ir_version: 10, opset_import: ["" : {opset}]>
        g (float[N, {rows or levels.shape[0]}] x) => (float y) {{
            w = DequantizeLinear<{attributes}>(q, s{", z" if zeros else ""}) y = MatMul(x, w)
        }}""",
        s=scale,
        **zeros,
    )
    model.graph.initializer.append(onnx.numpy_helper.from_array(levels, "q"))
    return model


@pytest.mark.parametrize("dtype", [np.int8, np.uint8])
@pytest.mark.parametrize("size", [16, 300])
def test_weights_become_floats_and_large_matrices_stay_integers(dtype, size):
    rng = np.random.default_rng(0)
    levels = rng.integers(-100, 27, (size, size)).astype(dtype)
    scale = rng.uniform(0.01, 0.1, size).astype(np.float32)
    zero = rng.integers(0, 9, size).astype(dtype)
    unit = assert_same(
        weight_model(levels, scale, zero), {"x": normal(3, size)}, rtol=1e-4, atol=1e-3
    )
    kinds = {value.dtype for value in unit.model.graph.initializers.values()}
    assert (ir.DataType.INT8 in kinds) == (size == 300)


@pytest.mark.parametrize("dtype", [ml_dtypes.int4, ml_dtypes.uint4])
@pytest.mark.parametrize("axis", [0, 1])
@pytest.mark.parametrize("with_zero", [True, False])
def test_four_bits_in_blocks(dtype, axis, with_zero):
    rng = np.random.default_rng(0)
    low = 0 if dtype is ml_dtypes.uint4 else -8
    levels = rng.integers(low, low + 16, (32, 64)).astype(dtype)
    shape = (2, 64) if axis == 0 else (32, 4)
    scale = rng.uniform(0.01, 0.1, shape).astype(np.float32)
    zero = rng.integers(low, low + 16, shape).astype(dtype) if with_zero else None
    model = weight_model(
        levels, scale, zero, opset=21, attributes=f"axis = {axis}, block_size = 16"
    )
    assert_same(model, {"x": normal(3, 32)}, rtol=1e-5, atol=1e-4)


def test_large_blocks_stay_integers():
    rng = np.random.default_rng(0)
    levels = rng.integers(-8, 8, (512, 256)).astype(ml_dtypes.int4)
    scale = rng.uniform(0.01, 0.1, (4, 256)).astype(np.float32)
    model = weight_model(levels, scale, None, opset=21, attributes="axis = 0, block_size = 128")
    unit = assert_same(model, {"x": normal(3, 512)}, rtol=1e-4, atol=1e-3)
    assert {"Cast", "Gather"} <= set(op_types(unit))


def test_kernels_and_biases_become_floats():
    rng = np.random.default_rng(0)
    model = parse(
        """g (float[N, 64, 5, 5] x) => (float y) {
            w = DequantizeLinear<axis = 0>(q, s) b = DequantizeLinear<axis = 0>(p, t)
            y = Conv(x, w, b)
        }""",
        q=rng.integers(-128, 127, (128, 64, 3, 3)).astype(np.int8),
        s=rng.uniform(0.01, 0.1, 128).astype(np.float32),
        p=rng.integers(-(2**30), 2**30, 128).astype(np.int32),
        t=rng.uniform(1e-8, 1e-7, 128).astype(np.float32),
    )
    unit = assert_same(model, {"x": normal(1, 64, 5, 5)}, rtol=1e-4, atol=1e-3)
    assert op_types(unit) == ["Conv"]


def test_float8_weights_become_floats():
    levels = normal(16, 8).astype(ml_dtypes.float8_e4m3fn)
    model = weight_model(levels, np.array(0.5, np.float32), None, opset=21, attributes="axis = 0")
    expected = normal(3, 16) @ (levels.astype(np.float32) * 0.5)
    actual = run_plain(legal(model).model, {"x": normal(3, 16)})["y"]
    np.testing.assert_allclose(actual, expected, rtol=1e-5, atol=1e-5)


def test_float8_levels_of_activations_are_refused():
    zero = np.zeros((), ml_dtypes.float8_e4m3fn)
    model = parse(
        """<ir_version: 10, opset_import: ["" : 21]>
        g (float[4] x) => (float y) {
            q = QuantizeLinear(x, s, z) y = DequantizeLinear(q, s, z)
        }""",
        s=np.array(0.05, np.float32),
    )
    model.graph.initializer.append(onnx.numpy_helper.from_array(zero, "z"))
    assert "FLOAT8E4M3FN is no dtype of quantized values" in refusals(model)[0]


@pytest.mark.parametrize("x", [normal(3, 4), np.abs(normal(3, 4)), np.zeros((3, 4), np.float32)])
def test_dynamic_quantization(x):
    model, feeds = one_node(
        "DynamicQuantizeLinear", [x], [1, 1, 1], domain="", dtypes=[2, 1, 2], dims={0: ["A", "B"]}
    )
    exact(model, feeds)


CASE = Path(__file__).parents[2].parent / "shared" / "cases" / "op-44"


@pytest.mark.skipif(not CASE.is_dir(), reason="the cases are not here")
def test_a_users_case():
    unit = legal(onnx.load(CASE / "model.onnx"))
    assert "DequantizeLinear" not in op_types(unit)
    expected = np.load(CASE / "expected.npz")
    actual = run_plain(unit.model, dict(np.load(CASE / "inputs.npz")))
    for name in expected.files:
        np.testing.assert_allclose(actual[name], expected[name], rtol=1e-5, atol=1e-6)
