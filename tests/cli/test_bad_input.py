"""Bad input: one block with code and fix, the right exit code, and no file left behind."""

import os

import numpy as np
import onnx
import pytest
from tests.support.models import mlp, save

from cannc.compiler.cli.main import main


@pytest.fixture
def model(tmp_path):
    return save(mlp(), tmp_path / "model.onnx")


@pytest.fixture
def external(tmp_path):
    """A model with its weights in model.data, and the proto to spoil."""
    proto = mlp()
    folder = tmp_path / "ext"
    folder.mkdir()
    onnx.save(
        proto, folder / "m.onnx", save_as_external_data=True, location="m.data", size_threshold=0
    )
    return folder / "m.onnx"


def refused(capsys, arguments, code, exit_code=2):
    """Run, and check the block on stderr; return its text."""
    assert main([str(a) for a in arguments]) == exit_code
    captured = capsys.readouterr()
    assert captured.err.count("error[") == 1
    assert f"error[{code}]" in captured.err
    assert "\n  fix  " in captured.err
    assert captured.out == ""
    return captured.err


def listing(folder):
    return sorted(p.relative_to(folder) for p in folder.rglob("*"))


def commands(model, tmp_path):
    """Every command that reads a model and writes a file."""
    return [
        ["convert", model, "-o", tmp_path / "o.onnx"],
        ["optimize", model, "-o", tmp_path / "o.onnx"],
        ["quantize", model, "-o", tmp_path / "o.onnx"],
        ["compile", model, "-o", tmp_path / "o.om", "--soc", "Ascend910B4"],
        ["check", model],
        ["compare", model, model],
    ]


@pytest.mark.parametrize("index", range(6))
@pytest.mark.parametrize("cut", [0, 1, 30, -1])
def test_truncated_model(index, cut, model, tmp_path, capsys):
    model.write_bytes(model.read_bytes()[:cut])
    before = listing(tmp_path)
    refused(capsys, commands(model, tmp_path)[index], "ONNX001")
    assert listing(tmp_path) == before


@pytest.mark.parametrize("index", range(6))
def test_text_file_named_onnx(index, tmp_path, capsys):
    path = tmp_path / "model.onnx"
    path.write_text("this is a note, not a model\n")
    refused(capsys, commands(path, tmp_path)[index], "ONNX001")
    assert listing(tmp_path) == [path.relative_to(tmp_path)]


def test_git_lfs_pointer_is_named(tmp_path, capsys):
    path = tmp_path / "model.onnx"
    path.write_text("version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 5\n")
    assert "git lfs pull" in refused(capsys, ["check", path], "ONNX001")


@pytest.mark.parametrize("index", range(6))
def test_no_such_file(index, tmp_path, capsys):
    refused(capsys, commands(tmp_path / "missing.onnx", tmp_path)[index], "IO010")
    assert listing(tmp_path) == []


@pytest.mark.parametrize("index", range(6))
def test_missing_external_data(index, external, tmp_path, capsys):
    (external.parent / "m.data").unlink()
    before = listing(tmp_path)
    err = refused(capsys, commands(external, tmp_path)[index], "ONNX002")
    assert "m.data" in err
    assert listing(tmp_path) == before


def test_cut_external_data(external, tmp_path, capsys):
    data = external.parent / "m.data"
    data.write_bytes(data.read_bytes()[:100])
    assert "bytes needed" in refused(capsys, commands(external, tmp_path)[1], "ONNX002")


@pytest.mark.parametrize("location", ["../secret", "/etc/hostname", "sub/../../secret", "link"])
@pytest.mark.parametrize("index", range(6))
def test_external_data_may_not_leave_the_folder(location, index, external, tmp_path, capsys):
    (tmp_path / "secret").write_bytes(bytes(4096))
    (external.parent / "link").symlink_to(tmp_path / "secret")
    proto = onnx.load(external, load_external_data=False)
    for tensor in proto.graph.initializer:
        next(e for e in tensor.external_data if e.key == "location").value = location
    external.write_bytes(proto.SerializeToString())
    before = listing(tmp_path)
    refused(capsys, commands(external, tmp_path)[index], "ONNX002")
    assert listing(tmp_path) == before


def test_broken_edges_are_all_named(tmp_path, capsys):
    proto = mlp()
    proto.graph.node[0].input[1] = "nowhere"
    proto.graph.node[3].output[0] = "h"
    err = refused(capsys, ["check", save(proto, tmp_path / "m.onnx")], "ONNX003")
    assert "'nowhere'" in err
    assert "'h' a second time" in err


