from __future__ import annotations

import logging

import numpy as np
import onnx_ir as ir
import pytest
from tests.support.models import parse

from cannc.compiler.core.graphs import walk
from cannc.compiler.core.shapes import ShapeTrial, infer_shapes, rank, static_shape
from cannc.compiler.core.unit import load


def _shapes(model: ir.Model) -> dict[str, str]:
    return {v.name or "": str(v.shape) for s in walk(model.graph) for v in s.node.outputs}


def test_symbolic_names_are_kept_through_shape_arithmetic() -> None:
    model = load(
        parse(
            """g (float[N, 6] x) => (y) <int64[1] i = {0}, int64[2] k = {2, 3}> {
                s = Shape(x) n = Gather(s, i) t = Concat<axis = 0>(n, k) r = Reshape(x, t)
                y = Relu(r)
            }"""
        )
    ).model
    assert infer_shapes(model)
    assert _shapes(model)["r"] == "[N,2,3]"
    assert model.graph.outputs[0].dtype == ir.DataType.FLOAT
    assert not infer_shapes(model)


def test_stale_inner_shapes_are_replaced() -> None:
    model = load(parse("g (float[3, 4] x) => (y) { a = Relu(x) y = Neg(a) }")).model
    model.graph[0].outputs[0].shape = ir.Shape([1, 4])
    infer_shapes(model)
    assert _shapes(model) == {"a": "[3,4]", "y": "[3,4]"}


def test_declared_output_shapes_stay() -> None:
    model = load(parse("g (float[3, 4] x) => (float[M, 4] y) { y = Neg(x) }")).model
    infer_shapes(model)
    assert _shapes(model) == {"y": "[M,4]"}


def test_a_contradicting_output_shape_is_corrected_and_said(
    caplog: pytest.LogCaptureFixture,
) -> None:
    model = load(parse("g (float[3, 4] x) => (float[1, 4] y) { y = Neg(x) }")).model
    with caplog.at_level(logging.WARNING):
        infer_shapes(model)
    assert _shapes(model) == {"y": "[3,4]"}
    assert "output 'y' is declared as [1,4] but is [3,4]" in caplog.text


def test_branches_and_functions_are_inferred() -> None:
    proto = parse(
        """<ir_version: 10, opset_import: ["" : 18, "my" : 1]>
        g (float[N, 2] x, bool c) => (y) {
            a = my.F(x)
            y = If (c) <
                then_branch = t () => (p) { q = Transpose(a) p = Neg(q) },
                else_branch = e () => (r) { r = Transpose(x) }
            >
        }
        <domain: "my", opset_import: ["" : 18]> F (x) => (y) { y = Concat<axis = 1>(x, x) }"""
    )
    model = load(proto).model
    infer_shapes(model)
    assert {k: _shapes(model)[k] for k in "aqpr"} == {
        "a": "[N,4]", "q": "[4,N]", "p": "[4,N]", "r": "[2,N]"
    }  # fmt: skip


def test_the_shape_of_an_undefined_operator_is_what_the_file_says() -> None:
    proto = parse(
        """<ir_version: 10, opset_import: ["" : 18, "my" : 1]>
        g (float[2] x) => (y) <float[7] a> { a = my.Op(x) y = Neg(a) }"""
    )
    model = load(proto).model
    assert model.graph[0].outputs[0].shape is not None
    infer_shapes(model)
    assert _shapes(model) == {"a": "[7]", "y": "[7]"}


def test_weights_are_not_read() -> None:
    model = load(
        parse("g (float[1, 512] x) => (y) { y = MatMul(x, w) }", w=np.ones((512, 4), "f"))
    ).model
    weight = model.graph.initializers["w"]

    def fail() -> ir.TensorProtocol:
        raise AssertionError("the weight was read")

    weight.const_value = ir.LazyTensor(fail, dtype=ir.DataType.FLOAT, shape=ir.Shape([512, 4]))
    infer_shapes(model)
    assert _shapes(model) == {"y": "[1,4]"}


def test_sequences_keep_their_type() -> None:
    model = load(
        parse(
            "g (float[2] x) => (y) { s = SequenceConstruct(x, x) y = SequenceAt(s, i) }",
            i=np.array(0),
        )
    ).model
    infer_shapes(model)
    assert isinstance(model.graph[0].outputs[0].type, ir.SequenceType)


def test_helpers_tell_unknown_from_empty() -> None:
    known = ir.Value(name="a", shape=ir.Shape([]))
    open_ = ir.Value(name="b", shape=ir.Shape(["N"]))
    unknown = ir.Value(name="c")
    assert [static_shape(v) for v in (known, open_, unknown, None)] == [(), None, None, None]
    assert [rank(v) for v in (known, open_, unknown, None)] == [0, 1, None, None]


def test_a_trial_judges_several_shapes_of_one_model():
    model = ir.from_proto(
        parse("g (float[N,4] a, float[M,4] b) => (float[N,4] y) { c = Relu (a) y = Add (c, b) }")
    )
    before = ir.to_proto(model).SerializeToString()
    trial = ShapeTrial(model)
    assert trial.conflict({}) is None
    assert trial.conflict({"a": (2, 4), "b": (2, 4)}) is None
    assert "Add" in trial.conflict({"a": (2, 4), "b": (3, 4)})
    assert trial.conflict({"a": (2, 4)}) is None  # nothing of the trial before is left
    assert ir.to_proto(model).SerializeToString() == before
