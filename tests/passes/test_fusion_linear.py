"""fuse-conv-batchnorm and matmul-add-to-gemm: what is folded into a layer, and what is not."""

from pathlib import Path

import numpy as np
import onnx
import pytest
from tests.support.fusion import fuse, normal
from tests.support.models import parse

CONV = "fuse-conv-batchnorm"
GEMM = "matmul-add-to-gemm"
CASES = Path(__file__).parents[2].parent / "shared" / "cases"

# layer -> node text, input shape, output shape, weight
LAYERS = {
    "conv": ("Conv <pads = [1, 1, 1, 1]>", "2,4,5,5", "2,6,5,5", normal(6, 4, 3, 3)),
    "depthwise": ("Conv <group = 4>", "2,4,5,5", "2,4,3,3", normal(4, 1, 3, 3)),
    "grouped": ("Conv <group = 2>", "2,4,5,5", "2,6,3,3", normal(6, 2, 3, 3)),
    "conv1d": ("Conv", "2,4,5", "2,6,3", normal(6, 4, 3)),
    "transposed": ("ConvTranspose", "2,4,3,3", "2,6,5,5", normal(4, 6, 3, 3)),
    "transposed-grouped": ("ConvTranspose <group = 2>", "2,4,3,3", "2,6,5,5", normal(4, 3, 3, 3)),
    "gemm": ("Gemm <alpha = 0.5>", "2,4", "2,6", normal(4, 6)),
    "gemm-transposed": ("Gemm <transB = 1, beta = 3.0>", "2,4", "2,6", normal(6, 4)),
    "matmul": ("MatMul", "2,4", "2,6", normal(4, 6)),
}


def _feeds(shape):
    return {"x": normal(*map(int, shape.split(",")), seed=9)}


def _batch_norm(channels):
    return {
        "scale": normal(channels, seed=1),
        "shift": normal(channels, seed=2),
        "mean": normal(channels, seed=3),
        "var": normal(channels, seed=4) ** 2,
    }


def _model(steps, shape, out, extra="", **weights):
    text = f"g (float[{shape}] x) => (float[{out}] y{extra}) {{\n{steps}\n}}"
    used = {name: array for name, array in weights.items() if name in steps}
    return parse(text, **used)


def _layer(name, inputs="x, w"):
    node, shape, out, weight = LAYERS[name]
    operator, _, attributes = node.partition(" ")
    return f"c = {operator} {attributes} ({inputs})", shape, out, weight


@pytest.mark.parametrize(
    ("name", "bias"), [(n, b) for n in LAYERS for b in (False, True) if (n, b) != ("matmul", True)]
)
def test_batch_norm_is_folded(name, bias):
    line, shape, out, weight = _layer(name, "x, w, b" if bias else "x, w")
    channels = int(out.split(",")[1])
    steps = f"{line}\ny = BatchNormalization <epsilon = 0.01> (c, scale, shift, mean, var)"
    model = _model(steps, shape, out, w=weight, b=normal(channels), **_batch_norm(channels))
    result = fuse(model, CONV, feeds=_feeds(shape), rtol=1e-4, atol=1e-4)
    operator = LAYERS[name][0].split()[0]
    assert result.ops == {"Gemm" if operator == "MatMul" else operator: 1}
    assert {fate.kind for fate in result.unit.fates() if fate.value == "c"} == {"inside"}


@pytest.mark.parametrize(
    "step",
    [
        "y = Mul(c, k)",
        "y = Mul(k, c)",
        "y = Div(c, k)",
        "y = Add(c, k)",
        "y = Add(k, c)",
        "y = Sub(c, k)",
    ],
)
@pytest.mark.parametrize("constant_shape", [(6, 1, 1), (1, 6, 1, 1), (1, 1, 1, 1), ()])
@pytest.mark.parametrize("name", ["conv", "transposed-grouped"])
def test_constant_per_channel_is_folded(name, constant_shape, step):
    line, shape, out, weight = _layer(name)
    model = _model(f"{line}\n{step}", shape, out, w=weight, k=normal(*constant_shape) + 3)
    result = fuse(model, CONV, feeds=_feeds(shape), rtol=1e-4, atol=1e-5)
    assert sum(result.ops.values()) == 1


