"""``cannc doctor``: what it finds, what it advises, and its exit codes."""

import json
import os
import sys

import pytest
from tests.support import atc_standin

from cannc.compiler import doctor
from cannc.compiler.backends.atc import environment
from cannc.compiler.cli.main import main
from cannc.compiler.core.errors import MissingToolError, UsageError


@pytest.fixture
def toolkit(tmp_path, monkeypatch):
    """A toolkit on PATH whose python3 is a script, so that it can lack modules."""
    for name in ("ASCEND_HOME_PATH", "ASCEND_TOOLKIT_HOME", "ASCEND_OPP_PATH"):
        monkeypatch.delenv(name, raising=False)
    program = atc_standin.install(tmp_path / "toolkit")
    monkeypatch.setenv("PATH", f"{program.parent}{os.pathsep}/usr/bin{os.pathsep}/bin")
    python_says(program, "[]")
    return program.parent.parent


def python_says(program, text, code=0):
    """Let the toolkit's ``python3`` print `text`."""
    python = program.parent / "python3"
    python.write_text(f"#!/bin/sh\necho '{text}'\nexit {code}\n")
    python.chmod(0o755)


def part(name, **options):
    return next(f for f in doctor.examine(**options) if f.name == name)


def test_a_machine_without_cann(capsys, monkeypatch, tmp_path):
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("ASCEND_HOME_PATH", raising=False)
    assert main(["doctor"]) == 0
    text = capsys.readouterr().out
    assert "install the CANN toolkit" in text
    found = {f.name: f for f in doctor.examine()}
    assert found["python"].version == ".".join(map(str, sys.version_info[:3]))
    assert found["onnxruntime"].present
    assert not found["atc"].present
    assert not found["device"].present
    assert main(["doctor", "--require", "onnx"]) == 0
    assert main(["doctor", "--require", "onnx", "--require", "atc"]) == 3
    assert "error[DOC002]: missing: atc" in capsys.readouterr().err


def test_an_installed_toolkit_and_the_missing_line(toolkit, monkeypatch):
    (toolkit / "set_env.sh").write_text("")
    found = part("atc")
    assert found.present
    assert found.version.startswith("8.3.RC1, ")
    assert found.advice == f"source {toolkit / 'set_env.sh'}"
    assert part("operator-package").version == str(toolkit / "opp")
    monkeypatch.setenv("ASCEND_HOME_PATH", str(toolkit))
    assert part("atc").advice == ""


def test_missing_operator_package(toolkit):
    (toolkit / "opp").rmdir()
    found = part("operator-package")
    assert not found.present
    assert "E10501" in found.advice


def test_missing_python_modules_are_named_before_a_compile(toolkit):
    assert part("atc-python").present
    python_says(toolkit / "bin" / "atc", '["decorator", "attr", "sympy"]')
    found = part("atc-python")
    assert not found.present
    assert found.version == "lacks decorator, attr, sympy"
    assert "pip install decorator attrs sympy" in found.advice
    python_says(toolkit / "bin" / "atc", "", code=1)
    assert "E40020" in part("atc-python").advice


def test_atc_s_python_is_really_asked(monkeypatch):
    wanted = ("json", "no_such_module_anywhere")
    monkeypatch.setattr(environment, "REQUIRED_MODULES", wanted)
    assert environment.missing_modules(dict(os.environ)) == ["no_such_module_anywhere"]
    assert environment.missing_modules({"PATH": "/nowhere"}) is None


def test_an_explicit_place_that_is_wrong(toolkit, tmp_path):
    assert not part("atc", atc=tmp_path / "none").present
    assert part("atc", atc=toolkit).present


def test_a_small_board(monkeypatch):
    monkeypatch.setattr(environment, "total_memory_bytes", lambda: 4 * 2**30)
    assert "one kernel at a time" in part("memory").advice


def test_json(toolkit, capsys):
    assert main(["doctor", "--json", "-"]) == 0
    data = json.loads(capsys.readouterr().out)
    assert data["schema_version"] == 1
    rows = {row["name"]: row for row in data["parts"]}
    assert rows["atc"]["present"] is True
    assert set(rows["atc"]) == {"name", "present", "version", "enables", "advice"}


def test_unknown_parts_are_refused():
    with pytest.raises(UsageError, match="did you mean 'torch'") as error:
        doctor.require(doctor.examine(), ("torche",))
    assert error.value.code == "DOC001"
    with pytest.raises(MissingToolError):
        doctor.require([doctor.Finding("x", False, "", "y", "do z")], ("x",))
