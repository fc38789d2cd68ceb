"""Rules of users: written in a file, checked, verified, traced."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir
import pytest
from tests.support.models import parse, save
from tests.support.runner import assert_same_results

import cannc
from cannc.compiler.cli.main import main
from cannc.compiler.core.errors import CanncError, UsageError

RELU6 = """
from cannc import rule

def pattern(op, x):
    return op.Min(op.Relu(x), 6.0)

def replacement(op, x):
    return op.Clip(x, 0.0, 6.0)

relu6 = rule(pattern, replacement)
"""
MODEL = """g (float[N, 4] x) => (float[N, 4] y, float[N, 4] z) <float six = {6.0}> {
    r = Relu(x) c = Min(six, r) y = Neg(c) t = Relu(y) z = Min(t, six)
}"""
X = {"x": np.linspace(-9, 9, 12, dtype=np.float32).reshape(3, 4)}


def rules(tmp_path, text, name="my.py"):
    path = tmp_path / name
    path.write_text(text)
    return [path]


def ops(unit):
    return [node.op_type for node in unit.model.graph]


def test_a_rule_is_applied_verified_and_traced(tmp_path):
    before = cannc.load(parse(MODEL))
    unit = cannc.optimize(parse(MODEL), "O1", rules=rules(tmp_path, RELU6))
    assert ops(unit) == ["Clip", "Neg", "Clip"]
    assert_same_results(before.model, unit.model, X, rtol=0, atol=0)
    (stage,) = (s for s in unit.log if s.name == "rule-relu6" and s.applied)
    assert stage.applied == 2
    fates = {f.value: (f.kind, f.target) for f in unit.fates()}
    assert fates["r"] == ("inside", unit.model.graph[0].name)
    assert fates["c"] == ("same", "")
    assert "unknown" not in {kind for kind, _ in fates.values()}
    again = cannc.optimize(unit, "O1", rules=rules(tmp_path, RELU6))
    assert ops(again) == ops(unit)


def test_inner_values_that_others_read_are_left_alone(tmp_path):
    text = """g (float[4] x) => (float[4] y, float[4] r) <float six = {6.0}> {
        r = Relu(x) y = Min(r, six)
    }"""
    unit = cannc.optimize(parse(text), rules=rules(tmp_path, RELU6))
    assert ops(unit) == ["Relu", "Min"]
    assert "inner value r is a graph output" in str([s.refusals for s in unit.log])


def test_a_rule_that_changes_numbers_is_undone(tmp_path):
    wrong = RELU6.replace("Clip(x, 0.0, 6.0)", "Clip(x, 0.0, 5.9)")
    unit = cannc.optimize(parse(MODEL), rules=rules(tmp_path, wrong), inputs=X)
    assert "Clip" not in ops(unit)
    (stage,) = (s for s in unit.log if s.rolled_back)
    assert stage.name == "rule-relu6"
    with pytest.raises(CanncError) as caught:
        cannc.optimize(parse(MODEL), rules=rules(tmp_path, wrong), inputs=X, strict=True)
    assert caught.value.fix.startswith("correct the rule")


@pytest.mark.parametrize(
    "replacement",
    ["op.Reshape(x, np.array([7]))", "op.Cast(x, to=10)", "op.NoSuchOperator(x)", "op.Relu(x, x)"],
)
def test_a_rule_that_breaks_the_graph_is_undone(tmp_path, replacement):
    text = "import numpy as np\n" + RELU6.replace("op.Clip(x, 0.0, 6.0)", replacement)
    unit = cannc.optimize(parse(MODEL), rules=rules(tmp_path, text), inputs=X)
    assert ops(unit) == ["Relu", "Min", "Neg", "Relu", "Min"]
    assert [s.name for s in unit.log if s.rolled_back] == ["rule-relu6"]


def test_conditions_attributes_constants_and_absent_inputs(tmp_path):
    text = """
from cannc import rule

def pattern(op, x, w):
    return op.Transpose(op.Clip(op.Add(x, w), 0.0, None), perm=[1, 0])

def replacement(op, x, w):
    return op.Relu(op.Add(op.Transpose(x, perm=[1, 0]), op.Transpose(w, perm=[1, 0])))

def square(x, w):
    return True if x.shape[0] == x.shape[1] else f"{x.name} is not square"