def test_chain_is_folded_at_once():
    line, shape, out, weight = _layer("conv")
    steps = f"""{line}
        a = Add(c, k)
        n = BatchNormalization (a, scale, shift, mean, var)
        m = Mul(n, k)
        y = Sub(m, k)"""
    model = _model(steps, shape, out, w=weight, k=normal(6, 1, 1), **_batch_norm(6))
    result = fuse(model, CONV, feeds=_feeds(shape), rtol=1e-4, atol=1e-4)
    assert result.ops == {"Conv": 1}
    assert result.inside("Conv") == {"c", "a", "n", "m"}


def test_addition_leaves_the_weight_alone():
    line, shape, out, weight = _layer("conv")
    model = _model(f"{line}\ny = Add(c, k)", shape, out, w=weight, k=normal(6, 1, 1))
    result = fuse(model, CONV, feeds=_feeds(shape))
    assert result.node("Conv").inputs[1].name == "w"


@pytest.mark.parametrize(
    ("steps", "reason"),
    [
        ("y = Add(c, along)", "does not run along the channels"),
        ("y = Add(c, full)", "does not run along the channels"),
        ("y = Div(c, zero)", "not finite"),
        ("n = Neg(c)\nm = Mul(c, k)\ny = Add(m, n)", "inner value c is used elsewhere"),
        ("y = Sub(k, c)", None),
        ("y = Mul(c, c)", None),
    ],
)
def test_near_misses(steps, reason):
    line, shape, out, weight = _layer("conv")
    constants = {"along": normal(1, 1, 1, 5), "full": normal(2, 6, 5, 5), "k": normal(6, 1, 1)}
    constants["zero"] = np.zeros((6, 1, 1), np.float32)
    model = _model(f"{line}\n{steps}", shape, out, w=weight, **constants)
    result = fuse(model, CONV, feeds=_feeds(shape))
    assert result.ops["Conv"] == 1
    assert sum(result.ops.values()) == steps.count("=") + 1
    assert reason is None or reason in " ".join(result.refusals)


def test_constant_along_the_width_of_equal_size_is_no_channel():
    model = _model(
        "c = Conv(x, w)\ny = Add(c, k)", "1,4,6,6", "1,6,6,6", w=normal(6, 4, 1, 1), k=normal(6)
    )
    result = fuse(model, CONV, feeds=_feeds("1,4,6,6"))
    assert result.ops == {"Conv": 1, "Add": 1}


def test_computed_weight_is_refused():
    line, shape, out, weight = _layer("conv", "x, v")
    model = _model(f"v = Neg(w)\n{line}\ny = Mul(c, k)", shape, out, w=weight, k=normal(6, 1, 1))
    result = fuse(model, CONV, feeds=_feeds(shape))
    assert result.ops["Mul"] == 1
    assert "weight" in " ".join(result.refusals)


def test_training_mode_is_refused():
    line, shape, out, weight = _layer("conv")
    steps = f"{line}\ny, m, v = BatchNormalization <training_mode = 1> (c, scale, shift, mean, var)"
    model = _model(steps, shape, out, w=weight, **_batch_norm(6))
    result = fuse(model, CONV, feeds=_feeds(shape), rtol=1e-4, atol=1e-4)
    assert result.ops["BatchNormalization"] == 1
    assert "training mode" in " ".join(result.refusals)


def test_batch_norm_behind_a_batched_product_is_refused():
    steps = "c = MatMul(x, w)\ny = BatchNormalization (c, scale, shift, mean, var)"
    model = _model(steps, "2,3,4", "2,3,3", w=normal(4, 3), **_batch_norm(3))
    result = fuse(model, CONV, feeds=_feeds("2,3,4"))
    assert result.ops["BatchNormalization"] == 1
    assert "not the columns" in " ".join(result.refusals)


