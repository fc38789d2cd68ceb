"""What holds for every pass of the registry, and for all of them together."""

from __future__ import annotations

import importlib
import inspect
import re
from pathlib import Path
from types import MappingProxyType

import numpy as np
import onnx_ir as ir
import pytest
from tests.support.passes import optimized, parse, random_feeds, run, show
from tests.support.runner import assert_same_results

import cannc.passes
from cannc.passes import registry
from cannc.passes.base import Numerics, Pass
from cannc.passes.registry import PASSES, load_pass

MODELS = {
    "empty": "(float[2] x) => (float[2] x) { }",
    "shapes": """(float[N, 6] x) => (float[N, 2, 3] y) {
        i = Constant<value = int64[1] {0}>() k = Constant<value = int64[2] {2, 3}>()
        s = Shape(x) n = Gather(s, i) t = Concat<axis = 0>(n, k) a = Identity(x) r = Reshape(a, t)
        y = Relu(r)
    }""",
    "layout": """(float[2, 3, 4] x) => (float[4, 3, 2] y, float[2, 3, 4] z) {
        a = Transpose<perm = [2, 0, 1]>(x) b = Transpose<perm = [0, 2, 1]>(a) y = Relu(b)
        c = Transpose<perm = [2, 1, 0]>(y) d = Cast<to = 1>(c) z = Add(d, x)
    }""",
    "constants": """(float[2] x) => (float[2] y) <
        float[2] v = {1.0, 2.0}, float[2] w = {1.0, 2.0}
    > {
        a = Exp(v) b = Exp(w) c = Mul(a, b) d = Mul(x, c) e = Mul(x, c) f = Sqrt(c) y = Sub(d, e)
    }""",
    "branches": """(float[2] x, bool c) => (float[2] y) <bool t = {1}, float w = {2.0}> {
        a = If (t) <
            then_branch = p () => (float[2] u) { q = Exp(w) u = Mul(x, q) },
            else_branch = o () => (float[2] v) { q = Tanh(x) v = Neg(q) }
        >
        y = If (c) <
            then_branch = p2 () => (float[2] u2) { u2 = Identity(a) },
            else_branch = o2 () => (float[2] v2) { q2 = Mul(x, w) r2 = Identity(q2) v2 = Neg(r2) }
        >
    }""",
    "loop": """(float[2] x) => (float[2] y, float[3, 2] z) <int64 n = {3}, bool t = {1}> {
        y, z = Loop (n, t, x) <
            body = b (int64 i, bool c, float[2] s) => (bool d, float[2] r, float[2] o) {
                d = Identity(c) k = Constant<value = float {2.0}>() e = Exp(k)
                f = Identity(s) r = Mul(f, k) o = Div(r, e)
            }
        >
    }""",
    "outputs": """(float[2] x) => (float[2] a, float[2] b, float[2] c, float[2] y) {
        a = Identity(x) b = Relu(x) c = Relu(x) y = Identity(b)
    }""",
    "network": """(float[1, 2, 4, 4] x) => (float[1, 2, 4, 4] y) <
        float[2, 2, 1, 1] w = {1.0, 0.5, -0.5, 2.0}, float[2] s = {1.5, 0.5},
        float[2] b = {0.1, -0.1}
    > {
        c = Conv(x, w) n = BatchNormalization(c, s, b, b, s) r = Relu(n) y = Add(r, x)
    }""",
    "norm": """(float[N, 4] x) => (float[N, 4] y) <
        float[4] g = {1.0, 2.0, 3.0, 4.0}, float[4] b = {0.5, 0.25, 0.0, 1.0}, float e = {0.00001},
        float two = {2.0}, int64[1] axes = {-1}
    > {
        m = ReduceMean(x, axes) d = Sub(x, m) q = Pow(d, two) v = ReduceMean(q, axes) p = Add(v, e)
        s = Sqrt(p) n = Div(d, s) h = Mul(n, g) y = Add(h, b)
    }""",
}
CALLS = (
    """(float[2] x) => (float[2] y) { a = my.F<k = 2.0>(x) b = my.F<k = 3.0>(x) y = Add(a, b) }"""
)
FUNCTION = """<domain: "my", opset_import: ["" : 18]>
F <k> (x) => (y) { c = Constant<value_float: float = @k>() y = Mul(x, c) }"""
TOLERANCE = {Numerics.EXACT: 0.0, Numerics.REASSOCIATED: 1e-5, Numerics.LOSSY: 1e-2}