early_transpose = rule(pattern, replacement, condition=square)
"""
    body = """{ a = Add(w, x) c = Clip(a, zero, ) t = Transpose<perm = [1, 0]>(c) y = Neg(t) }"""
    body = body.replace(", )", ")")
    head = "g (float[{n}, 3] x, float[{n}, 3] w) => (float[3, {n}] y) <float zero = {{0.0}}> "
    model = parse(head.format(n=3) + body)
    unit = cannc.optimize(model, "O1", rules=rules(tmp_path, text))
    assert "Clip" in ops(unit)  # the maximum is not given as absent, it is not there at all
    text = text.replace(", None)", ")")
    unit = cannc.optimize(model, "O1", rules=rules(tmp_path, text))
    assert ops(unit) == ["Transpose", "Transpose", "Add", "Relu", "Neg"]
    unit = cannc.optimize(parse(head.format(n=2) + body), "O1", rules=rules(tmp_path, text))
    assert "is not square" in str([s.refusals for s in unit.log])


def test_fused_operators_of_a_rule_get_their_body_and_need_a_kernel(tmp_path):
    text = """
from cannc import rule
gelu = rule(
    lambda op, x: op.Mul(x, op.Sigmoid(op.Mul(x, 1.702))),
    lambda op, x: op.{name}(x, _domain="npu"),
)
"""
    model = parse("""g (float[2, 8] x) => (float[2, 8] y) <float k = {1.702}> {
        m = Mul(x, k) s = Sigmoid(m) y = Mul(x, s)
    }""")
    unit = cannc.optimize(model, "O0", rules=rules(tmp_path, text.format(name="NPUFastGelu")))
    assert ops(unit) == ["NPUFastGelu"]
    assert ("npu", "NPUFastGelu", "") in unit.model.functions
    unit = cannc.optimize(model, "O0", rules=rules(tmp_path, text.format(name="NPUNothing")))
    assert ops(unit) == ["Mul", "Sigmoid", "Mul"]


@pytest.mark.parametrize(
    ("text", "code", "hint"),
    [
        ("def broken(:", "RULE001", "SyntaxError"),
        ("import nothing_like_it", "RULE001", "ModuleNotFoundError"),
        ("x = 1", "RULE001", "holds no rule"),
        (
            "from cannc import rule\nr = rule(lambda op, x: x, lambda op, x: x)",
            "RULE001",
            "my.py:2",
        ),
        (
            "from cannc import rule\nr = rule(lambda op, x: op.Neg(x), lambda op, y: y)",
            "RULE001",
            "the replacement takes",
        ),
        (RELU6.replace("op.Clip(x, 0.0, 6.0)", "1 / 0"), "RULE002", "my.py:8, at node"),
        (RELU6.replace("op.Clip(x, 0.0, 6.0)", "None"), "RULE002", "returned a NoneType"),
        (RELU6.replace("op.Clip(x, 0.0, 6.0)", "op.Clip(x, 'a')"), "RULE002", "cannot be a str"),
    ],
)
def test_errors_say_where(tmp_path, text, code, hint):
    with pytest.raises(UsageError) as caught:
        cannc.optimize(parse(MODEL), rules=rules(tmp_path, text), inputs=X)
    assert caught.value.code == code
    assert hint in str(caught.value)


def test_unverified_rules_that_break_the_graph_are_the_users_fault(tmp_path):
    text = RELU6.replace("op.Clip(x, 0.0, 6.0)", "op.Clip(op.my(x, _domain='my'), 0.0)")
    with pytest.raises(UsageError) as caught:
        cannc.optimize(parse(MODEL), rules=rules(tmp_path, text), verify="none")
    assert caught.value.code == "RULE003"


def test_the_command_writes_nothing_when_strict(tmp_path, capsys):
    path = save(parse(MODEL), tmp_path / "m.onnx")
    np.savez(tmp_path / "in.npz", **X)
    wrong = rules(tmp_path, RELU6.replace("6.0)\n\nrelu6", "5.0)\n\nrelu6"))[0]
    out = tmp_path / "o.onnx"
    arguments = ["optimize", str(path), "-o", str(out), "--rules", str(wrong)]
    arguments += ["--inputs", str(tmp_path / "in.npz")]
    assert main([*arguments, "--strict"]) == 1
    assert not out.exists()
    assert "rule-relu6" in capsys.readouterr().err
    assert main(arguments) == 0
    assert "undone: rule-relu6" in capsys.readouterr().out
    assert ir.load(out).graph[0].op_type == "Relu"
    assert main([*arguments, "--rules", str(tmp_path / "none.py")]) == 2
