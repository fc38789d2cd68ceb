"""fuse-gelu: every way of writing it, and what only looks like it."""

import re

import numpy as np
import pytest
from tests.support.fusion import fuse, no_kernel, normal
from tests.support.models import parse

X = normal(3, 8, scale=2)

ERF = {
    "div-then-halve": "r = Div(x, root) e = Erf(r) s = Add(e, one) p = Mul(x, s) y = Mul(p, half)",
    "mul-inverse": "r = Mul(inv, x) e = Erf(r) s = Add(one, e) p = Mul(s, x) y = Mul(half, p)",
    "halve-x-first": "h = Mul(x, half) r = Div(x, root) e = Erf(r) s = Add(e, one) y = Mul(h, s)",
    "halve-the-gate": "r = Div(x, root) e = Erf(r) s = Add(e, one) g = Mul(s, half) y = Mul(g, x)",
    "divide-by-two": "r = Div(x, root) e = Erf(r) s = Add(e, one) p = Mul(x, s) y = Div(p, two)",
    "half-x-divided": "h = Div(x, two) r = Div(x, root) e = Erf(r) s = Add(e, one) y = Mul(s, h)",
    "multiplied-out": "r = Div(x, root) e = Erf(r) g = Mul(e, half) s = Add(g, half) y = Mul(x, s)",
}
TANH = {
    "pow": "q = Pow(x, three) a = Mul(q, c) b = Add(x, a) i = Mul(b, k)",
    "pow-constants-first": "q = Pow(x, three) a = Mul(c, q) b = Add(x, a) i = Mul(k, b)",
    "products": "xx = Mul(x, x) q = Mul(xx, x) a = Mul(q, c) b = Add(a, x) i = Mul(b, k)",
    "square-scaled-first": "u = Pow(x, two) v = Mul(u, c) a = Mul(v, x) b = Add(x,a) i = Mul(b, k)",
    "one-plus": "xx = Mul(x, x) cc = Mul(xx, c) a = Add(cc, one) kx = Mul(x, k) i = Mul(kx, a)",
    "one-plus-gpt2": "u = Mul(x, c) v = Mul(u, x) a = Add(one, v) w = Mul(x, k) i = Mul(w, a)",
    "multiplied-out": "q = Pow(x, three) a = Mul(q, ck) kx = Mul(x, k) i = Add(kx, a)",
}


def _constants(dtype):
    numbers = {
        "root": 2**0.5, "inv": 2**-0.5, "half": 0.5, "one": 1, "two": 2, "three": 3,
        "c": 0.044715, "k": (2 / np.pi) ** 0.5, "k2": 2 * (2 / np.pi) ** 0.5,
        "ck": 0.044715 * (2 / np.pi) ** 0.5, "ck2": 2 * 0.044715 * (2 / np.pi) ** 0.5,
        "slope": 1.702,
    }  # fmt: skip
    return {name: np.array(number, dtype) for name, number in numbers.items()}


def _model(body, dtype="float", shape="3, 8", **weights):
    constants = {**_constants(np.float32 if dtype == "float" else np.float16), **weights}
    lines = body.replace(") ", ")\n")
    text = f"g ({dtype}[{shape}] x) => ({dtype}[{shape}] y) {{\n{lines}\n}}"
    used = {name: array for name, array in constants.items() if name in body}
    return parse(text, **used)


@pytest.mark.parametrize("form", ERF)
def test_erf(form):
    result = fuse(_model(ERF[form]), "fuse-gelu", feeds={"x": X})
    assert result.ops == {"NPUGeluV2": 1}
    assert result.node("NPUGeluV2").attributes.get_string("approximate") == "none"
    assert result.inside("NPUGeluV2") >= {"r", "e", "s"}
    assert not result.refusals


@pytest.mark.parametrize("gate", ["product", "gate-halved", "sigmoid"])
@pytest.mark.parametrize("form", TANH)
def test_tanh(form, gate):
    inner = TANH[form]
    tail = {
        "product": " t = Tanh(i) s = Add(t, one) h = Mul(x, half) y = Mul(h, s)",
        "gate-halved": " t = Tanh(i) g = Mul(half, t) s = Add(half, g) y = Mul(x, s)",
        "sigmoid": " s = Sigmoid(i) y = Mul(x, s)",
    }[gate]
    doubled = re.sub(r"\b(c?k)\b", r"\g<1>2", inner) if gate == "sigmoid" else inner
    result = fuse(_model(doubled + tail), "fuse-gelu", feeds={"x": X})
    assert result.ops == {"NPUGeluV2": 1}
    assert result.node("NPUGeluV2").attributes.get_string("approximate") == "tanh"


def test_quick():
    result = fuse(
        _model("m = Mul(x, slope) s = Sigmoid(m) y = Mul(x, s)"), "fuse-gelu", feeds={"x": X}
    )
    assert result.ops == {"NPUFastGelu": 1}


