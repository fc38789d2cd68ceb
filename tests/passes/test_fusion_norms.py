"""fuse-layer-norm, fuse-rms-norm and fuse-add-rms-norm: exporters' forms and near misses."""

import numpy as np
import onnx_ir as ir
import pytest
from tests.support.fusion import fuse, no_kernel, normal
from tests.support.models import parse

D = 8
X = normal(2, 3, D) + 1
GAMMA, BETA = normal(D, seed=1), normal(D, seed=2)
HALF_TOLERANCE = {"rtol": 1e-2, "atol": 1e-2}

ROOTS = {
    "sqrt-div": "r = Sqrt(v) u = Div(d, r)",
    "pow-div": "r = Pow(v, half) u = Div(d, r)",
    "reciprocal": "r = Sqrt(v) i = Reciprocal(r) u = Mul(d, i)",
    "one-over": "r = Sqrt(v) i = Div(one, r) u = Mul(i, d)",
    "pow-minus-half": "i = Pow(v, minus_half) u = Mul(d, i)",
}


def _weights(body, dtype, **more):
    numbers = {"two": 2, "half": 0.5, "minus_half": -0.5, "one": 1, "eps": 1e-5, "eps6": 1e-6}
    given = {name: np.array(number, dtype) for name, number in numbers.items()}
    given |= {"gamma": GAMMA.astype(dtype), "beta": BETA.astype(dtype)}
    given |= {"axes": np.array([-1]), "axes2": np.array([1, 2]), "axis1": np.array([1])} | more
    return {name: array for name, array in given.items() if f"{name}" in _words(body)}


def _words(body):
    return set(body.replace("(", " ").replace(")", " ").replace(",", " ").split())


def _model(body, *, dtype="float", opset=18, shape="2, 3, 8", extra="", out="", **more):
    np_dtype = np.float32 if dtype == "float" else np.float16
    head = f'<ir_version: 10, opset_import: ["" : {opset}]>'
    text = f"{head} g ({dtype}[{shape}] x) => ({dtype}[{out or shape}] y{extra})"
    lines = body.replace(") ", ")\n")
    return parse(f"{text} {{\n{lines}\n}}", **_weights(body, np_dtype, **more))


def _norm(root="sqrt-div", tail="w = Mul(u, gamma) y = Add(w, beta)", opset=18):
    mean = "ReduceMean <axes = [-1]> ({})" if opset < 18 else "ReduceMean({}, axes)"
    return (
        f"m = {mean.format('x')} d = Sub(x, m) q = Pow(d, two) a = {mean.format('q')} "
        f"v = Add(a, eps) {ROOTS[root]} {tail}"
    )


# -- LayerNorm ------------------------------------------------------------------------------------


@pytest.mark.parametrize("opset", [17, 18])
@pytest.mark.parametrize("root", ROOTS)
def test_layer_norm(root, opset):
    model = _model(_norm(root, opset=opset), opset=opset)
    result = fuse(model, "fuse-layer-norm", feeds={"x": X})
    assert result.ops == {"LayerNormalization": 1}
    node = result.node("LayerNormalization")
    assert node.attributes.get_int("axis") == -1
    assert node.attributes.get_float("epsilon") == pytest.approx(1e-5)
    assert [value.name for value in node.inputs] == ["x", "gamma", "beta"]
    assert result.inside("LayerNormalization") >= {"m", "d", "v", "u", "w"}
    assert not result.refusals


def test_layer_norm_with_two_subs_and_a_product():
    body = _norm().replace("q = Pow(d, two)", "e = Sub(x, m) q = Mul(e, e)")
    assert fuse(_model(body), "fuse-layer-norm", feeds={"x": X}).ops == {"LayerNormalization": 1}


@pytest.mark.parametrize(
    ("tail", "inputs"), [("w = Mul(gamma, u) y = Identity(w)", 2), ("y = Identity(u)", 2)]
)
def test_layer_norm_without_weights(tail, inputs):
    result = fuse(_model(_norm(tail=tail)), "fuse-layer-norm", feeds={"x": X})
    assert result.ops == {"LayerNormalization": 1, "Identity": 1}
    assert len(result.node("LayerNormalization").inputs) == inputs