def _model(name: str):
    if name == "calls":
        return parse(CALLS, imports=', "my" : 1', functions=FUNCTION)
    return parse(MODELS[name])


@pytest.mark.parametrize("name", PASSES)
def test_the_table_tells_the_truth(name: str) -> None:
    current = load_pass(name)
    assert current.name == name
    assert re.fullmatch(r"[a-z0-9]+(-[a-z0-9]+)*", name)
    assert 10 < len(current.summary) < 80
    assert current.numerics in Numerics


def test_every_pass_of_the_files_is_in_the_table() -> None:
    root = Path(cannc.passes.__file__).parent
    for path in root.rglob("*.py"):
        parts = [
            part for part in path.relative_to(root).with_suffix("").parts if part != "__init__"
        ]
        module = importlib.import_module(".".join(("cannc.passes", *parts)))
        for found in vars(module).values():
            is_mine = inspect.isclass(found) and found.__module__ == module.__name__
            if (
                is_mine
                and issubclass(found, Pass)
                and not inspect.isabstract(found)
                and hasattr(found, "name")
            ):
                assert PASSES.get(found.name) == f"{module.__name__}:{found.__name__}"


def test_every_group_names_known_passes() -> None:
    groups = (registry.PREPARE, registry.CLEANUP, *registry.FUSION.values())
    named = {name for group in groups for name in group}
    assert named <= set(PASSES)


@pytest.mark.parametrize("model", [*MODELS, "calls"])
@pytest.mark.parametrize("name", PASSES)
def test_keeps_values_interface_and_traces(name: str, model: str) -> None:
    before = _model(model)
    after = run(before, name)
    tolerance = TOLERANCE[load_pass(name).numerics]
    feeds = random_feeds(before.model)
    assert_same_results(before.model, after.model, feeds, rtol=tolerance, atol=tolerance)
    assert [fate.value for fate in after.fates() if fate.kind == "unknown"] == []
    again = run(after, name)
    assert again.log[-1].applied == 0
    assert show(again.model) == show(after.model)


@pytest.mark.parametrize("level", ["O0", "O1", "O2"])
@pytest.mark.parametrize("model", [*MODELS, "calls"])
def test_a_level_keeps_values_interface_and_traces(model: str, level: registry.Level) -> None:
    before = _model(model)
    after = optimized(before, level)
    feeds = random_feeds(before.model)
    assert_same_results(before.model, after.model, feeds, rtol=1e-5, atol=1e-5)
    for kind in ("inputs", "outputs"):
        old, new = (list(map(_described, getattr(u.model.graph, kind))) for u in (before, after))
        assert new == old
    assert [fate.value for fate in after.fates() if fate.kind == "unknown"] == []
    assert show(optimized(after, level).model) == show(after.model)


def _described(value: ir.Value) -> tuple[str | None, str, str]:
    return value.name, str(value.type), str(value.shape)


def test_what_o1_makes_of_each_model() -> None:
    assert {name: len(optimized(_model(name)).model.graph) for name in [*MODELS, "calls"]} == {
        "empty": 0,
        "shapes": 2,
        "layout": 4,
        "constants": 2,
        "branches": 2,
        "loop": 10,
        "outputs": 4,
        "network": 3,
        "norm": 1,
        "calls": 3,
    }


def test_passes_have_no_state() -> None:
    for name in PASSES:
        current: Pass = load_pass(name)
        assert not vars(current) or all(
            isinstance(v, (str, int, float, tuple, frozenset, MappingProxyType, np.generic))
            for v in vars(current).values()
        )