def test_half_precision_constants_are_recognised():
    form = _model(ERF["div-then-halve"], "float16")
    half = X.astype(np.float16)
    result = fuse(form, "fuse-gelu", feeds={"x": half}, rtol=4e-3, atol=4e-3)
    assert result.ops == {"NPUGeluV2": 1}


def test_onnx_gelu():
    text = '<ir_version: 10, opset_import: ["": 20]> g (float[3, 8] x) => (float[3, 8] y)'
    model = parse(text + '{ y = Gelu <approximate = "tanh"> (x) }')
    result = fuse(model, "fuse-gelu", feeds={"x": X}, atol=3e-6)
    assert result.ops == {"NPUGeluV2": 1}
    assert result.node("NPUGeluV2").attributes.get_string("approximate") == "tanh"


def test_both_kinds_in_one_model():
    body = ERF["div-then-halve"].replace("y =", "z =")
    tail = " q = Pow(z, three) a = Mul(q, c) b = Add(z, a) i = Mul(b, k) t = Tanh(i)"
    tail += " u = Add(t, one) h = Mul(z, half) y = Mul(h, u)"
    result = fuse(_model(body + tail), "fuse-gelu", feeds={"x": X})
    assert result.ops == {"NPUGeluV2": 2}


@pytest.mark.parametrize(
    ("old", "new"),
    [("Add(e, one)", "Add(e, half)"), ("Div(x, root)", "Div(x, two)"), ("p, half", "p, one")],
)
def test_other_constants_are_left(old, new):
    body = ERF["div-then-halve"]
    assert old in body
    result = fuse(_model(body.replace(old, new)), "fuse-gelu", feeds={"x": X})
    assert result.ops["NPUGeluV2"] == 0


def test_other_variable_is_left():
    body = "n = Neg(x) r = Div(n, root) e = Erf(r) s = Add(e, one) p = Mul(x, s) y = Mul(p, half)"
    assert fuse(_model(body), "fuse-gelu", feeds={"x": X}).ops["NPUGeluV2"] == 0


def test_inner_value_read_elsewhere_is_refused():
    body = (
        "r = Div(x, root) e = Erf(r) s = Add(e, one) p = Mul(x, s) q = Mul(p, half) y = Add(q, e)"
    )
    result = fuse(_model(body), "fuse-gelu", feeds={"x": X})
    assert result.ops["NPUGeluV2"] == 0
    assert "inner value e is used elsewhere" in " ".join(result.refusals)


def test_constant_that_adds_a_dimension_is_refused():
    body = ERF["div-then-halve"]
    model = _model(body, half=np.full((1, 1, 1), 0.5, np.float32))
    model.graph.output[0].type.tensor_type.shape.dim.add().dim_value = 8
    model.graph.output[0].type.tensor_type.shape.dim[0].dim_value = 1
    model.graph.output[0].type.tensor_type.shape.dim[1].dim_value = 3
    result = fuse(model, "fuse-gelu", feeds={"x": X})
    assert result.ops["NPUGeluV2"] == 0
    assert "more dimensions" in " ".join(result.refusals)


def test_missing_kernel_is_refused():
    model = _model(ERF["div-then-halve"])
    result = fuse(model, "fuse-gelu", feeds={"x": X}, kernels=no_kernel)
    assert result.ops["NPUGeluV2"] == 0
    assert "no kernel for NPUGeluV2" in " ".join(result.refusals)


def test_inside_a_branch():
    body = ERF["div-then-halve"].replace(") ", ")\n").replace("y =", "inner =")
    text = f"""g (bool c0, float[3, 8] x) => (float[3, 8] y) {{
        y = If (c0) <
            then_branch = yes () => (float[3, 8] inner) {{ {body} }},
            else_branch = no () => (float[3, 8] other) {{ other = Neg(x) }}
        >
    }}"""
    used = {k: v for k, v in _constants(np.float32).items() if k in body}
    for condition in (True, False):
        feeds = {"c0": np.array(condition), "x": X}
        result = fuse(parse(text, **used), "fuse-gelu", feeds=feeds)
        assert result.ops == {"NPUGeluV2": 1, "If": 1, "Neg": 1}


def test_part_outside_the_branch_is_refused():
    text = """g (bool c0, float[3, 8] x) => (float[3, 8] y) {
        r = Div(x, root)
        e = Erf(r)
        y = If (c0) <
            then_branch = yes () => (float[3, 8] a) {
                s = Add(e, one)
                p = Mul(x, s)
                a = Mul(p, half)
            },
            else_branch = no () => (float[3, 8] b) { b = Neg(x) }
        >
    }"""
    used = {k: v for k, v in _constants(np.float32).items() if k in ("root", "one", "half")}
    result = fuse(parse(text, **used), "fuse-gelu", feeds={"c0": np.array(True), "x": X})
    assert result.ops["NPUGeluV2"] == 0
    assert "outside this branch" in " ".join(result.refusals)