def test_layer_norm_over_two_axes_with_broadcast_weights():
    body = _norm().replace("axes", "axes2")
    model = _model(body, gamma=GAMMA.reshape(1, 1, D), beta=np.array([0.5], np.float32))
    result = fuse(model, "fuse-layer-norm", feeds={"x": X})
    assert result.ops == {"LayerNormalization": 1}
    _, gamma, beta = result.node("LayerNormalization").inputs
    assert gamma.shape == beta.shape == (3, D)


def test_layer_norm_of_tensorflow():
    body = (
        "m = ReduceMean(x, axes) d = Sub(x, m) q = Mul(d, d) a = ReduceMean(q, axes) "
        "v = Add(a, eps) r = Sqrt(v) i = Reciprocal(r) f = Mul(i, gamma) "
        "l = Mul(x, f) n = Mul(m, f) o = Sub(beta, n) y = Add(l, o)"
    )
    result = fuse(_model(body), "fuse-layer-norm", feeds={"x": X}, rtol=1e-4, atol=1e-5)
    assert result.ops == {"LayerNormalization": 1}


@pytest.mark.parametrize(
    "body",
    [
        # around the square only, as TorchScript exports float16 models
        (
            "m = ReduceMean(x, axes) d = Sub(x, m) e = Cast <to = 1> (d) q = Pow(e, two32) "
            "a = ReduceMean(q, axes) v = Add(a, eps32) r = Sqrt(v) s = Cast <to = 1> (d) "
            "t = Div(s, r) u = Cast <to = 10> (t) w = Mul(u, gamma) y = Add(w, beta)"
        ),
        # around all of it, weights in float32 and in float16
        (
            "f = Cast <to = 1> (x) m = ReduceMean(f, axes) d = Sub(f, m) q = Mul(d, d) "
            "a = ReduceMean(q, axes) v = Add(a, eps32) r = Sqrt(v) t = Div(d, r) "
            "w = Mul(t, gamma32) z = Add(w, beta32) y = Cast <to = 10> (z)"
        ),
        (
            "f = Cast <to = 1> (x) m = ReduceMean(f, axes) d = Sub(f, m) q = Mul(d, d) "
            "a = ReduceMean(q, axes) v = Add(a, eps32) r = Sqrt(v) t = Div(d, r) "
            "u = Cast <to = 10> (t) w = Mul(u, gamma) y = Add(w, beta)"
        ),
    ],
)
def test_layer_norm_with_casts_inside(body):
    numbers = {"two32": np.float32(2), "eps32": np.float32(1e-5), "gamma32": GAMMA, "beta32": BETA}
    more = {name: np.asarray(number, np.float32) for name, number in numbers.items()}
    model = _model(body, dtype="float16", **more)
    half = X.astype(np.float16)
    result = fuse(model, "fuse-layer-norm", feeds={"x": half}, **HALF_TOLERANCE)
    assert result.ops == {"LayerNormalization": 1}
    assert result.node("LayerNormalization").inputs[0].name == "x"


def test_cast_that_others_read_stays():
    body = (
        "f = Cast <to = 1> (x) m = ReduceMean(f, axes) d = Sub(f, m) q = Mul(d, d) "
        "a = ReduceMean(q, axes) v = Add(a, eps32) r = Sqrt(v) t = Div(d, r) "
        "y = Cast <to = 10> (t) z = Neg(f)"
    )
    model = _model(
        body, dtype="float16", eps32=np.float32(1e-5).reshape(()), extra=", float[2,3,8] z"
    )
    half = X.astype(np.float16)
    result = fuse(model, "fuse-layer-norm", feeds={"x": half}, **HALF_TOLERANCE)
    assert result.ops == {"LayerNormalization": 1, "Cast": 1, "Neg": 1}


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        (_norm().replace("q, axes", "q, axis1"), "same last axes"),
        (_norm().replace("axes", "axis1"), "same last axes"),
        (_norm(tail="w = Mul(u, gamma) y = Add(w, d)"), "inner value d is used elsewhere"),
    ],
)
def test_layer_norm_near_misses(body, reason):
    result = fuse(_model(body), "fuse-layer-norm", feeds={"x": X})
    assert result.ops["LayerNormalization"] == 0
    assert reason in " ".join(result.refusals)


