"""The commands one after the other on a small model, as a user would run them."""

import json

import numpy as np
import onnx
import pytest
from tests.support.models import mlp, parse, save

from cannc.compiler.cli.main import main


@pytest.fixture
def folder(tmp_path):
    save(mlp(), tmp_path / "model.onnx")
    np.savez(tmp_path / "in.npz", x=np.random.default_rng(0).normal(size=(3, 8)).astype("f4"))
    return tmp_path


def run(*arguments):
    return main([str(a) for a in arguments])


def test_the_whole_chain(folder, capsys):
    inputs = folder / "in.npz"
    converted, optimized = folder / "c.onnx", folder / "o.onnx"
    quantized, artifact = folder / "q.onnx", folder / "m.om"
    assert run("convert", folder / "model.onnx", "-o", converted, "--inputs", inputs) == 0
    assert run("check", converted) == 0
    assert run("optimize", converted, "-o", optimized, "--precision", "fp16") == 0
    assert run("quantize", optimized, "-o", quantized) == 0
    assert run("compile", quantized, "-o", artifact, "--backend", "host") == 0
    assert run("run", artifact, "--inputs", inputs, "-o", folder / "results") == 0
    result = np.load(folder / "results" / "y.npy")
    assert result.shape == (3, 4)
    capsys.readouterr()
    html, csv = folder / "r.html", folder / "r.csv"
    code = run("compare", converted, artifact, "--html", html, "--csv", csv, "--json", "-")
    report = json.loads(capsys.readouterr().out)
    assert code == 0, report
    assert report["verdict"] == "pass"
    assert html.read_text().startswith("<!DOCTYPE html>")
    assert len(csv.read_text().splitlines()) == 1 + 5


def test_compare_fails_with_exit_code_1(folder, capsys):
    other = save(mlp(seed=1), folder / "other.onnx")
    assert run("compare", folder / "model.onnx", other, "--inputs", folder / "in.npz") == 1
    assert "FAIL" in capsys.readouterr().out


def test_check_refuses_with_exit_code_1(tmp_path, capsys):
    model = parse(
        """g (float[2] x) => (float[2] y) {
            q = QuantizeLinear(x, s)
            y = DequantizeLinear(q, s)
        }""",
        s=np.array(0.5, np.float32),
    )
    path = save(model, tmp_path / "m.onnx")
    assert run("check", path, "--json", "-") == 1
    findings = json.loads(capsys.readouterr().out)["findings"]
    refused = {f["op_type"] for f in findings if f["severity"] == "refused"}
    assert refused == {"QuantizeLinear", "DequantizeLinear"}
    assert run("check", path) == 1
    assert "2 refused" in capsys.readouterr().out


def test_optimize_keeps_the_interface(folder):
    out = folder / "o.onnx"
    arguments = ["optimize", folder / "model.onnx", "-o", out, "-O2", "--verify", "final"]
    assert run(*arguments, "--inputs", folder / "in.npz") == 0
    graph = onnx.load(out).graph
    assert [v.name for v in graph.input] == ["x"]
    assert graph.input[0].type.tensor_type.shape.dim[0].dim_param == "N"
    assert [v.name for v in graph.output] == ["y"]
    assert (folder / "o.provenance.json").is_file()


def test_input_shape_fixes_dimensions(folder):
    out = folder / "c.onnx"
    text = " x : 2 , 8 ; "
    assert run("convert", folder / "model.onnx", "-o", out, "--input-shape", text) == 0
    dims = onnx.load(out).graph.input[0].type.tensor_type.shape.dim
    assert [d.dim_value for d in dims] == [2, 8]


@pytest.mark.parametrize(
    ("text", "code"), [("x:1,2,3", "SHP002"), ("z:1,8", "SHP001"), ("x:1,9", "SHP003")]
)
def test_input_shape_that_does_not_fit(text, code, folder, capsys):
    out = folder / "c.onnx"
    assert run("convert", folder / "model.onnx", "-o", out, "--input-shape", text) == 2
    assert f"error[{code}]" in capsys.readouterr().err
    assert not out.exists()


def test_an_input_may_be_fixed(tmp_path):
    model = parse(
        """g (float[2] x, int64 sr) => (float[2] y) {
            c = Equal(sr, k) y = If (c) < then_branch = a () => (float[2] u) { u = Neg(x) },
                else_branch = b () => (float[2] v) { v = Relu(x) } > }""",
        k=np.array(16000, np.int64),
    )
    path, out = save(model, tmp_path / "m.onnx"), tmp_path / "o.onnx"
    np.savez(tmp_path / "in.npz", x=np.ones(2, np.float32), sr=np.array(16000))
    more = ("--verify", "final", "--inputs", tmp_path / "in.npz")
    assert run("optimize", path, "-o", out, "--fix-input", "sr=16000", *more) == 0
    graph = onnx.load(out).graph
    assert [value.name for value in graph.input] == ["x"]
    assert [node.op_type for node in graph.node] == ["Neg"]


@pytest.mark.parametrize("text", ["sr=x", "sr", "=1", "sr=1,,2"])
def test_fixed_inputs_that_cannot_be_read(tmp_path, capsys, text):
    path = save(mlp(), tmp_path / "m.onnx")
    assert run("optimize", path, "-o", tmp_path / "o.onnx", "--fix-input", text) == 2
    assert "CLI007" in capsys.readouterr().err


def test_check_as_html_escapes_names(tmp_path, capsys):
    model = parse("g (float[2] x) => (uint8[2] y) { y = QuantizeLinear(x, s) }", s=np.float32(1))
    model.graph.node[0].name = "<script>alert(1)</script>"
    assert run("check", save(model, tmp_path / "m.onnx"), "--format", "html") == 1
    page = capsys.readouterr().out
    assert page.startswith("<!DOCTYPE html>")
    assert "&lt;script&gt;" in page
    assert "<script>" not in page


def test_check_lists_what_is_known(capsys):
    assert run("check", "--list", "--json", "-") == 0
    known = {row["operator"]: row for row in json.loads(capsys.readouterr().out)}
    assert "npu::NPURmsNorm" in known


def test_check_advises_an_opset(tmp_path, capsys):
    model = parse("g (float[2] x) => (float[1] y) { y = ReduceL2(x) }")
    assert run("check", save(model, tmp_path / "m.onnx"), "--opset", "--json", "-") == 0
    advice = json.loads(capsys.readouterr().out)
    assert advice[0]["opset"] == 17
    assert {row["opset"]: row["missing"] for row in advice}[18] == {"ReduceL2": 1}


def test_check_needs_a_model(capsys):
    assert run("check") == 2
    assert "error[CLI010]" in capsys.readouterr().err