@pytest.fixture
def artifact(model, tmp_path):
    out = tmp_path / "model.om"
    assert main(["compile", str(model), "-o", str(out), "--soc", "Ascend910B4", "-q"]) == 0
    return out


def given(tmp_path, **arrays):
    path = tmp_path / "inputs.npz"
    np.savez(path, **arrays)
    return path


@pytest.mark.parametrize(
    ("arrays", "said"),
    [
        ({"x": np.full((2, 8), np.nan, np.float32)}, "NaN"),
        ({"X": np.zeros((2, 8), np.float32)}, "'x'"),
        ({"x": np.zeros((2, 8), np.float32), "extra": np.zeros(1)}, "extra"),
        ({"x": np.zeros((2, 9), np.float32)}, "9"),
        ({"x": np.zeros(8, np.float32)}, "8"),
        ({"x": np.zeros((2, 8), np.int64)}, "int64"),
        ({"x": np.zeros((2, 8), bool)}, "bool"),
    ],
)
@pytest.mark.parametrize("command", ["run", "compare", "convert", "optimize"])
def test_bad_inputs(arrays, said, command, artifact, model, tmp_path, capsys):
    capsys.readouterr()
    path = given(tmp_path, **arrays)
    out = tmp_path / "out"
    arguments = {
        "run": ["run", artifact, "--inputs", path, "-o", out],
        "compare": ["compare", model, artifact, "--inputs", path, "--html", tmp_path / "r.html"],
        "convert": ["convert", model, "-o", tmp_path / "c.onnx", "--inputs", path],
        "optimize": ["optimize", model, "-o", out, "--verify", "final", "--inputs", path],
    }[command]
    before = listing(tmp_path)
    assert main([str(a) for a in arguments]) == 2
    err = capsys.readouterr().err
    assert err.startswith("error[INP")
    assert "\n  fix  " in err
    assert said in err
    assert listing(tmp_path) == before


def test_pickled_inputs_are_refused(artifact, tmp_path, capsys):
    path = tmp_path / "inputs.npz"
    np.savez(path, x=np.array([{"code": "would run"}], dtype=object))
    capsys.readouterr()
    refused(capsys, ["run", artifact, "--inputs", path], "INP010")


@pytest.mark.parametrize("index", range(4))
def test_unwritable_output(index, model, tmp_path, capsys):
    arguments = commands(model, tmp_path)[index]
    arguments[arguments.index("-o") + 1] = tmp_path / "no" / "such" / "folder" / "o.onnx"
    before = listing(tmp_path)
    refused(capsys, arguments, "IO002")
    assert listing(tmp_path) == before


def test_output_folder_that_is_a_file(artifact, tmp_path, capsys):
    blocked = tmp_path / "blocked"
    blocked.write_text("mine")
    capsys.readouterr()
    inputs = given(tmp_path, x=np.zeros((2, 8), np.float32))
    refused(capsys, ["run", artifact, "--inputs", inputs, "-o", blocked], "IO002")
    assert blocked.read_text() == "mine"


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write anywhere")
def test_read_only_folder(model, tmp_path, capsys):
    folder = tmp_path / "locked"
    folder.mkdir(mode=0o500)
    refused(capsys, ["convert", model, "-o", folder / "o.onnx"], "IO002")


@pytest.mark.parametrize("index", range(3))
def test_output_may_not_be_the_input(index, model, tmp_path, capsys):
    arguments = commands(model, tmp_path)[index]
    arguments[arguments.index("-o") + 1] = model
    content = model.read_bytes()
    refused(capsys, arguments, "IO001")
    assert model.read_bytes() == content


def test_unknown_soc_names_near_ones(model, tmp_path, capsys):
    err = refused(capsys, ["check", model, "--soc", "Ascend910B9"], "SOC001")
    assert "Ascend910B4" in err


def test_compile_needs_a_target(model, tmp_path, capsys):
    refused(capsys, ["compile", model, "-o", tmp_path / "o.om", "--backend", "host"], "SOC010")


def test_an_artifact_that_is_none(tmp_path, capsys):
    path = tmp_path / "x.om"
    path.write_bytes(b"IMOD" + bytes(300))
    capsys.readouterr()
    assert main(["run", str(path)]) == 2
    assert "error[OM" in capsys.readouterr().err
