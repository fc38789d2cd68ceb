"""``cannc check --registered``: operators that the user has an ATC plugin for."""

from __future__ import annotations

import onnx.parser
import pytest

from cannc.compiler.cli.main import main


@pytest.fixture
def path(tmp_path):
    text = """<ir_version: 8, opset_import: ["" : 17, "my" : 2]>
    g (float[2] x) => (float[2] y) { a = my.Own(x) y = Relu(a) }"""
    onnx.save(onnx.parser.parse_model(text), tmp_path / "m.onnx")
    return str(tmp_path / "m.onnx")


def test_an_own_plugin_is_not_refused(path, capsys):
    assert main(["check", path]) == 1
    assert "my::Own" in capsys.readouterr().out
    assert main(["check", path, "--registered", "my::2::Own"]) == 0


def test_another_version_of_it_is_refused(path):
    assert main(["check", path, "--registered", "my::1::Own"]) == 1


@pytest.mark.parametrize("name", ["Own", "my::Own", "my::x::Own", "my::2::"])
def test_a_name_of_another_form_is_an_error(path, name, capsys):
    assert main(["check", path, "--registered", name]) == 2
    assert "CLI012" in capsys.readouterr().err
