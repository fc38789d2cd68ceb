from __future__ import annotations

import numpy as np
import pytest
from tests.support.passes import fates, parse, random_feeds, run, show
from tests.support.runner import assert_same_results

C = "Constant<value = int64"

# Input, body that computes int64 a from x, and the numbers that a must become.
NUMBERS = {
    "shape": ("float[2, 3] x", "a = Shape(x)", [2, 3]),
    "shape from start": ("float[N, 3, 4] x", "a = Shape<start = 1>(x)", [3, 4]),
    "shape from a negative start to an end": (
        "float[N, 3, 4] x",
        "a = Shape<start = -2, end = -1>(x)",
        [3],
    ),
    "shape beyond the rank": ("float[N, 3] x", "a = Shape<start = 1, end = 9>(x)", [3]),
    "empty shape": ("float[N, 3] x", "a = Shape<start = 2>(x)", []),
    "size": ("float[2, 3] x", "a = Size(x)", 6),
    "gather": ("float[N, 3] x", f"i = {C} {{-1}}>() s = Shape(x) a = Gather(s, i)", 3),
    "gather several": (
        "float[N, 3, 4] x",
        f"i = {C}[2] {{2, 1}}>() s = Shape(x) a = Gather(s, i)",
        [4, 3],
    ),
    "slice": (
        "float[N, 3, 4] x",
        f"b = {C}[1] {{1}}>() e = {C}[1] {{9}}>() s = Shape(x) a = Slice(s, b, e)",
        [3, 4],
    ),
    "slice with steps": (
        "float[5, N, 4] x",
        f"""b = {C}[1] {{0}}>() e = {C}[1] {{9}}>() k = {C}[1] {{2}}>()
            s = Shape(x) a = Slice(s, b, e, b, k)""",
        [5, 4],
    ),
    "concat of gathered": (
        "float[N, 3] x",
        f"""i = {C} {{1}}>() o = {C}[1] {{0}}>() l = {C}[1] {{-1}}>()
            s = Shape(x) g = Gather(s, i) u = Unsqueeze(g, o) a = Concat<axis = 0>(u, l)""",
        [3, -1],
    ),
    "squeeze": (
        "float[N, 3] x",
        "s = Shape<start = 1>(x) a = Squeeze(s)",
        3,
    ),
    "reshape": (
        "float[N, 3] x",
        f"m = {C}[1] {{-1}}>() i = {C} {{1}}>() s = Shape(x) g = Gather(s, i) a = Reshape(g, m)",
        [3],
    ),
}


@pytest.mark.parametrize("name", NUMBERS)
def test_numbers_become_constants(name: str) -> None:
    source, body, expected = NUMBERS[name]
    before = parse(f"({source}) => (int64 y) {{ {body} y = Neg(a) }}")
    after = run(before, "fold-shapes")
    constant = after.model.graph.initializers["a"].const_value
    assert constant is not None
    np.testing.assert_array_equal(constant.numpy(), expected)
    assert constant.numpy().shape == np.shape(expected)
    assert fates(after)["a"] == "folded"
    assert_same_results(before.model, after.model, random_feeds(before.model))


def test_an_unknown_dim_stays_a_question() -> None:
    before = parse("(float[N, 3] x) => (y) { a = Shape(x) y = Neg(a) }")
    assert show(run(before, "fold-shapes").model) == show(before.model)


def test_an_int32_cast_keeps_its_dtype() -> None:
    before = parse("(float[2, 3] x) => (y) { s = Shape(x) a = Cast<to = 6>(s) y = Neg(a) }")
    after = run(before, "fold-shapes")
    assert_same_results(before.model, after.model, random_feeds(before.model))
    assert show(after.model) == ["y = Neg(a)"]


TARGETS = {
    "batch kept by name": ("float[N, 6] x", "(n, k)", [2, 3], [0, 2, 3]),
    "batch kept twice": ("float[N, 6] x", "(n, k)", [-1], [0, -1]),
    "batch moved": ("float[6, N] x", "(n, k)", [2, 3], [-1, 2, 3]),
}


@pytest.mark.parametrize("name", TARGETS)
def test_a_reshape_target_becomes_literal(name: str) -> None:
    source, parts, rest, expected = TARGETS[name]
    index = 0 if source.startswith("float[N") else 1
    before = parse(
        f"""({source}) => (y) {{
            i = {C}[1] {{{index}}}>() k = {C}[{len(rest)}] {{{str(rest)[1:-1]}}}>()
            s = Shape(x) n = Gather(s, i) t = Concat<axis = 0>{parts} y = Reshape(x, t)
        }}"""
    )
    after = run(before, "fold-shapes", "dead-code")
    (target,) = after.model.graph.initializers.values()
    assert target.const_value is not None
    assert target.const_value.numpy().tolist() == expected
    assert show(after.model) == [f"y = Reshape(x, {target.name})"]
    for size in (1, 5):
        feeds = random_feeds(before.model, {"N": size})
        assert_same_results(before.model, after.model, feeds)


def test_two_open_dims_are_not_guessed() -> None:
    before = parse(
        f"""(float[N, M, 2] x) => (y) {{
            i = {C}[1] {{0}}>() j = {C}[1] {{1}}>() s = Shape(x) n = Gather(s, i) m = Gather(s, j)
            k = {C}[1] {{2}}>() t = Concat<axis = 0>(m, k, n) y = Reshape(x, t)
        }}"""
    )
    assert show(run(before, "fold-shapes").model)[-1] == "y = Reshape(x, t)"


def test_an_open_dim_beside_a_dim_that_may_be_zero_is_not_guessed() -> None:
    before = parse(
        f"""(float[N, M] x, float[M] z) => (y) {{
            s = Shape(x) n = Shape(z) k = {C}[1] {{0}}>() i = {C}[1] {{0}}>() g = Gather(s, i)
            t = Concat<axis = 0>(n, k, g) y = Reshape<allowzero = 1>(x, t)
        }}"""
    )
    assert show(run(before, "fold-shapes").model)[-1] == "y = Reshape(x, t) {allowzero: 1}"


def test_a_constant_shape_that_is_an_output_settles() -> None:
    before = parse("(float[2, 3] x) => (int64[2] y) { y = Shape(x) }")
    once = run(before, "fold-shapes")
    assert show(once.model) == ["y = Identity(y__fold-shapes)"]
    assert show(run(once, "fold-shapes").model) == show(once.model)
