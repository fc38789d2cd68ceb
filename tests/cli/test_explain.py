"""optimize --explain and --evaluate."""

from __future__ import annotations

import json

import numpy as np
import pytest
from tests.support.models import parse, save

import cannc
from cannc.compiler.cli.main import main
from cannc.compiler.core.target import Target
from cannc.passes.ge_fusions import FUSIONS, regions

GELU = """g (float[2, 8] x) => (float[2, 8] y) <
    float r = {1.4142135}, float o = {1.0}, float h = {HALF}, float[8] b = {1,2,3,4,5,6,7,8}
> { m = MatMul(x, w) v = Add(m, b)
    d = Div(v, r) e = Erf(d) a = Add(e, o) p = Mul(v, a) q = Mul(p, h) i = Identity(q) y = Tanh(i) }
"""


def model(half=0.5):
    return parse(GELU.replace("HALF", str(half)), w=np.eye(8, dtype=np.float32))


def explain(tmp_path, capsys, source, *options):
    path = save(source, tmp_path / "m.onnx")
    assert main(["optimize", str(path), "--evaluate", "--json", "-", *options]) == 0
    return json.loads(capsys.readouterr().out)["explanation"]


def test_evaluate_lists_what_applies_and_writes_nothing(tmp_path, capsys):
    path = save(model(), tmp_path / "m.onnx")
    before = path.read_bytes()
    out = tmp_path / "o.onnx"
    assert main(["optimize", str(path), "-o", str(out), "--evaluate"]) == 0
    text = capsys.readouterr().out
    assert "nothing written" not in text or not out.exists()
    assert "fuse-gelu" in text
    assert [p.name for p in tmp_path.iterdir()] == ["m.onnx"]
    assert path.read_bytes() == before
    found = explain(tmp_path, capsys, model())
    forms = {row["source"]: row["what"] for row in found["applied"]}
    assert forms["fuse-gelu"] == "Div, Erf, Add, 2 Mul -> NPUGeluV2"
    assert found["missed"] == []


def test_the_nearest_miss_says_what_does_not_fit(tmp_path, capsys):
    found = explain(tmp_path, capsys, model(0.55))
    assert [(row["source"], row["what"]) for row in found["missed"]] == [
        ("fuse-gelu", "the constant 0.55 stands where the constant 0.5 should")
    ]


@pytest.mark.parametrize(
    ("soc", "mark", "met"), [("Ascend910B4", "sure", True), ("Ascend310P3", "sure", False)]
)
def test_fusions_of_ge_by_target(tmp_path, capsys, soc, mark, met):
    found = explain(tmp_path, capsys, model(), "--soc", soc, "-O0")
    rows = {row["source"]: row for row in found["ge"]}
    assert (rows["MatMulBiasAddFusionPass"]["mark"], rows["MatMulBiasAddFusionPass"]["met"]) == (
        mark, met
    )  # fmt: skip


def test_a_result_or_evaluate_is_needed(tmp_path, capsys):
    assert main(["optimize", str(save(model(), tmp_path / "m.onnx"))]) == 2
    assert "CLI011" in capsys.readouterr().err


def test_explain_writes_the_result_too(tmp_path, capsys):
    path = save(model(), tmp_path / "m.onnx")
    assert main(["optimize", str(path), "-o", str(tmp_path / "o.onnx"), "--explain"]) == 0
    assert "What ATC should fuse" in capsys.readouterr().out
    assert (tmp_path / "o.onnx").is_file()


def test_regions_that_people_expect_a_fusion_for():
    unit = cannc.load(
        parse("""g (float[2, 4, 8] q, float[2, 4, 8] k, float[2, 4, 8] v) => (float[2, 4, 8] y) {
            t = Transpose<perm = [0, 2, 1]>(k) s = MatMul(q, t) p = Softmax(s) a = MatMul(p, v)
            g = Sigmoid(a) y = Mul(a, g)
        }""")
    )
    found = {(r.node, r.fusion.what, r.obstacle) for r in regions(unit.model, Target())}
    assert ("MatMul_3", "attention: MatMul, Softmax, MatMul are three kernels",
            "GE has no such fusion") in found  # fmt: skip
    assert any(
        what.startswith("Transpose of the last two axes") for _, what, why in found if not why
    )
    assert any(fusion.mark == "unproven" for fusion in FUSIONS)
