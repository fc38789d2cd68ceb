"""fuse-hardswish and fuse-mish."""

import numpy as np
import pytest
from tests.support.fusion import fuse, no_kernel, normal
from tests.support.models import parse

X = normal(3, 8, scale=4)
NUMBERS = {"zero": 0, "one": 1, "three": 3, "six": 6, "sixth": 1 / 6}

CLIPS = {
    "clip": "s = Add(x, three)\nc = Clip(s, zero, six)",
    "min-of-max": "s = Add(three, x)\nr = Max(s, zero)\nc = Min(r, six)",
    "max-of-min": "s = Add(x, three)\nr = Min(six, s)\nc = Max(r, zero)",
    "relu-and-min": "s = Add(x, three)\nr = Relu(s)\nc = Min(r, six)",
}
PRODUCTS = {
    "over-six-last": "p = Mul(x, c)\ny = Div(p, six)",
    "sixth-last": "p = Mul(c, x)\ny = Mul(sixth, p)",
    "gate-over-six": "p = Div(c, six)\ny = Mul(x, p)",
    "gate-times-sixth": "p = Mul(c, sixth)\ny = Mul(p, x)",
    "x-over-six": "p = Div(x, six)\ny = Mul(p, c)",
}


def _model(body, opset=18):
    head = f'<ir_version: 10, opset_import: ["" : {opset}]>'
    used = {k: np.array(n, np.float32) for k, n in NUMBERS.items() if k in body}
    return parse(f"{head} g (float[3, 8] x) => (float[3, 8] y) {{\n{body}\n}}", **used)


@pytest.mark.parametrize("product", PRODUCTS)
@pytest.mark.parametrize("clip", CLIPS)
def test_hardswish(clip, product):
    body = f"{CLIPS[clip]}\n{PRODUCTS[product]}"
    result = fuse(_model(body), "fuse-hardswish", feeds={"x": X})
    assert result.ops == {"HardSwish": 1}
    assert result.inside("HardSwish") >= {"s", "c", "p"}


def test_hardswish_from_hard_sigmoid():
    body = "s = HardSigmoid <alpha = 0.16666667, beta = 0.5> (x)\ny = Mul(x, s)"
    assert fuse(_model(body), "fuse-hardswish", feeds={"x": X}).ops == {"HardSwish": 1}


@pytest.mark.parametrize(
    "body",
    [
        "s = HardSigmoid (x)\ny = Mul(x, s)",
        "s = Add(x, three)\nc = Clip(s, zero, three)\np = Mul(x, c)\ny = Div(p, six)",
        "s = Add(x, three)\nc = Clip(s, zero, six)\np = Mul(s, c)\ny = Div(p, six)",
        "s = Add(x, three)\nc = Clip(s, zero, six)\np = Mul(x, c)\ny = Div(p, three)",
        "s = Add(x, three)\nc = Clip(s, zero, six)\np = Mul(x, c)\nq = Div(p, six)\ny = Add(q, c)",
    ],
)
def test_hardswish_near_misses(body):
    result = fuse(_model(body), "fuse-hardswish", feeds={"x": X})
    assert result.ops["HardSwish"] == 0
    assert sum(result.ops.values()) == body.count("\n") + 1


def test_hardswish_is_not_built_below_opset_14():
    body = f"{CLIPS['clip']}\n{PRODUCTS['over-six-last']}"
    assert fuse(_model(body, 13), "fuse-hardswish", feeds={"x": X}).ops["HardSwish"] == 0


MISH = {
    "softplus": "s = Softplus(x)\nt = Tanh(s)\ny = Mul(x, t)",
    "log-exp": "e = Exp(x)\na = Add(e, one)\ns = Log(a)\nt = Tanh(s)\ny = Mul(t, x)",
}


@pytest.mark.parametrize("form", MISH)
def test_mish(form):
    result = fuse(_model(MISH[form]), "fuse-mish", feeds={"x": X}, atol=2e-6)
    assert result.ops == {"NPUMish": 1}


def test_mish_near_misses():
    other = "n = Neg(x)\ns = Softplus(n)\nt = Tanh(s)\ny = Mul(x, t)"
    assert fuse(_model(other), "fuse-mish", feeds={"x": X}).ops["NPUMish"] == 0
    refused = fuse(_model(MISH["softplus"]), "fuse-mish", feeds={"x": X}, kernels=no_kernel)
    assert refused.ops["NPUMish"] == 0
    assert "no kernel for NPUMish" in " ".join(refused.refusals)
