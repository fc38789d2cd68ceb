"""Options of ``cannc compare``: dumps of a device, JUnit."""

from xml.etree import ElementTree

import numpy as np
import pytest
from tests.support.device_dumps import dump_model
from tests.support.models import mlp, save

from cannc.compiler.cli.main import main
from cannc.compiler.core.unit import load

X = np.random.default_rng(0).standard_normal((3, 8)).astype(np.float32)


@pytest.fixture
def files(tmp_path):
    np.savez(tmp_path / "in.npz", x=X)
    return save(mlp(), tmp_path / "model.onnx"), tmp_path / "in.npz"


def run(*arguments):
    return main([str(argument) for argument in arguments])


def test_dumps_and_junit(files, tmp_path, capsys):
    model, feeds = files
    dump_model(load(mlp()).model, {"x": X}, tmp_path / "dump")
    out = tmp_path / "junit.xml"
    arguments = ["compare", model, model, "--inputs", feeds, "--dump", tmp_path / "dump"]
    assert run(*arguments, "--junit", out) == 0
    suites = {suite.get("name"): suite for suite in ElementTree.parse(out).getroot()}
    assert suites["outputs"].get("failures") == "0"
    assert suites["layers"].get("tests") == "5"
    assert "PASS" in capsys.readouterr().out


def test_a_folder_without_dumps_is_bad_input(files, tmp_path, capsys):
    model, feeds = files
    (tmp_path / "empty").mkdir()
    dump = ["--dump", tmp_path / "empty"]
    assert run("compare", model, model, "--inputs", feeds, *dump) == 2
    assert "CMP010" in capsys.readouterr().err


def test_baseline(files, tmp_path, capsys):
    model, feeds = files
    wrong = mlp()
    bias = next(t for t in wrong.graph.initializer if t.name == "b1")
    bias.raw_data = (np.frombuffer(bias.raw_data, np.float32) + 1).tobytes()
    wrong = save(wrong, tmp_path / "wrong.onnx")
    old = tmp_path / "old.json"
    assert run("compare", model, wrong, "--inputs", feeds, "--json", old) == 1
    assert run("compare", model, wrong, "--inputs", feeds, "--baseline", old) == 0
    assert run("compare", model, model, "--inputs", feeds, "--json", old) == 0
    capsys.readouterr()
    assert run("compare", model, wrong, "--inputs", feeds, "--baseline", old) == 1
    assert "worse than the baseline: hb" in capsys.readouterr().out


def test_thresholds_of_some_layers(files, tmp_path):
    model, feeds = files
    strict = ["--threshold", "y:max_abs=-1"]
    assert run("compare", model, model, "--inputs", feeds, *strict) == 1
    assert run("compare", model, model, "--inputs", feeds, "--threshold", "h:max_abs=-1") == 0
