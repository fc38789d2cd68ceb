"""Every form computes ``x @ dequantized weight``, for every rank and dynamic shape."""

import numpy as np
import onnx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.support.models import parse
from tests.support.quant import (
    OLD_NPU,
    constants,
    matmul,
    no_kernel,
    only_antiquant,
    op_types,
    plain_levels,
    quantized,
    report_of,
)
from tests.support.runner import run_plain

RNG = np.random.default_rng(7)


def normal(*shape, dtype=np.float32):
    return RNG.normal(size=shape).astype(dtype)


def run(unit, **feeds):
    return run_plain(unit.model, feeds)["y"]


@pytest.mark.parametrize(
    ("dims", "shape", "reshapes"),
    [
        ("M, {k}", (5, 48), 0),
        ("5, {k}", (5, 48), 0),
        ("2, 5, {k}", (2, 5, 48), 2),
        ("B, 5, {k}", (3, 5, 48), 2),
        ("2, S, {k}", (2, 7, 48), 2),
        ("B, S, {k}", (3, 7, 48), 2),
        ("B, 2, S, {k}", (3, 2, 5, 48), 2),
        ("{k}", (48,), 2),
    ],
)
def test_fused_is_right_for_every_rank(dims, shape, reshapes):
    weight = normal(48, 24, dtype=np.float16)
    unit = quantized(matmul(weight, dims))
    x = normal(*shape, dtype=np.float16)
    expected = x.astype(np.float64) @ plain_levels(weight, 1, "float16")
    np.testing.assert_allclose(run(unit, x=x), expected, rtol=1e-3, atol=2e-3)
    assert op_types(unit).count("WeightQuantBatchMatmulV2") == 1
    assert op_types(unit).count("Reshape") == reshapes
    (stored,) = [a for a in constants(unit).values() if a.dtype == np.int8]
    assert stored.shape == (48, 24)


def test_two_unknown_dims_take_their_shape_from_x_and_one_does_not():
    weight = normal(32, 16)
    assert "Shape" in op_types(quantized(matmul(weight, "B, S, {k}")))
    assert "Shape" not in op_types(quantized(matmul(weight, "B, 4, {k}")))


def test_an_empty_sequence_stays_empty():
    for dims in ("B, S, {k}", "2, S, {k}"):
        unit = quantized(matmul(normal(32, 16), dims))
        assert run(unit, x=np.zeros((2, 0, 32), np.float16)).shape == (2, 0, 16)


def test_rank_that_nothing_declares():
    weight = normal(32, 16, dtype=np.float16)
    model = parse(
        """m (float16[M, 32] flat, int64[R] shape, int64[Q] end) => (float16[L] y) {
            x = Reshape(flat, shape)
            z = MatMul(x, w)
            y = Reshape(z, end)
        }""",
        w=weight,
    )
    unit = quantized(model)
    assert op_types(unit).count("Shape") == 1
    flat = normal(6, 32, dtype=np.float16)
    expected = flat.astype(np.float64) @ plain_levels(weight, 1, "float16")
    for shape in [(6, 32), (2, 3, 32), (1, 3, 2, 32)]:
        actual = run(unit, flat=flat, shape=np.array(shape), end=np.array([-1]))
        np.testing.assert_allclose(actual, expected.ravel(), rtol=1e-3, atol=2e-3)


def test_nodes_with_one_x_share_its_reshape():
    model = parse(
        """m (float16[B, S, 32] x) => (float16[B, S, 16] q, float16[B, S, 16] k) {
            q = MatMul(x, wq)
            k = MatMul(x, wk)
        }""",
        wq=normal(32, 16, dtype=np.float16),
        wk=normal(32, 16, dtype=np.float16),
    )
    types = op_types(quantized(model))
    assert types.count("Shape") == 1
    assert types.count("Reshape") == 3


def test_layers_with_equal_leading_dims_share_their_shape():
    model = parse(
        """m (float16[B, S, 32] x) => (float16[B, S, 32] y, float16[B, S, 16] z) {
            h = MatMul(x, v)
            r = Relu(h)
            y = MatMul(r, v)
            z = MatMul(y, w)
        }""",
        v=normal(32, 32, dtype=np.float16) / np.float16(6),
        w=normal(32, 16, dtype=np.float16),
    )
    unit = quantized(model)
    types = op_types(unit)
    assert (types.count("Shape"), types.count("Slice"), types.count("Concat")) == (1, 1, 2)
    feeds = {"x": normal(2, 3, 32, dtype=np.float16)}
    exact, actual = run_plain(model, feeds), run_plain(unit.model, feeds)
    for name in exact:
        error = np.linalg.norm(actual[name] - exact[name]) / np.linalg.norm(exact[name])
        assert error < 0.02


