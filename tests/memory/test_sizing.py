"""Shapes at given sizes, against what a run really produces."""

import numpy as np
import pytest
from tests.support.models import parse

from cannc.compiler.core.errors import UsageError
from cannc.compiler.core.unit import load
from cannc.compiler.memory.sizing import dim_sizes, forms_at, largest, open_dims
from cannc.compiler.runtime.host_session import HostSession

COMPUTED = """g (float[N, S] x, float[N, 3] z) => (y) {
    shape = Shape(x)
    n = Gather <axis: int = 0> (shape, zero)
    s = Gather <axis: int = 0> (shape, one)
    twice = Mul(s, two)
    stop = Squeeze(twice)
    positions = Range(start, stop, step)
    count = Shape(positions)
    target = Concat <axis: int = 0> (n, count)
    column = ReduceMax <keepdims: int = 1> (x, axis)
    wide = Expand(column, target)
    y = Exp(wide)
}"""
SCALARS = {
    "zero": np.array([0], np.int64),
    "one": np.array([1], np.int64),
    "two": np.array([2], np.int64),
    "axis": np.array([1], np.int64),
    "start": np.array(0, np.int64),
    "step": np.array(1, np.int64),
}


def test_shapes_that_are_computed_are_found_and_the_model_is_untouched():
    model = load(parse(COMPUTED, **SCALARS)).model
    before = [(v.name, str(v.shape)) for node in model.graph for v in node.outputs]
    forms = forms_at(model, {"x": (3, 5), "z": (3, 3)})
    taps = ["positions", "target", "column", "wide"]
    feeds = {"x": np.ones((3, 5), np.float32), "z": np.ones((3, 3), np.float32)}
    run = HostSession(model, taps=taps, fuse=False).run(feeds)
    assert {name: forms[name].shape for name in run} == {n: a.shape for n, a in run.items()}
    assert {name: forms[name].dtype.numpy() for name in run} == {n: a.dtype for n, a in run.items()}
    assert before == [(v.name, str(v.shape)) for node in model.graph for v in node.outputs]


def test_a_size_that_is_given_for_one_input_holds_for_the_others():
    model = load(parse(COMPUTED, **SCALARS)).model
    assert dim_sizes(model, {"x": (3, 5)}) == {"N": 3, "S": 5}
    assert open_dims(model, {"x": (3, 5)}) == []
    assert open_dims(model, {"z": (3, 3)}) == ["S"]
    assert forms_at(model, {"x": (3, 5)})["z"].shape == (3, 3)
    with pytest.raises(UsageError) as caught:
        dim_sizes(model, {"x": (3, 5), "z": (4, 3)})
    assert caught.value.code == "MEM003"


def test_dims_without_a_name_are_named_by_place():
    model = load(parse("g (float[?, 4] x) => (y) { y = Exp(x) }")).model
    assert open_dims(model, {}) in (["x[0]"], ["?"])


@pytest.mark.parametrize(
    ("rows", "kept"),
    [
        ([(1, 4), (2, 4), (2, 2)], [(2, 4)]),
        ([(1, 8), (8, 1)], [(1, 8), (8, 1)]),
        ([(2, 2), (2, 2)], [(2, 2)]),
    ],
)
def test_gears_that_another_covers_are_left_out(rows, kept):
    assert [gear["x"] for gear in largest([{"x": row} for row in rows])] == kept


def test_shapes_are_found_inside_functions_that_compute_them():
    text = """<ir_version: 10, opset_import: ["" : 18, "npu" : 1]>
    g (float[2, N] x) => (y) {
        h = npu.Half(x)
        y = Exp(h)
    }
    <domain: "npu", opset_import: ["" : 18]>
    Half (x) => (y) {
        zero = Constant <value_ints = [0]> ()
        one = Constant <value_ints = [1]> ()
        two = Constant <value_ints = [2]> ()
        width = Shape <start = 1> (x)
        middle = Div(width, two)
        y = Slice(x, zero, middle, one)
    }"""
    model = load(parse(text)).model
    forms = forms_at(model, {"x": (2, 10)})
    assert forms["h"].shape == forms["y"].shape == (2, 5)
    assert [node.op_type for node in model.graph] == ["Half", "Exp"]
