from __future__ import annotations

import pytest
from tests.support.passes import fates, parse, random_feeds, run, show
from tests.support.runner import assert_same_results


def test_equal_chains_are_computed_once() -> None:
    before = parse(
        "(float[2] x) => (y) { a = Tanh(x) b = Tanh(x) c = Exp(a) d = Exp(b) y = Add(c, d) }"
    )
    after = run(before, "common-subexpressions")
    assert show(after.model) == ["a = Tanh(x)", "c = Exp(a)", "y = Add(c, c)"]
    assert fates(after) == {
        "a": "same", "b": "alias a", "c": "same", "d": "alias c", "y": "same"
    }  # fmt: skip
    assert_same_results(before.model, after.model, random_feeds(before.model))


@pytest.mark.parametrize(
    "body",
    [
        "a = Sub(x, z) b = Sub(z, x)",
        "a = Elu<alpha = 0.5>(x) b = Elu<alpha = 0.25>(x)",
        "a = Elu<alpha = 0.0>(x) b = Elu<alpha = -0.0>(x)",
        "a = RandomNormalLike(x) b = RandomNormalLike(x)",
        """s = Shape(x) a = ConstantOfShape<value = float[1] {0.0}>(s)
           c = ConstantOfShape<value = double[1] {0.0}>(s) b = Cast<to = 1>(c)""",
        """k = Constant<value = int64[1] {1}>()
           a, i = TopK<largest = 1>(x, k) b, j = TopK<largest = 0>(x, k)""",
    ],
)
def test_what_only_looks_alike_stays(body: str) -> None:
    before = parse(f"(float[2] x, float[2] z) => (y) {{ {body} y = Add(a, b) }}")
    assert show(run(before, "common-subexpressions").model) == show(before.model)


def test_an_output_gives_its_name_to_what_is_kept() -> None:
    before = parse("(float[2] x) => (y, z) { a = Tanh(x) y = Tanh(x) z = Neg(a) }")
    after = run(before, "common-subexpressions")
    assert show(after.model) == ["y = Tanh(x)", "z = Neg(y)"]
    assert fates(after)["a"] == "alias y"


def test_two_outputs_stay_two() -> None:
    before = parse("(float[2] x) => (y, z) { y = Tanh(x) z = Tanh(x) }")
    assert show(run(before, "common-subexpressions").model) == show(before.model)


def test_a_branch_uses_what_the_outer_graph_has() -> None:
    before = parse(
        """(float[2] x, bool c) => (float[2] y) {
            a = Tanh(x)
            b = If (c) <
                then_branch = t () => (float[2] p) { q = Tanh(x) p = Neg(q) },
                else_branch = e () => (float[2] r) { r = Tanh(x) }
            >
            y = Add(a, b)
        }"""
    )
    after = run(before, "common-subexpressions")
    assert show(after.model) == [
        "a = Tanh(x)",
        "b = If(c)",
        "  then_branch: p = Neg(a)",
        "  else_branch: r = Tanh(x)",
        "y = Add(a, b)",
    ]
    assert fates(after)["If_1.then_branch/q"] == "alias a"
    assert_same_results(before.model, after.model, random_feeds(before.model))


def test_one_branch_does_not_use_the_other() -> None:
    before = parse(
        """(float[2] x, bool c) => (float[2] y) {
            y = If (c) <
                then_branch = t () => (float[2] p) { q = Tanh(x) p = Neg(q) },
                else_branch = e () => (float[2] r) { q = Tanh(x) r = Exp(q) }
            >
        }"""
    )
    assert show(run(before, "common-subexpressions").model) == show(before.model)
