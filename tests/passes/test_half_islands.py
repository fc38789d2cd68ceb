"""Places that stay float32 because half provably fails there, and near misses that do not."""

import numpy as np
import onnx_ir as ir
import pytest
from onnx import parser

from cannc.compiler.core.unit import load
from cannc.compiler.runtime.host_runner import HostRunner
from cannc.passes.manager import run_passes

HEADER = '<ir_version: 10, opset_import: ["" : 18]>\n'
DECLARED = "<int64[1] last = {-1}, float two = {2}, float eps = {1e-5}, float tiny = {1e-12}>"


def halve(body, *, inputs="float[2, 8] x", shape="2, M", declared=DECLARED):
    model = parser.parse_model(f"{HEADER} g ({inputs}) => (float[{shape}] y) {declared} {{{body}}}")
    unit = load(model)
    original = unit.copy()
    run_passes(unit, ["float16"], runner=HostRunner(), may_use_kernel=lambda op, dtype: None)
    return original, unit


def single(unit):
    """Return the operators that compute in float32."""
    nodes = [n for n in unit.model.graph if n.outputs[0].dtype == ir.DataType.FLOAT]
    return [n.op_type for n in nodes if n.op_type != "Cast"]


def error(original, unit, **feeds):
    want = HostRunner().run(original.model, feeds, ["y"])["y"].astype(np.float64)
    got = HostRunner().run(unit.model, feeds, ["y"])["y"]
    return np.linalg.norm(got - want) / np.linalg.norm(want)


X = np.random.default_rng(0).standard_normal((2, 8)).astype(np.float32)

NORMS = {
    "layer norm": """
        m = ReduceMean(x, last) d = Sub(x, m) q = Mul(d, d) v = ReduceMean(q, last)
        e = Add(v, eps) r = Sqrt(e) y = Div(d, r)""",
    "rms norm": """
        q = Pow(x, two) v = ReduceMean(q, last) e = Add(v, eps) r = Sqrt(e)
        i = Reciprocal(r) y = Mul(x, i)""",
    "l2 norm": "n = ReduceL2(x, last) c = Max(n, tiny) y = Div(x, c)",
}


@pytest.mark.parametrize("scale", [1e-4, 1.0, 800.0])
@pytest.mark.parametrize("body", NORMS.values(), ids=NORMS)
def test_norms_of_small_and_large_numbers(body, scale):
    original, unit = halve(body)
    assert error(original, unit, x=X * np.float32(scale)) < 2e-3


def test_affine_part_of_a_norm_is_half():
    _, unit = halve(NORMS["layer norm"].replace("y =", "n =") + " y = Mul(n, eps)")
    assert single(unit) == ["ReduceMean", "Sub", "Mul", "ReduceMean", "Add", "Sqrt", "Div"]


def test_root_of_anything_else_is_half():
    _, unit = halve("a = Abs(x) e = Add(a, two) r = Sqrt(e) y = Div(x, r)")
    assert single(unit) == []


def test_mean_written_as_sum():
    original, unit = halve(
        "s = ReduceSum(x, last) y = Div(s, n)",
        inputs="float[2, 4096] x",
        declared="<int64[1] last = {-1}, float n = {4096}>",
    )
    assert single(unit) == ["ReduceSum", "Div"]
    assert error(original, unit, x=np.full((2, 4096), 40, np.float32)) < 1e-3


def test_plain_sum_is_half():
    _, unit = halve("s = ReduceSum(x, last) y = Relu(s)")
    assert single(unit) == []


def test_sum_of_exponentials():
    original, unit = halve("e = Exp(x) s = ReduceSum(e, last) y = Log(s)")
    assert single(unit) == ["Exp", "ReduceSum", "Log"]
    assert error(original, unit, x=X + 20) < 1e-3


def test_epsilon_that_vanishes():
    original, unit = halve("a = Abs(x) e = Add(a, tiny) y = Log(e)")
    assert single(unit) == ["Add", "Log"]
    assert error(original, unit, x=np.zeros((2, 8), np.float32)) < 1e-3
    _, unit = halve("a = Abs(x) e = Add(a, eps) y = Log(e)")
    assert single(unit) == []


def test_factor_beyond_half():
    original, unit = halve(
        "a = Mul(x, big) y = Mul(a, small)", declared="<float big = {1e6}, float small = {1e-6}>"
    )
    assert single(unit) == ["Mul", "Mul"]
    assert error(original, unit, x=X) < 1e-3


def test_boxes_on_a_grid():
    grid = ", ".join(str(n + 0.5) for n in range(632, 640))
    declared = f"<float[8] g = {{{grid}}}, float s = {{8}}>"
    original, unit = halve("a = Sigmoid(x) b = Add(a, g) y = Mul(b, s)", declared=declared)
    assert single(unit) == ["Add", "Mul"]
    assert error(original, unit, x=X) < 1e-5


def test_mask_is_no_grid():
    declared = "<float[8] g = {0, 0, 0, 0, -10000, -10000, -10000, -10000}>"
    _, unit = halve("a = Add(x, g) y = Softmax(a)", declared=declared)
    assert single(unit) == []


def test_scores_are_scaled_before_the_product():
    declared = "<float c = {0.125}>"
    inputs = "float[2, 64] x, float[64, 8] k"
    original, unit = halve("s = MatMul(x, k) y = Mul(s, c)", inputs=inputs, declared=declared)
    assert [n.op_type for n in unit.model.graph] == ["Cast", "Cast", "Mul", "MatMul", "Cast"]
    assert {f.value: f.kind for f in unit.fates()} == {"s": "inside", "y": "same"}
    x, k = np.full((2, 64), 40, np.float32), np.full((64, 8), 30, np.float32)
    assert error(original, unit, x=x, k=k) < 1e-3


@pytest.mark.parametrize(
    "body",
    [
        "s = MatMul(x, k) t = Mul(s, c) y = Add(t, s)",
        "s = MatMul(x, k) y = Mul(s, k)",
        "s = MatMul(x, k) y = Div(s, c)",
        "s = MatMul(x, w) y = Mul(s, c)",
    ],
    ids=["read twice", "no constant", "grows", "weight"],
)
def test_scores_that_are_not_moved(body):
    declared = "<float c = {0.5}, float[2, 2] w = {1, 2, 3, 4}>"
    _, unit = halve(body, inputs="float[2, 2] x, float[2, 2] k", declared=declared)
    order = [n.op_type for n in unit.model.graph if n.op_type != "Cast"]
    assert order[0] == "MatMul"