def test_layer_norm_in_float64_is_refused():
    body = _norm(tail="y = Identity(u)")
    text = f"g (double[2, 3, 8] x) => (double[2, 3, 8] y) {{ {body} }}"
    model = parse(text, **_weights(body, np.float64))
    result = fuse(model, "fuse-layer-norm", feeds={"x": X.astype(np.float64)})
    assert result.ops["LayerNormalization"] == 0
    assert "float64" in " ".join(result.refusals)


def test_layer_norm_is_not_built_below_opset_17():
    model = _model(_norm(opset=16), opset=16)
    assert fuse(model, "fuse-layer-norm", feeds={"x": X}).ops["LayerNormalization"] == 0


def test_row_weights_stay_outside():
    body = _norm(tail="w = Mul(u, rows) y = Add(w, beta)")
    model = _model(body, rows=normal(2, 3, 1))
    result = fuse(model, "fuse-layer-norm", feeds={"x": X})
    assert result.ops == {"LayerNormalization": 1, "Mul": 1, "Add": 1}
    assert "no weight over the dims" in " ".join(result.refusals)


# -- RMSNorm --------------------------------------------------------------------------------------


def _rms(root="reciprocal", square="Pow(x, two)", tail="y = Mul(gamma, u)", eps="eps6"):
    steps = ROOTS[root].replace("(d,", "(x,").replace(", d)", ", x)")
    return f"q = {square} a = ReduceMean(q, axes) v = Add(a, {eps}) {steps} {tail}"


@pytest.mark.parametrize("square", ["Pow(x, two)", "Mul(x, x)"])
@pytest.mark.parametrize("root", ROOTS)
def test_rms_norm(root, square):
    result = fuse(_model(_rms(root, square)), "fuse-rms-norm", feeds={"x": X})
    assert result.ops == {"NPURmsNorm": 1}
    assert [value.name for value in result.node("NPURmsNorm").inputs] == ["x", "gamma"]
    assert result.inside("NPURmsNorm") >= {"q", "a", "v", "u"}
    assert not result.refusals


@pytest.mark.parametrize("epsilon", [1e-5, 1e-3, 1e-8])
def test_other_epsilon_is_scaled_away(epsilon):
    """Evaluated by the fact sheet's formula, apart from the function body."""
    rows = np.concatenate([X, X * 1e-3, X * 1e-6], axis=1)
    model = _model(_rms(eps="e"), e=np.array(epsilon, np.float32), shape="2, 9, 8")
    result = fuse(model, "fuse-rms-norm", feeds={"x": rows}, rtol=1e-4, atol=1e-5)
    assert result.ops == {"Mul": 1, "NPURmsNorm": 1}
    scale = result.node("Mul").inputs[1].const_value.numpy()
    scaled = rows.astype(np.float64) * scale
    kernel = scaled / np.sqrt((scaled**2).mean(-1, keepdims=True) + 1e-6) * GAMMA
    wide = rows.astype(np.float64)
    wanted = wide / np.sqrt((wide**2).mean(-1, keepdims=True) + epsilon) * GAMMA
    np.testing.assert_allclose(kernel, wanted, rtol=1e-5)
    assert bool(result.notes) == (epsilon < 1e-6)


def test_scaling_up_in_float16_is_refused():
    model = _model(_rms(eps="e"), dtype="float16", e=np.array(1e-7, np.float16))
    half = X.astype(np.float16)
    result = fuse(model, "fuse-rms-norm", feeds={"x": half}, **HALF_TOLERANCE)
    assert result.ops["NPURmsNorm"] == 0
    assert "overflow float16" in " ".join(result.refusals)


def test_zero_epsilon_is_refused():
    model = _model(_rms(eps="e"), e=np.array(0, np.float32))
    result = fuse(model, "fuse-rms-norm", feeds={"x": X})
    assert result.ops["NPURmsNorm"] == 0
    assert "epsilon is 0.0" in " ".join(result.refusals)