def test_dims_without_a_name_are_not_taken_for_equal():
    model = parse(
        """m (float16[?, ?, 32] x, float16[?, ?, 32] z)
            => (float16[?, ?, 16] y, float16[?, ?, 16] q) {
            y = MatMul(x, w)
            q = MatMul(z, w)
        }""",
        w=normal(32, 16, dtype=np.float16),
    )
    unit = quantized(model)
    feeds = {"x": normal(2, 3, 32, dtype=np.float16), "z": normal(4, 2, 32, dtype=np.float16)}
    actual = run_plain(unit.model, feeds)
    assert actual["y"].shape == (2, 3, 16)
    assert actual["q"].shape == (4, 2, 16)


@pytest.mark.parametrize("group", [32, 64])
@pytest.mark.parametrize(("kernels", "dtype"), [(None, "float16"), (no_kernel, "float")])
def test_groups_with_a_ragged_last_one(group, kernels, dtype):
    numpy_dtype = np.float16 if dtype == "float16" else np.float32
    weight = (normal(80, 16) * np.linspace(0.1, 4, 80)[:, None]).astype(numpy_dtype)
    options = {} if kernels is None else {"kernels": kernels}
    unit = quantized(matmul(weight, dtype=dtype), granularity=f"group:{group}", **options)
    x = normal(5, 80, dtype=numpy_dtype)
    parts = [weight[i : i + group] for i in range(0, 80, group)]
    expected = x.astype(np.float64) @ np.concatenate(
        [plain_levels(part, 1, np.dtype(numpy_dtype).name) for part in parts]
    )
    tolerance = 1e-5 if dtype == "float" else 4e-3
    np.testing.assert_allclose(run(unit, x=x), expected, rtol=tolerance, atol=10 * tolerance)
    assert report_of(unit).rows[0].granularity == f"group:{group}"


@pytest.mark.parametrize("scheme", ["w8a16-asym", "w4a16", "w4a16-asym"])
@pytest.mark.parametrize("kernels", [None, no_kernel])
def test_other_schemes(scheme, kernels):
    weight = (normal(64, 16) + 0.5).astype(np.float16)
    options = {} if kernels is None else {"kernels": kernels}
    unit = quantized(matmul(weight), scheme=scheme, **options)
    x = normal(6, 64, dtype=np.float16)
    exact = x.astype(np.float64) @ weight.astype(np.float64)
    error = np.linalg.norm(run(unit, x=x) - exact) / np.linalg.norm(exact)
    row = report_of(unit).rows[0]
    assert error < 3 * row.error + 1e-3
    assert row.error < (0.2 if "w4" in scheme else 0.02)
    packed = [a for a in constants(unit).values() if a.dtype == np.int32]
    assert len(packed) == (1 if "w4" in scheme and kernels is None else 0)
    if packed:
        assert packed[0].shape == (64, 2)


def test_asymmetric_beats_symmetric_on_one_sided_weights():
    model = matmul(np.abs(normal(64, 16)))
    errors = [
        report_of(quantized(model, scheme=scheme)).rows[0].error
        for scheme in ("w8a16", "w8a16-asym")
    ]
    assert errors[1] < 0.6 * errors[0]


GEMM = "m ({dtype}[{x}] x) => ({dtype}[M, 20] y) {{ y = Gemm <{attributes}> (x, w{bias}) }}"


@pytest.mark.parametrize("trans_a", [0, 1])
@pytest.mark.parametrize("trans_b", [0, 1])
@pytest.mark.parametrize(
    ("alpha", "beta", "bias"), [(1.0, 1.0, True), (0.5, 2.0, True), (3.0, 1.0, False)]
)
@pytest.mark.parametrize("form", ["WeightQuantBatchMatmulV2", "NPUAntiQuant", "Cast+Mul"])
def test_gemm(trans_a, trans_b, alpha, beta, bias, form):
    kernels = {"NPUAntiQuant": only_antiquant, "Cast+Mul": no_kernel}.get(form)
    weight = normal(*((20, 40) if trans_b else (40, 20)), dtype=np.float16)
    weights = {"w": weight} | ({"b": normal(20, dtype=np.float16)} if bias else {})
    attributes = f"alpha = {alpha}, beta = {beta}, transA = {trans_a}, transB = {trans_b}"
    text = GEMM.format(
        dtype="float16",
        x="40, M" if trans_a else "M, 40",
        attributes=attributes,
        bias=", b" if bias else "",
    )
    unit = quantized(parse(text, **weights), **({"kernels": kernels} if kernels else {}))
    x = normal(*((40, 6) if trans_a else (6, 40)), dtype=np.float16)
    # The fused kernel holds alpha * scale, NPUAntiQuant holds its scale in float32.
    factor = alpha if form == "WeightQuantBatchMatmulV2" else 1.0
    held = "float32" if form == "NPUAntiQuant" else "float16"
    used = plain_levels(weight * np.float64(factor), 0 if trans_b else 1, held) / factor
    product = (x.T if trans_a else x).astype(np.float64) @ (used.T if trans_b else used)
    expected = alpha * product + (beta * weights["b"].astype(np.float64) if bias else 0)
    np.testing.assert_allclose(run(unit, x=x), expected, rtol=4e-3, atol=2e-2)
    assert report_of(unit).rows[0].form == form


