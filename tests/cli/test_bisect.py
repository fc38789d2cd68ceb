"""``cannc bisect`` on real builds."""

import json

import numpy as np
import pytest
from tests.support.models import mlp, parse, save

from cannc.compiler.bisection import Plan, Rebuilder, find_fault
from cannc.compiler.cli.main import main
from cannc.compiler.core.unit import load
from cannc.golden.bisect import Choice

OVERFLOW = """m (float[2, 4] x) => (float[2, 4] y) {
    a = Neg(x)
    b = Mul(a, a)
    c = Mul(b, x)
    y = Div(c, b)
}"""
FEEDS = {"x": np.float32([[300, 301, 302, 303], [400, 401, 402, 403]])}


def run(*arguments):
    return main([str(argument) for argument in arguments])


def test_the_overflowing_layer_is_found_and_reproduced(tmp_path, capsys):
    model = save(parse(OVERFLOW), tmp_path / "m.onnx")
    np.savez(tmp_path / "in.npz", **FEEDS)
    out = tmp_path / "found"
    arguments = ["bisect", model, "-o", out, "--precision", "fp16", "--json", "-"]
    assert run(*arguments, "--inputs", tmp_path / "in.npz") == 1
    facts = json.loads(capsys.readouterr().out)
    assert facts["complete"]
    assert set(facts["choices"]) <= {"fp16:Mul_1", "fp16:Mul_2"}
    assert facts["layer"] in ("Mul_1", "Mul_2")
    assert facts["bytes"] < 2**20
    assert facts["replay"].startswith("cannc compare ")
    assert run(*facts["replay"].split()[1:]) == 1


def test_nothing_to_find(tmp_path, capsys):
    model = save(mlp(), tmp_path / "m.onnx")
    np.savez(tmp_path / "in.npz", x=np.ones((2, 8), np.float32))
    arguments = ["bisect", model, "-o", tmp_path / "found", "--inputs", tmp_path / "in.npz"]
    assert run(*arguments, "--precision", "fp16") == 0
    assert "nothing breaks the threshold" in capsys.readouterr().out


def test_one_quantized_layer():
    model = mlp()
    weight = next(t for t in model.graph.initializer if t.name == "w1")
    values = np.frombuffer(weight.raw_data, np.float32).reshape(8, 16).copy()
    values[0] *= 2000  # one row takes all of the scale, and is not even used
    weight.raw_data = values.tobytes()
    plan = Plan(precision="keep", scheme="w8a16")
    x = {"x": np.float32(np.random.default_rng(0).standard_normal((3, 8)))}
    x["x"][:, 0] = 0
    result = find_fault(model, plan, inputs=x)
    assert [choice.kind for choice in result.found.choices] == ["quant"]
    assert result.found.choices[0].name == "MatMul_0"
    assert result.minimal.layer in ("MatMul_0", "Add_1")


def test_builds_do_only_what_was_chosen():
    unit = load(mlp())
    rebuild = Rebuilder(unit, Plan(precision="fp16", scheme="w8a16"))
    kinds = {choice.kind for choice in rebuild.choices}
    assert {"fp16", "quant"} <= kinds
    nothing = rebuild(frozenset())
    assert {v.dtype.name for v in nothing.model.graph.initializers.values()} == {"FLOAT"}
    one = rebuild(frozenset({Choice("quant", "MatMul_0")}))
    stored = [v.dtype.name for v in one.model.graph.initializers.values()]
    assert stored.count("INT8") == 1
    everything = rebuild(frozenset(rebuild.choices))
    stored = [v.dtype.name for v in everything.model.graph.initializers.values()]
    assert stored.count("INT8") == 2
    assert "FLOAT16" in stored


@pytest.mark.parametrize("text", ["cosine", "cosin=1"])
def test_bad_thresholds(tmp_path, text, capsys):
    model = save(mlp(), tmp_path / "m.onnx")
    assert run("bisect", model, "-o", tmp_path / "f", "--threshold", text) == 2
    assert "error[C" in capsys.readouterr().err