def test_scaled_rms_norm_in_float16_keeps_small_rows():
    model = _model(_rms(eps="e"), dtype="float16", e=np.array(1e-3, np.float16), shape="2, 9, 8")
    rows = np.concatenate([X, X * 1e-2, X * 1e-4], axis=1).astype(np.float16)
    result = fuse(model, "fuse-rms-norm", feeds={"x": rows}, **HALF_TOLERANCE)
    assert result.ops == {"Mul": 1, "NPURmsNorm": 1}


def test_rms_norm_without_gamma():
    result = fuse(_model(_rms(tail="y = Identity(u)")), "fuse-rms-norm", feeds={"x": X})
    assert result.ops == {"NPURmsNorm": 1, "Identity": 1}
    np.testing.assert_array_equal(result.node("NPURmsNorm").inputs[1].const_value.numpy(), 1)


def test_rms_norm_with_computed_gamma():
    """Gemma multiplies by 1 + w."""
    result = fuse(
        _model(_rms(tail="g = Add(gamma, one) y = Mul(u, g)")), "fuse-rms-norm", feeds={"x": X}
    )
    assert result.ops == {"NPURmsNorm": 1, "Add": 1}


@pytest.mark.parametrize(
    "body",
    [
        (
            "f = Cast <to = 1> (x) q = Pow(f, two32) a = ReduceMean(q, axes) v = Add(a, eps32) "
            "r = Sqrt(v) i = Reciprocal(r) t = Mul(f, i) u = Cast <to = 10> (t) y = Mul(gamma, u)"
        ),
        (
            "f = Cast <to = 1> (x) q = Pow(f, two32) a = ReduceMean(q, axes) v = Add(a, eps32) "
            "r = Sqrt(v) i = Reciprocal(r) t = Mul(f, i) w = Mul(t, gamma32) y = Cast <to = 10> (w)"
        ),
        # the product reads a cast of its own
        (
            "f = Cast <to = 1> (x) q = Pow(f, two32) a = ReduceMean(q, axes) v = Add(a, eps32) "
            "r = Sqrt(v) i = Reciprocal(r) h = Cast <to = 1> (x) t = Mul(h, i) "
            "u = Cast <to = 10> (t) y = Mul(gamma, u)"
        ),
    ],
)
def test_rms_norm_with_casts_around(body):
    numbers = {"two32": 2, "eps32": 1e-6, "gamma32": GAMMA}
    more = {name: np.asarray(number, np.float32) for name, number in numbers.items()}
    half = X.astype(np.float16)
    model = _model(body, dtype="float16", **more)
    result = fuse(model, "fuse-rms-norm", feeds={"x": half}, **HALF_TOLERANCE)
    assert result.ops == {"NPURmsNorm": 1}
    x, gamma = result.node("NPURmsNorm").inputs
    assert x.name == "x"
    assert gamma.dtype == ir.DataType.FLOAT16


def test_result_in_another_dtype_keeps_the_cast():
    """float16 in, float32 out: the norm runs on the float32 copy."""
    body = (
        "f = Cast <to = 1> (x) q = Pow(f, two32) a = ReduceMean(q, axes) v = Add(a, eps32) "
        "r = Sqrt(v) u = Div(f, r) w = Mul(u, gamma32) y = Neg(w)"
    )
    numbers = {"two32": 2, "eps32": 1e-6, "gamma32": GAMMA}
    more = {name: np.asarray(number, np.float32) for name, number in numbers.items()}
    model = _model(body, dtype="float16", **more)
    model.graph.output[0].type.tensor_type.elem_type = 1
    result = fuse(model, "fuse-rms-norm", feeds={"x": X.astype(np.float16)})
    assert result.ops == {"Cast": 1, "NPURmsNorm": 1, "Neg": 1}


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        (_rms().replace("axes", "axis1"), "not over the last axes"),
        (_rms().replace("(q, axes)", "<keepdims = 0> (q, axis1)"), None),
        (_rms(tail="w = Mul(gamma, u) y = Add(w, r)"), "inner value r is used elsewhere"),
        (_rms(square="Mul(x, beta)"), None),
        (_rms(square="Pow(x, one)"), None),
    ],
)
def test_rms_norm_near_misses(body, reason):
    model = _model(body, shape="8, 8, 8")
    result = fuse(model, "fuse-rms-norm", feeds={"x": normal(8, 8, 8) ** 2})
    assert result.ops["NPURmsNorm"] == 0
    assert reason is None or reason in " ".join(result.refusals)