def test_antiquant_scales_are_float32():
    weight = normal(40, 24, dtype=np.float16)
    unit = quantized(matmul(weight), kernels=only_antiquant)
    assert op_types(unit) == ["NPUAntiQuant", "MatMul"]
    x = normal(6, 40, dtype=np.float16)
    expected = x.astype(np.float64) @ plain_levels(weight, 1, "float32")
    np.testing.assert_allclose(run(unit, x=x), expected, rtol=2e-3, atol=5e-3)
    assert {a.dtype.name for a in constants(unit).values()} == {"int8", "float32"}


def test_left_operand_has_a_scale_per_row():
    weight = normal(20, 40) * np.logspace(-3, 2, 20)[:, None]
    weight = weight.astype(np.float32)
    model = parse("m (float[40, N] x) => (float[20, N] y) { y = MatMul(w, x) }", w=weight)
    unit = quantized(model)
    x = normal(40, 5)
    expected = plain_levels(weight, 0, "float32") @ x
    np.testing.assert_allclose(run(unit, x=x), expected, rtol=1e-4, atol=1e-5)


def test_stacked_weights_have_scales_per_matrix_and_column():
    weight = (normal(3, 40, 24) * np.array([1e-3, 1, 1e3])[:, None, None]).astype(np.float32)
    model = parse("m (float[3, M, 40] x) => (float[3, M, 24] y) { y = MatMul(x, w) }", w=weight)
    unit = quantized(model)
    x = normal(3, 5, 40)
    expected = np.stack([x[i] @ plain_levels(weight[i], 1, "float32") for i in range(3)])
    np.testing.assert_allclose(run(unit, x=x), expected, rtol=1e-4, atol=1e-3)


