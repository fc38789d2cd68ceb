from __future__ import annotations

import numpy as np
from tests.support.passes import parse, random_feeds, run, show
from tests.support.runner import assert_same_results


def test_equal_weights_are_stored_once() -> None:
    before = parse(
        """(float[2] x) => (y) <float[2] v = {1.0, 2.0}, float[2] w = {1.0, 2.0}> {
            a = Mul(x, v) y = Add(a, w)
        }"""
    )
    after = run(before, "deduplicate-initializers")
    assert show(after.model) == ["a = Mul(x, v)", "y = Add(a, v)"]
    assert list(after.model.graph.initializers) == ["v"]
    assert_same_results(before.model, after.model, random_feeds(before.model))


def test_equal_bytes_of_another_kind_stay() -> None:
    before = parse(
        """(float[2] x) => (y, z) <
            float[2] v = {0.0, 0.0}, int32[2] i = {0, 0}, float[1, 2] w = {0.0, 0.0},
            float[2] n = {-0.0, 0.0}
        > { a = Add(x, v) b = Add(a, w) y = Add(b, n) z = Neg(i) }"""
    )
    after = run(before, "deduplicate-initializers")
    assert set(after.model.graph.initializers) == {"v", "i", "w", "n"}


def test_not_a_number_equals_itself_by_its_bytes() -> None:
    before = parse(
        """(float[1] x) => (y) <float[1] v = {1.0}, float[1] w = {1.0}> {
            a = Add(x, v) y = Add(a, w)
        }"""
    )
    for name in ("v", "w"):
        value = before.model.graph.initializers[name]
        assert value.const_value is not None
        value.const_value.numpy()[0] = np.nan
    assert list(run(before, "deduplicate-initializers").model.graph.initializers) == ["v"]


def test_an_initializer_that_is_an_input_stays() -> None:
    before = parse(
        """(float x, float w) => (y) <float v = {1.0}, float w = {1.0}> {
            a = Mul(x, v) y = Add(a, w)
        }"""
    )
    after = run(before, "deduplicate-initializers")
    assert "w" in after.model.graph.initializers
    assert [value.name for value in after.model.graph.inputs] == ["x", "w"]
    assert_same_results(before.model, after.model, {"x": np.array(3, np.float32)})


def test_a_weight_of_one_branch_does_not_serve_another() -> None:
    before = parse(
        """(float x, bool c) => (float y) {
            y = If (c) <
                then_branch = t () => (float p) <float v = {1.0}> { p = Add(x, v) },
                else_branch = e () => (float r) <float w = {1.0}> { r = Sub(x, w) }
            >
        }"""
    )
    assert show(run(before, "deduplicate-initializers").model) == show(before.model)


def test_a_weight_of_the_main_graph_serves_a_branch() -> None:
    before = parse(
        """(float x, bool c) => (float y) <float k = {1.0}> {
            a = Add(x, k)
            y = If (c) <
                then_branch = t () => (float p) <float v = {1.0}> { p = Add(a, v) },
                else_branch = e () => (float r) { r = Sub(a, k) }
            >
        }"""
    )
    after = run(before, "deduplicate-initializers")
    assert "  then_branch: p = Add(a, k)" in show(after.model)
    assert_same_results(before.model, after.model, random_feeds(before.model))
