from __future__ import annotations

import pytest
from tests.support.passes import fates, parse, random_feeds, run, show
from tests.support.runner import assert_same_results

TEXT = """(float[2] x) => (float[2] y) <bool c = {CONDITION}> {
    y = If (c) <
        then_branch = t () => (float[2] p) <float w = {2.0}> { q = Mul(x, w) p = Relu(q) },
        else_branch = e () => (float[2] r) { q = Tanh(x) r = Neg(q) }
    >
}"""


@pytest.mark.parametrize(
    ("condition", "expected", "taken", "other"),
    [
        (1, ["q__constant-if = Mul(x, w)", "y = Relu(q__constant-if)"], "then", "else"),
        (0, ["q__constant-if = Tanh(x)", "y = Neg(q__constant-if)"], "else", "then"),
    ],
)
def test_the_branch_that_is_taken_stays(
    condition: int, expected: list[str], taken: str, other: str
) -> None:
    before = parse(TEXT.replace("CONDITION", str(condition)))
    after = run(before, "constant-if")
    assert show(after.model) == expected
    fate = fates(after)
    assert fate["y"] == "same"
    assert fate[f"If_0.{taken}_branch/q"] == "alias q__constant-if"
    assert fate[f"If_0.{other}_branch/q"] == "dead"
    assert_same_results(before.model, after.model, random_feeds(before.model))


def test_an_unknown_condition_stays() -> None:
    before = parse(
        TEXT.replace("(float[2] x)", "(float[2] x, bool c)").replace("<bool c = {CONDITION}>", "")
    )
    assert show(run(before, "constant-if").model) == show(before.model)


def test_names_that_only_the_branch_uses_are_kept() -> None:
    before = parse(
        """(float[2] x) => (float[2] y) <bool c = {1}> {
            y = If (c) <
                then_branch = t () => (float[2] p) { only = Tanh(x) p = Relu(only) },
                else_branch = e () => (float[2] r) { r = Neg(x) }
            >
        }"""
    )
    assert show(run(before, "constant-if").model) == ["only = Tanh(x)", "y = Relu(only)"]


def test_a_branch_that_passes_an_outer_value_on() -> None:
    before = parse(
        """(float[2] x) => (float[2] y) <bool c = {1}> {
            a = Tanh(x)
            b = If (c) <
                then_branch = t () => (float[2] p) { p = Identity(a) },
                else_branch = e () => (float[2] r) { r = Neg(a) }
            >
            y = Relu(b)
        }"""
    )
    after = run(before, "constant-if", "eliminate-identity")
    assert show(after.model) == ["a = Tanh(x)", "y = Relu(a)"]
    assert fates(after)["b"] == "alias a"


def test_nested_ifs_and_loops_keep_their_traces() -> None:
    before = parse(
        """(float[2] x, int64 n, bool k) => (float[2] y) <bool c = {1}> {
            y = If (c) <
                then_branch = t () => (float[2] p) {
                    p = If (c) <
                        then_branch = tt () => (float[2] pp) {
                            pp = Loop (n, k, x) <
                                body = b (int64 i, bool d, float[2] s) => (bool e, float[2] r) {
                                    e = Identity(d) u = Tanh(s) r = Relu(u)
                                }
                            >
                        },
                        else_branch = te () => (float[2] pe) { pe = Neg(x) }
                    >
                },
                else_branch = e () => (float[2] r) { r = Exp(x) }
            >
        }"""
    )
    after = run(before, "constant-if")
    assert show(after.model) == [
        "y = Loop(n, k, x)",
        "  body: e = Identity(d)",
        "  body: u = Tanh(s)",
        "  body: r = Relu(u)",
    ]
    kinds = fates(after)
    assert "unknown" not in kinds.values()
    assert sum(kind.startswith("alias Loop") for kind in kinds.values()) == 3
    assert_same_results(before.model, after.model, random_feeds(before.model))
