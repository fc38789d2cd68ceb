from __future__ import annotations

import pytest
from tests.support.passes import parse

from cannc.passes.pattern import (
    array_of,
    const,
    constant_of,
    ints_of,
    one_of,
    op,
    scalar,
    scalar_of,
    var,
)

SQUARED = op("Mul", var("x"), var("x"))


def _last(text: str):
    return parse(text).model.graph[-1]


def test_a_variable_at_two_places_is_one_value() -> None:
    assert list(SQUARED.find(_last("(float a) => (y) { y = Mul(a, a) }")))
    assert not list(SQUARED.find(_last("(float a, float b) => (y) { y = Mul(a, b) }")))


def test_commutative_operators_match_both_ways() -> None:
    pattern = op("Add", op("Relu", var("x")), const("k"))
    for order in ("Add(r, k)", "Add(k, r)"):
        node = _last(f"(float a) => (y) <float k = {{1.0}}> {{ r = Relu(a) y = {order} }}")
        (match,) = pattern.find(node)
        assert (match["x"].name, match["k"].name) == ("a", "k")
        assert [n.op_type for n in match.nodes] == ["Relu", "Add"]
        assert match.root is node


def test_other_operators_match_one_way() -> None:
    pattern = op("Sub", const("k"), var("x"))
    text = "(float a) => (y) <float k = {1.0}> { y = Sub(a, k) }"
    assert not list(pattern.find(_last(text)))


def test_every_way_is_offered() -> None:
    node = _last("(float a, float b) => (y) { p = Relu(a) q = Relu(b) y = Add(p, q) }")
    pattern = op("Add", op("Relu", var("one")), op("Relu", var("two")))
    found = [(m["one"].name, m["two"].name) for m in pattern.find(node)]
    assert found == [("a", "b"), ("b", "a")]


def test_scalars_match_by_number() -> None:
    node = _last("(float[2] a) => (y) <float[1, 1] k = {0.5001}> { y = Mul(a, k) }")
    assert list(op("Mul", var("x"), scalar(0.5)).find(node))
    assert not list(op("Mul", var("x"), scalar(0.51)).find(node))
    (match,) = op("Mul", var("x"), scalar(name="half")).find(node)
    assert scalar_of(match["half"]) == pytest.approx(0.5001)


def test_zero_matches_zero_only() -> None:
    node = _last("(float a) => (y) <float k = {0.0001}> { y = Mul(a, k) }")
    assert not list(op("Mul", var("x"), scalar(0.0)).find(node))


def test_alternatives_are_tried_in_order() -> None:
    pattern = op("Neg", one_of(op("Relu", var("x"), name="relu"), var("any")))
    first, second = pattern.find(_last("(float a) => (y) { r = Relu(a) y = Neg(r) }"))
    assert first.named["relu"].op_type == "Relu"
    assert second["any"].name == "r"


def test_further_inputs_must_be_allowed() -> None:
    node = _last("(float[2] a) => (y) <int64[1] k = {0}> { y = ReduceMean(a, k) }")
    assert not list(op("ReduceMean", var("x")).find(node))
    assert list(op("ReduceMean", var("x"), rest=True).find(node))


def test_only_the_first_output_matches() -> None:
    node = _last("(float[2] a) => (y) <int64[1] k = {1}> { v, i = TopK(a, k) y = Neg(i) }")
    assert not list(op("Neg", op("TopK", var("x"), var("k"))).find(node))


def test_operators_of_other_domains_do_not_match() -> None:
    unit = parse("(float a) => (y) { y = my.Relu(a) }", imports=', "my" : 1')
    assert not list(op("Relu", var("x")).find(unit.model.graph[0]))


@pytest.mark.parametrize(
    ("body", "outputs", "leaks"),
    [
        ("r = Relu(a) y = Neg(r)", "y", None),
        ("r = Relu(a) z = Exp(r) y = Neg(r)", "y, z", "r"),
        ("r = Relu(a) y = Neg(r)", "y, r", "r"),
    ],
)
def test_leaks_are_found(body: str, outputs: str, leaks: str | None) -> None:
    (match,) = op("Neg", op("Relu", var("x"))).find(_last(f"(float a) => ({outputs}) {{ {body} }}"))
    leak = match.leak()
    assert (leak.name if leak else None) == leaks


def test_a_shared_inner_node_counts_once() -> None:
    inner = op("Relu", var("x"))
    (match, *_) = op("Mul", inner, inner).find(
        _last("(float a) => (y) { r = Relu(a) y = Mul(r, r) }")
    )
    assert [node.op_type for node in match.nodes] == ["Relu", "Mul"]


def test_constants_are_initializers_and_constant_nodes() -> None:
    graph = parse(
        """(float a, float i) => (y) <
            float i = {1.0}, float[3] w = {1.0, 2.0, 3.0}, int64[2] n = {4, 5}
        > {
            c = Constant<value_float = 2.0>() b = Neg(a) y = Sum(a, i, w, n, c, b)
        }"""
    ).model.graph
    a, i, w, n, c, b = graph[-1].inputs
    assert [constant_of(value) is not None for value in (a, i, w, c, b)] == [
        False, True, True, True, False
    ]  # fmt: skip
    assert scalar_of(c) == 2.0
    assert scalar_of(w) is None
    assert array_of(w, max_elements=2) is None
    assert ints_of(n) == [4, 5]
    assert ints_of(w) is None
    assert constant_of(None) is None
