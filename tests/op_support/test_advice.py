"""Which opset supports most nodes, and what to do about operators without a plugin."""

from __future__ import annotations

from tests.support.models import mlp, parse

from cannc.compiler.core.unit import load
from cannc.op_support.advice import cure_for, opset_advice
from cannc.op_support.table import operators


def test_the_models_own_opset_comes_first_among_equals() -> None:
    advice = opset_advice(load(mlp()))
    assert advice[0].opset == 18
    assert (advice[0].supported, advice[0].missing) == (5, {})
    assert len(advice) == 11


def test_the_opset_that_supports_most_nodes_comes_first() -> None:
    text = """<ir_version: 10, opset_import: ["" : 20]>
    g (float[2, 3] x) => (float[2, 3] y) {
        a = ReduceL2 <keepdims: int = 1> (x)
        b = HardSwish(a)
        y = Gelu(b)
    }"""
    best = opset_advice(load(parse(text)))[0]
    assert best.opset == 17
    assert (best.supported, best.missing) == (2, {"Gelu": 1})


def test_nodes_in_branches_count() -> None:
    text = """g (bool c, float[1] x) => (float[1] y) {
        y = If (c) <
            then_branch = t () => (float[1] a) { a = Mish(x) },
            else_branch = e () => (float[1] b) { b = Relu(x) }
        >
    }"""
    by_opset = {a.opset: a.missing for a in opset_advice(load(parse(text)))}
    assert by_opset[18] == {}
    assert by_opset[17] == {"Mish": 1}


def test_cures() -> None:
    assert "unroll" in cure_for("ai.onnx::Loop")
    assert "contrib" in cure_for("com.microsoft::FusedMatMul")
    assert "outside" in cure_for("ai.onnx.ml::TreeEnsemble")
    assert cure_for("mine::Thing") == ""


def test_cures_name_only_operators_without_a_plugin() -> None:
    from cannc.op_support.advice import _CURES

    for op_type in _CURES:
        row = operators().get(f"ai.onnx::{op_type}")
        assert row is not None, op_type
        assert row.status == "unregistered", op_type