def test_overflow_in_float16_is_refused():
    half = {"w": normal(6, 4, 1, 1), "k": np.full((6, 1, 1), 60000.0)}
    text = "g (float16[1,4,2,2] x) => (float16[1,6,2,2] y) {\nc = Conv(x, w)\ny = Mul(c, k)\n}"
    model = parse(text, **{name: array.astype(np.float16) for name, array in half.items()})
    feeds = {"x": (_feeds("1,4,2,2")["x"] / 1000).astype(np.float16)}
    result = fuse(model, CONV, feeds=feeds, rtol=1e-2, atol=1e-2)
    assert result.ops["Mul"] == 1
    assert "exceed float16" in " ".join(result.refusals)


@pytest.mark.skipif(not CASES.is_dir(), reason="the cases lie beside the repository")
@pytest.mark.parametrize(
    ("case", "left"),
    [("sim-01", {"Conv": 2}), ("sim-03", None), ("sim-21", None), ("sim-07", None)],
)
def test_reported_cases(case, left):
    model = onnx.load(CASES / case / "model.onnx")
    with np.load(CASES / case / "inputs.npz") as archive:
        feeds = {name: archive[name] for name in archive.files}
    result = fuse(model, CONV, GEMM, feeds=feeds, rtol=1e-4, atol=1e-5)
    assert left is None or left.items() <= result.ops.items()
    assert list(result.unit.provenance.outputs) == [v.name for v in result.unit.model.graph.outputs]


# -- MatMul + Add ---------------------------------------------------------------------------------


@pytest.mark.parametrize("bias_shape", [(6,), (1, 6), (1,), (1, 1), ()])
@pytest.mark.parametrize("order", ["c, b", "b, c"])
def test_product_and_bias_become_gemm(bias_shape, order):
    model = _model(
        f"c = MatMul(x, w)\ny = Add({order})", "N,4", "N,6", w=normal(4, 6), b=normal(*bias_shape)
    )
    result = fuse(model, GEMM, feeds=_feeds("5,4"))
    assert result.ops == {"Gemm": 1}
    assert len(result.node("Gemm").inputs[2].shape) <= 1 or bias_shape == ()
    assert result.inside("Gemm") == {"c"}


@pytest.mark.parametrize(
    ("shape", "out", "bias_shape", "reason"),
    [
        ("2,3,4", "2,3,6", (6,), None),
        ("3,4", "3,6", (3, 1), "not one number per column"),
        ("3,4", "2,3,6", (2, 3, 6), "not one number per column"),
        ("1,4", "3,6", (3, 6), "not one number per column"),
    ],
)
def test_where_gemm_means_something_else(shape, out, bias_shape, reason):
    model = _model(
        "c = MatMul(x, w)\ny = Add(c, b)", shape, out, w=normal(4, 6), b=normal(*bias_shape)
    )
    result = fuse(model, GEMM, feeds=_feeds(shape))
    assert result.ops == {"MatMul": 1, "Add": 1}
    assert reason is None or reason in " ".join(result.refusals)


def test_residual_sum_stays():
    model = _model("c = MatMul(x, w)\ny = Add(c, x)", "1,6", "1,6", w=normal(6, 6))
    assert fuse(model, GEMM, feeds=_feeds("1,6")).ops == {"MatMul": 1, "Add": 1}


def test_integer_product_stays():
    text = "g (int32[2,4] x) => (int32[2,6] y) {\nc = MatMul(x, w)\ny = Add(c, b)\n}"
    weights = {"w": np.arange(24, dtype=np.int32).reshape(4, 6), "b": np.arange(6, dtype=np.int32)}
    feeds = {"x": np.arange(8, dtype=np.int32).reshape(2, 4)}
    assert fuse(parse(text, **weights), GEMM, feeds=feeds).ops == {"MatMul": 1, "Add": 1}
