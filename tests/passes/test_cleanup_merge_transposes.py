from __future__ import annotations

import pytest
from tests.support.passes import fates, parse, random_feeds, run, show
from tests.support.runner import assert_same_results


def test_two_transposes_become_one() -> None:
    before = parse(
        """(float[2, 3, 4] x) => (y) {
            a = Transpose<perm = [1, 2, 0]>(x) b = Transpose<perm = [0, 2, 1]>(a) y = Relu(b)
        }"""
    )
    after = run(before, "merge-transposes")
    assert show(after.model) == ["b = Transpose(x) {perm: (1, 0, 2)}", "y = Relu(b)"]
    inner = {fate.value: fate for fate in after.fates()}["a"]
    assert (inner.kind, inner.target, inner.perm) == ("alias", "x", (1, 2, 0))
    assert_same_results(before.model, after.model, random_feeds(before.model))


def test_opposite_transposes_vanish() -> None:
    before = parse("(float[2, 3] x) => (y) { a = Transpose(x) b = Transpose(a) y = Relu(b) }")
    after = run(before, "merge-transposes")
    assert show(after.model) == ["y = Relu(x)"]
    assert fates(after)["b"] == "alias x"


def test_an_inner_transpose_with_another_reader_stays() -> None:
    before = parse(
        """(float[2, 3] x) => (y, z) {
            a = Transpose(x) b = Transpose(a) y = Relu(b) z = Neg(a)
        }"""
    )
    after = run(before, "merge-transposes")
    assert show(after.model) == ["a = Transpose(x)", "y = Relu(x)", "z = Neg(a)"]
    assert_same_results(before.model, after.model, random_feeds(before.model))


def test_both_transposes_may_be_outputs() -> None:
    before = parse("(float[2, 3] x) => (a, b) { c = Relu(x) a = Transpose(c) b = Transpose(a) }")
    after = run(before, "merge-transposes")
    assert show(after.model) == ["b = Relu(x)", "a = Transpose(b)"]
    assert_same_results(before.model, after.model, random_feeds(before.model))


def test_an_input_transposed_twice_into_an_output_keeps_the_name() -> None:
    before = parse("(float[2, 3] x) => (y) { a = Transpose(x) y = Transpose(a) }")
    after = run(before, "merge-transposes")
    assert show(after.model) == ["y = Identity(x)"]
    assert_same_results(before.model, after.model, random_feeds(before.model))


def test_default_perm_of_unknown_rank_is_left() -> None:
    before = parse(
        "(float x, int64[K] s) => (y) { a = Expand(x, s) b = Transpose(a) y = Transpose(b) }"
    )
    assert show(run(before, "merge-transposes").model) == show(before.model)


@pytest.mark.parametrize(
    ("inner", "target", "expected"),
    [
        ("s = Constant<value = int64[1] {6}>() a = Reshape(x, s)", "3, 2", [3, 2]),
        ("a = Flatten<axis = 0>(x)", "3, -1", [3, -1]),
        ("s = Constant<value = int64[1] {0}>() a = Unsqueeze(x, s)", "6, 1", [6, 1]),
        ("s = Constant<value = int64[2] {3, 2}>() a = Reshape(x, s)", "0, -1", [3, -1]),
    ],
)
def test_a_chain_of_reshapes_becomes_one(inner: str, target: str, expected: list[int]) -> None:
    before = parse(
        f"""(float[2, 3] x) => (y) {{
            {inner} t = Constant<value = int64[2] {{{target}}}>() b = Reshape(a, t) y = Relu(b)
        }}"""
    )
    after = run(before, "fold-constants", "merge-transposes")
    first, second = show(after.model)
    assert (first[:14], second) == ("b = Reshape(x,", "y = Relu(b)")
    shape = after.model.graph[0].inputs[1]
    assert shape is not None
    assert shape.const_value is not None
    assert shape.const_value.numpy().tolist() == expected
    assert fates(after)["a"] == "inside"
    assert_same_results(before.model, after.model, random_feeds(before.model))


def test_a_copied_dim_of_unknown_size_is_left() -> None:
    before = parse(
        """(float[N, 4] x) => (y) {
            s = Constant<value = int64[2] {-1, 2}>() t = Constant<value = int64[3] {0, 2, 1}>()
            a = Reshape(x, s) y = Reshape(a, t)
        }"""
    )
    assert show(run(before, "merge-transposes").model) == show(before.model)
