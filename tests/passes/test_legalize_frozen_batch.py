"""A batch that tracing froze."""

from __future__ import annotations

import numpy as np
import pytest
from tests.support.fusion import normal
from tests.support.models import parse
from tests.support.passes import run, show
from tests.support.runner import assert_same_results, run_plain

from cannc.compiler.core.unit import load


def opened(text, **weights):
    """Return a model before and after the pass."""
    before = load(parse(text, **weights))
    after = run(before, "unfreeze-batch")
    assert run(after, "unfreeze-batch").log[-1].applied == 0
    assert not [fate for fate in after.fates() if fate.kind == "unknown"]
    return before, after


@pytest.mark.parametrize("target", [[1, 12], [1, 4, 3], [1, -1, 2], [1, 0, -1]])
def test_a_reshape(target):
    dims = ", ".join(["N", "A", "B"][: len(target)])
    before, after = opened(
        f"g (float[N, 3, 4] x) => (float[{dims}] y) {{ r = Reshape(x, t) y = Relu(r) }}",
        t=np.array(target, np.int64),
    )
    one, four = normal(1, 3, 4), normal(4, 3, 4)
    assert_same_results(before.model, after.model, {"x": one})
    expected = [run_plain(before.model, {"x": four[i : i + 1]})["y"] for i in range(4)]
    np.testing.assert_array_equal(
        run_plain(after.model, {"x": four})["y"], np.concatenate(expected)
    )
    assert "now open" in after.log[-1].notes[0]


@pytest.mark.parametrize(
    ("outputs", "target"),
    [("float[1, A] y", [1, -1]), ("float[B, A] y", [6, -1]), ("float[B, 3, 4] y", [-1, 3, 4])],
)
def test_a_reshape_that_means_it_stays(outputs, target):
    perm = [1, 0] if len(target) == 2 else [0, 1, 2]
    text = f"""g (float[N, 3, 4] x) => ({outputs}) {{
        r = Reshape(x, t) y = Transpose<perm = {perm}>(r) }}"""
    _, after = opened(text, t=np.array(target, np.int64))
    assert after.log[-1].applied == 0


def test_a_table():
    before, after = opened(
        """g (int64[N, 2] i) => (float[N, 2] y) { y = GatherElements<axis = 1>(w, i) }""",
        w=normal(1, 5),
    )
    places = np.array([[0, 4], [2, 2], [1, 0]])
    assert_same_results(before.model, after.model, {"i": places[:1]})
    table = np.broadcast_to(normal(1, 5), (3, 5))
    np.testing.assert_array_equal(
        run_plain(after.model, {"i": places})["y"], np.take_along_axis(table, places, 1)
    )


def test_positions():
    before, after = opened(
        """g (float[N, 4, 3] x) => (float[N, 4, 3] y) {
            e = Expand(p, t) a = Gather(w, e) y = Add(a, x) }""",
        p=np.arange(4).reshape(1, 4),
        t=np.array([2, 4], np.int64),
        w=normal(4, 3),
    )
    assert_same_results(before.model, after.model, {"x": normal(2, 4, 3)})
    x = normal(3, 4, 3)
    np.testing.assert_array_equal(run_plain(after.model, {"x": x})["y"], normal(4, 3) + x)


def test_an_expand_that_decides_the_batch_stays():
    _, after = opened(
        "g (float[1, 4] x, float[2, 4] z) => (float[2, 4] y) { e = Expand(x, t) y = Add(e, z) }",
        t=np.array([2, 4], np.int64),
    )
    assert show(after.model) == ["e = Expand(x, t)", "y = Add(e, z)"]
