"""Which opset supports most nodes, and what to do about operators without a plugin."""

from __future__ import annotations

import pytest
from tests.support.models import mlp, parse

from cannc.compiler.core.unit import load
from cannc.op_support import advice
from cannc.op_support.advice import attribute_cure, cure_for, opset_advice
from cannc.passes.registry import PASSES


def test_the_models_own_opset_comes_first_among_equals() -> None:
    found = opset_advice(load(mlp()))
    assert found[0].opset == 18
    assert (found[0].supported, found[0].missing) == (5, {})
    assert len(found) == 11


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


def test_cures_name_passes_that_exist() -> None:
    tables = (advice._PASSES, advice._ATTRIBUTE_PASSES, advice._WHOLE_NODE_PASSES)
    named = {name for table in tables for name in table.values()}
    assert named <= set(PASSES)
    assert {"expand-contrib", "expand-definitions", "opset-to-18"} <= set(PASSES)


@pytest.mark.parametrize(
    ("key", "name"),
    [
        ("ai.onnx::Loop", "unroll-loop"),
        ("ai.onnx::Gelu", "opset-to-18"),
        ("ai.onnx::NegativeLogLikelihoodLoss", "expand-definitions"),
        ("com.microsoft::FusedMatMul", "expand-contrib"),
    ],
)
def test_cures_name_the_pass(key: str, name: str) -> None:
    assert f"pass {name})" in cure_for(key)


def test_nothing_is_promised_where_no_pass_helps() -> None:
    assert cure_for("ai.onnx::StringNormalizer") == ""
    assert attribute_cure("RoiAlign", "mode") == ""