def test_rms_norm_over_an_unknown_width_is_refused():
    result = fuse(_model(_rms(), shape="2, 3, W"), "fuse-rms-norm", feeds={"x": X})
    assert result.ops["NPURmsNorm"] == 0
    assert "not fixed: ['W']" in " ".join(result.refusals)


def test_rms_norm_over_symbolic_rows():
    result = fuse(_model(_rms(), shape="B, S, 8"), "fuse-rms-norm", feeds={"x": X})
    assert result.ops == {"NPURmsNorm": 1}


def test_rms_norm_without_kernel():
    result = fuse(_model(_rms()), "fuse-rms-norm", feeds={"x": X}, kernels=no_kernel)
    assert result.ops["NPURmsNorm"] == 0
    assert "no kernel for NPURmsNorm" in " ".join(result.refusals)


# -- Add + RMSNorm --------------------------------------------------------------------------------

BOTH = ("fuse-rms-norm", "fuse-add-rms-norm")


def _residual(extra="z = Neg(s)", eps="eps6"):
    inner = _rms(eps=eps).replace("(x, two)", "(s, two)").replace("(x, i)", "(s, i)")
    return f"h = Tanh(x) s = Add(x, h) {inner} {extra}"


def test_add_rms_norm_offers_the_sum():
    model = _model(_residual(), extra=", float[2,3,8] z, float[2,3,8] s")
    result = fuse(model, *BOTH, feeds={"x": X})
    assert result.ops == {"Tanh": 1, "NPUAddRmsNorm": 1, "Neg": 1}
    assert [name for _, name, _ in result.unit.model.functions] == ["NPUAddRmsNorm"]
    assert result.node("NPUAddRmsNorm").outputs[2].name == "s"


def test_add_rms_norm_in_front_of_users_of_the_sum():
    """Users of the sum may stand before the norm in the file."""
    body = _residual(extra="").replace("q = Pow", "z = Neg(s) q = Pow")
    result = fuse(_model(body, extra=", float[2,3,8] z"), *BOTH, feeds={"x": X})
    assert result.ops == {"Tanh": 1, "NPUAddRmsNorm": 1, "Neg": 1}


def test_add_stays_in_front_of_a_scaled_norm():
    model = _model(_residual(eps="eps"), extra=", float[2,3,8] z")
    result = fuse(model, *BOTH, feeds={"x": X})
    assert result.ops == {"Tanh": 1, "Add": 1, "Mul": 1, "NPURmsNorm": 1, "Neg": 1}


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        (_residual().replace("Add(x, h)", "Add(x, beta)"), "the kernel wants one"),
        (
            _residual().replace("y = Mul(gamma, u)", "g = Add(gamma, one) y = Mul(g, u)"),
            "gamma g is computed",
        ),
    ],
)
def test_add_rms_norm_near_misses(body, reason):
    result = fuse(_model(body, extra=", float[2,3,8] z"), *BOTH, feeds={"x": X})
    assert result.ops["NPUAddRmsNorm"] == 0
    assert result.ops["NPURmsNorm"] == 1
    assert reason in " ".join(result.refusals)


def test_add_rms_norm_without_kernel():
    def only_plain(op_type, dtype):
        return no_kernel(op_type, dtype) if op_type == "NPUAddRmsNorm" else None

    model = _model(_residual(), extra=", float[2,3,8] z")
    result = fuse(model, *BOTH, feeds={"x": X}, kernels=only_plain)
    assert result.ops["NPURmsNorm"] == 1
    assert "no kernel for NPUAddRmsNorm" in " ".join(result.refusals)
