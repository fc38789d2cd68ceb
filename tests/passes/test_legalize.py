"""Cures for operators that the target refuses or gets wrong."""

import numpy as np
import pytest
from tests.support.fusion import fuse
from tests.support.models import parse

from cannc.compiler.core.target import Target
from cannc.op_support.checker import check

X = np.random.default_rng(3).normal(size=(2, 3, 4)).astype(np.float32)


def reduction(op_type, axes="axes", attributes="<keepdims=0>", opset=18):
    return parse(
        f"""<ir_version: 10, opset_import: ["" : {opset}]>
        g (float[2, 3, 4] x) => (float[A, B] y) {{ y = {op_type} {attributes} (x, {axes}) }}""",
        axes=np.array([-1], np.int64),
    )


@pytest.mark.parametrize("op_type", ["ReduceL1", "ReduceL2", "ReduceSumSquare"])
def test_norm_reductions_are_written_out(op_type):
    result = fuse(reduction(op_type), "expand-reduce-norms", feeds={"x": X})
    assert result.ops["ReduceSum"] == 1
    assert result.ops[op_type] == 0
    assert check(result.unit, Target.parse(None)).refused == []


def test_without_axes_everything_is_reduced():
    model = parse("g (float[2, 3, 4] x) => (float[1, 1, 1] y) { y = ReduceL2(x) }")
    result = fuse(model, "expand-reduce-norms", feeds={"x": X})
    assert result.ops == {"Mul": 1, "ReduceSum": 1, "Sqrt": 1}


def test_reductions_that_the_parser_takes_stay():
    model = parse("g (float[2, 3, 4] x) => (float[1, 1, 1] y) { y = ReduceSumSquare(x) }")
    result = fuse(model, "expand-reduce-norms", feeds={"x": X})
    assert result.ops == {"ReduceSumSquare": 1}
    assert result.refusals == ()


def test_integer_reductions_are_refused_with_the_reason():
    model = parse("g (int32[2, 3] x) => (int32[1, 1] y) { y = ReduceL1(x) }")
    result = fuse(model, "expand-reduce-norms", feeds={"x": np.ones((2, 3), np.int32)})
    assert "only floating-point" in result.refusals[0]


@pytest.mark.parametrize(
    ("attributes", "written"),
    [
        ("start=1", 1),
        ("start=0, end=2", 1),
        ("start=-2, end=-1", 1),
        ("start=5", 1),
        ("start=0", 0),
        ("end=3", 0),
        ("end=7", 0),
    ],
)
def test_shape_ranges(attributes, written):
    text = f"g (float[A, B, C] x) => (int64[D] y) {{ y = Shape <{attributes}> (x) }}"
    result = fuse(parse(text), "expand-shape-range", feeds={"x": X})
    assert result.ops["Slice"] == written
    assert result.ops["Shape"] == 1
