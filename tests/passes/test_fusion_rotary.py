"""fuse-rotary: half mode in front of the head transpose."""

import numpy as np
import pytest
from tests.support.fusion import fuse, no_kernel, normal
from tests.support.models import parse

X = normal(2, 5, 3, 8)
HALVES = {
    "slices": "r = Slice(q, four, far, last)\nl = Slice(q, zero, four, last)",
    "negative-slices": "r = Slice(q, minus_four, far, last)\nl = Slice(q, zero, minus_four, last)",
    "uneven": "r = Slice(q, three, far, last)\nl = Slice(q, zero, three, last)",
    "split": "l, r = Split <axis = 3, num_outputs = 2> (q)",
}
HEADS = "q = Transpose <perm = [0, 2, 1, 3]> (x)"
ROTATION = """n = Neg(r)
j = Concat <axis = -1> (n, l)
s = Mul(q, cos)
t = Mul(j, sin)
y = Add(s, t)"""


def _model(halves="slices", heads=HEADS, rotation=ROTATION, table=(1, 1, 5, 8), out="2,3,5,8"):
    body = f"{heads}\n{HALVES[halves]}\n{rotation}"
    bounds = {"zero": 0, "four": 4, "minus_four": -4, "three": 3, "far": 2**63 - 1, "last": -1}
    weights = {name: np.array([n]) for name, n in bounds.items() if name in body}
    weights |= {"cos": normal(*table, seed=1), "sin": normal(*table, seed=2)}
    text = f"g (float[2,5,3,8] x) => (float[{out}] y) {{\n{body}\n}}"
    return parse(text, **weights)


@pytest.mark.parametrize("halves", ["slices", "negative-slices", "split"])
def test_rotation_moves_before_the_transpose(halves):
    result = fuse(_model(halves), "fuse-rotary", feeds={"x": X})
    assert result.ops == {"NPURotaryMul": 1, "Transpose": 3}
    fused = result.node("NPURotaryMul")
    assert fused.inputs[0].name == "x"
    assert fused.inputs[1].shape == fused.inputs[2].shape == (1, 5, 1, 8)
    assert fused.outputs[0].shape == (2, 5, 3, 8)
    (fate,) = (fate for fate in result.unit.fates() if fate.value == "y")
    assert fate.kind == "same"


def test_operands_in_the_other_order():
    rotation = ROTATION.replace("q, cos", "cos, q").replace("s, t)", "t, s)")
    assert fuse(_model(rotation=rotation), "fuse-rotary", feeds={"x": X}).ops["NPURotaryMul"] == 1


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("(n, l)", "(l, n)"),
        ("Neg(r)", "Neg(l)"),
        ("Add(s, t)", "Sub(s, t)"),
        ("n = Neg(r)", "n = Abs(r)"),
    ],
)
def test_other_formulas_are_left(old, new):
    assert old in ROTATION
    model = _model(rotation=ROTATION.replace(old, new))
    result = fuse(model, "fuse-rotary", feeds={"x": X})
    assert result.ops["NPURotaryMul"] == 0


def test_uneven_parts_are_left():
    """5 and 3 columns join to 8 again."""
    result = fuse(_model("uneven"), "fuse-rotary", feeds={"x": X})
    assert result.ops["NPURotaryMul"] == 0


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"heads": "q = Neg(x)", "table": (1, 1, 3, 8), "out": "2,5,3,8"}, "no head transpose"),
        ({"table": (1, 3, 5, 8)}, "proven for (1, 1, S, D)"),
        ({"table": (2, 1, 5, 8)}, "proven for (1, 1, S, D)"),
        ({"table": (5, 8)}, "proven for (1, 1, S, D)"),
        (
            {"rotation": ROTATION.replace("y =", "u =") + "\nm = ReduceMax(n)\ny = Add(u, m)"},
            "inner value n is used elsewhere",
        ),
    ],
)
def test_near_misses_are_refused(changes, reason):
    result = fuse(_model(**changes), "fuse-rotary", feeds={"x": X})
    assert result.ops["NPURotaryMul"] == 0
    assert reason in " ".join(result.refusals)


def test_missing_kernel_is_refused():
    result = fuse(_model(), "fuse-rotary", feeds={"x": X}, kernels=no_kernel)
    assert result.ops["NPURotaryMul"] == 0
    assert "no kernel for NPURotaryMul" in " ".join(result.refusals)
