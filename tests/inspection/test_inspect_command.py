"""``cannc inspect`` at the shell: what it prints, writes and returns."""

import json

import onnx
import pytest
from tests.support import device_om as dev
from tests.support.models import mlp, save
from tests.support.om_files import written

from cannc.compiler.cli.main import main


def run(*arguments):
    return main([str(argument) for argument in arguments])


@pytest.fixture
def device(tmp_path):
    return dev.device_om(tmp_path / "net.om")


@pytest.fixture
def host(tmp_path):
    return written(mlp(), tmp_path / "host.om").path


@pytest.mark.parametrize("columns", ["60", "160"])
def test_text_fits_the_terminal(device, capsys, monkeypatch, columns):
    monkeypatch.setenv("COLUMNS", columns)
    assert run("inspect", device) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "net.om: compiled for Ascend310B4"
    assert max(map(len, lines)) <= int(columns)
    text = " ".join(lines)
    for word in ("SO_BINS", "Gears (batch)", "Tilings: 1", "end graph", "Conv2D 1"):
        assert word in text


def test_names_stay_whole_in_a_pipe(device, capsys, monkeypatch):
    monkeypatch.delenv("COLUMNS", raising=False)
    model = dev.definition()
    model.graph[0].op[6].name = "relu_" + "x" * 150
    model.graph[0].op[7].input[0] = model.graph[0].op[6].name + ":0"
    model.graph[0].op[1].name = "w_" + "y" * 150
    assert run("inspect", dev.device_om(device, model)) == 0
    out = capsys.readouterr().out
    assert "w_" + "y" * 150 in out
    assert dev.COMMAND in out


def test_text_of_host_artifacts_and_onnx(tmp_path, host, capsys):
    assert run("inspect", host) == 0
    assert "host artifact, no device code" in capsys.readouterr().out
    assert run("inspect", save(mlp(), tmp_path / "m.onnx")) == 0
    out = capsys.readouterr().out
    assert "ai.onnx 18" in out
    assert "float32[N,8]" in out


def test_json_on_stdout_and_in_a_file(tmp_path, device, capsys):
    assert run("inspect", device, "--json", "-", "--graph", "--top", "1") == 0
    found = json.loads(capsys.readouterr().out)
    assert found["schema_version"] == 1
    assert len(found["models"][0]["weights"]["largest"]) == 1
    assert found["models"][0]["graph"][0]["ops"][5]["name"] == "conv"
    assert run("inspect", device, "--json", tmp_path / "f.json") == 0
    assert json.loads((tmp_path / "f.json").read_text())["models"][0]["graph"] is None
    assert "Partitions" in capsys.readouterr().out


def test_graph_prints_one_line_per_op(device, host, capsys):
    assert run("inspect", device, "--graph") == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "# net_0: 8 ops"
    assert len(lines) == 10
    assert "relu  Relu(conv:0) -> float16[1,1,4,4,16]:NC1HWC0" in lines
    assert run("inspect", host, "--graph") == 0
    assert "Relu_2  Relu(Add_1:0) -> " in capsys.readouterr().out


def test_a_file_cannot_steer_the_terminal(device, capsys):
    model = dev.definition()
    model.graph[0].op[4].name = "a\x1b[2J\nb"
    path = dev.device_om(device, model)
    for arguments in ([], ["--graph"]):
        assert run("inspect", path, *arguments) == 0
        out = capsys.readouterr().out
        assert "\x1b" not in out
    assert r"a\x1b[2J\nb  Recv() -> nothing" in out


def test_onnx_is_written_whole(tmp_path, host, device, capsys):
    out = tmp_path / "out.onnx"
    assert run("inspect", host, "--onnx", out) == 0
    assert [n.op_type for n in onnx.load(out).graph.node] == [
        "MatMul", "Add", "Relu", "MatMul", "Add",
    ]  # fmt: skip
    assert run("inspect", device, "--onnx", out, "--graph") == 0
    assert {n.domain for n in onnx.load(out).graph.node} == {"ge"}
    assert "# net_0" in capsys.readouterr().out


def test_diff_tells_by_its_exit_code(tmp_path, device, host, capsys):
    assert run("inspect", host, "--diff", host) == 0
    assert "host.om -> host.om: 0 differences" in capsys.readouterr().out
    model = dev.definition()
    model.attr["memory_size"].i = 1
    other = dev.device_om(tmp_path / "other.om", model)
    assert run("inspect", device, "--diff", other) == 1
    out = capsys.readouterr().out
    assert "memory_size" in out
    assert "8192" in out
    assert run("inspect", device, "--diff", other, "--json", "-") == 1
    report = json.loads(capsys.readouterr().out)
    assert report["schema_version"] == 1
    assert report["summary"]["memory"] == 1


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        (["missing.om"], "IO010"),
        (["net.om", "--onnx", "net.om"], "IO001"),
        (["net.om", "--onnx", "no/out.onnx"], "IO002"),
        (["m.onnx", "--onnx", "out.onnx"], "INS003"),
        (["net.om", "--diff", "net.om", "--graph"], "INS001"),
        (["net.om", "--onnx", "out.onnx", "--model", "1"], "INS002"),
        (["text.om"], "OM001"),
    ],
)
def test_mistakes_are_told_in_one_block(tmp_path, device, monkeypatch, capsys, arguments, code):
    monkeypatch.chdir(tmp_path)
    save(mlp(), tmp_path / "m.onnx")
    (tmp_path / "text.om").write_text("hello")
    before = sorted(tmp_path.iterdir())
    assert main(["inspect", *arguments]) == 2
    captured = capsys.readouterr()
    assert f"error[{code}]" in captured.err
    assert "  fix  " in captured.err
    assert captured.out == ""
    assert sorted(tmp_path.iterdir()) == before