@pytest.mark.parametrize("group", [1, 8])
def test_convolution(group):
    weight = (normal(8, 8 // group, 3, 3) * np.logspace(-2, 2, 8)[:, None, None, None]).astype(
        np.float32
    )
    text = f"""m (float[N, 8, 9, 9] x) => (float[N, 8, 9, 9] y) {{
        y = Conv <group = {group}, pads = [1, 1, 1, 1]> (x, w, b)
    }}"""
    bias = normal(8)
    unit = quantized(parse(text, w=weight, b=bias))
    x = normal(2, 8, 9, 9)
    used = plain_levels(weight, 0, "float32").astype(np.float32)
    expected = run_plain(parse(text, w=used, b=bias), {"x": x})["y"]
    np.testing.assert_allclose(run(unit, x=x), expected, rtol=1e-4, atol=1e-4)
    assert op_types(unit) == ["Cast", "Mul", "Conv"]


def test_transposed_convolution_has_channels_on_axis_1():
    weight = (normal(8, 6, 2, 2) * np.logspace(-2, 2, 6)[:, None, None]).astype(np.float32)
    text = """m (float[1, 8, 5, 5] x) => (float[1, 6, 10, 10] y) {
        y = ConvTranspose <strides = [2, 2]> (x, w)
    }"""
    unit = quantized(parse(text, w=weight))
    x = normal(1, 8, 5, 5)
    used = plain_levels(weight, 1, "float32").astype(np.float32)
    expected = run_plain(parse(text, w=used), {"x": x})["y"]
    np.testing.assert_allclose(run(unit, x=x), expected, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("scheme", ["w8a16", "w8a16-asym"])
def test_embeddings_gather_integers(scheme):
    table = (normal(50, 32) * np.logspace(-2, 2, 50)[:, None]).astype(np.float32)
    text = "m (int64[B, S] ids) => (float[B, S, 32] y) { y = Gather(table, ids) }"
    unit = quantized(parse(text, table=table), embeddings=True, scheme=scheme)
    ids = RNG.integers(0, 50, (2, 7))
    rows = table[ids]
    step = (rows.max(-1) - rows.min(-1)) / 255 if "asym" in scheme else np.abs(rows).max(-1) / 127
    difference = np.abs(run(unit, ids=ids) - rows)
    assert (difference <= 0.51 * step[..., None]).all()
    assert op_types(unit)[0] == "Gather"
    assert {a.dtype.name for n, a in constants(unit).items() if a.shape == (50, 32)} == {"int8"}


def test_a_target_without_the_kernels_keeps_the_node_and_says_so():
    unit = quantized(matmul(normal(64, 16), "B, S, {k}"), target=OLD_NPU, kernels=no_kernel)
    assert op_types(unit) == ["Cast", "Mul", "MatMul"]
    (note,) = unit.log[-1].notes
    assert "ATC may fold back to float16" in note
    assert "no proven kernel on Ascend310P3" in note


def test_a_float32_model_keeps_float32_activations():
    weight = normal(64, 16)
    unit = quantized(matmul(weight, "B, S, {k}", dtype="float"))
    assert op_types(unit) == ["Cast", "Mul", "MatMul"]
    x = normal(2, 3, 64)
    expected = x @ plain_levels(weight, 1, "float32")
    np.testing.assert_allclose(run(unit, x=x), expected, rtol=1e-5, atol=1e-5)
    assert "activations, these are FLOAT" in unit.log[-1].notes[0]


def test_weights_inside_a_branch():
    model = parse(
        """m (bool c, float16[M, 32] x) => (float16[M, 16] y) {
            y = If (c) <
                then_branch = a () => (ya) { ya = MatMul(x, w) },
                else_branch = b () => (yb) { yb = MatMul(x, v) }
            >
        }""",
        w=normal(32, 16, dtype=np.float16),
        v=normal(32, 16, dtype=np.float16),
    )
    unit = quantized(model)
    assert len(report_of(unit).quantized) == 2
    x = normal(5, 32, dtype=np.float16)
    for branch in (True, False):
        exact = run_plain(model, {"c": np.array(branch), "x": x})["y"]
        actual = run(unit, c=np.array(branch), x=x)
        np.testing.assert_allclose(actual, exact, rtol=0.05, atol=0.1)


@settings(max_examples=25, deadline=None)
@given(
    lead=st.lists(st.integers(1, 4), min_size=1, max_size=3),
    known=st.lists(st.booleans(), min_size=3, max_size=3),
    k=st.integers(8, 70),
    n=st.integers(1, 40),
    half=st.booleans(),
    group=st.sampled_from(["channel", "group:32"]),
)
def test_any_shape(lead, known, k, n, half, group):
    dtype = np.float16 if half else np.float32
    rng = np.random.default_rng(k * 41 + n)
    weight, x = rng.normal(size=(k, n)).astype(dtype), rng.normal(size=(*lead, k)).astype(dtype)
    dims = [
        str(d) if fixed else f"D{i}" for i, (d, fixed) in enumerate(zip(lead, known, strict=False))
    ]
    model = matmul(weight, ", ".join([*dims, "{k}"]), dtype="float16" if half else "float")
    unit = quantized(model, granularity=group)
    exact = x.astype(np.float64) @ weight.astype(np.float64)
    actual = run(unit, x=x)
    assert actual.shape == exact.shape
    assert actual.dtype == dtype
    # Against the size of the terms: they may cancel, their errors do not.
    terms = np.abs(x).astype(np.float64) @ np.abs(weight).astype(np.float64)
    assert np.linalg.norm(actual - exact) <= 0.03 * np.linalg.norm(terms) + 1e-3


def test_written_types_are_what_the_kernel_takes():
    unit = quantized(matmul(normal(64, 16), "B, S, {k}"))
    (node,) = [n for n in unit.model.graph if n.op_type == "WeightQuantBatchMatmulV2"]
    assert node.domain == "npu"
    proto = {i.name: i for i in onnx.load_from_string(_bytes(unit)).graph.initializer}
    kinds = [proto[value.name].data_type for value in node.inputs[1:]]
    half = onnx.TensorProto.FLOAT16
    assert kinds == [onnx.TensorProto.INT8, half, half]
    assert [tuple(proto[value.name].dims) for value in node.inputs[1:]] == [(64, 16), (16,), (16,)]


def _bytes(unit):
    import onnx_ir as ir

    return ir.to_proto(unit.model).SerializeToString()
