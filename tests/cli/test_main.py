"""The command line as a whole: help, start-up cost, errors and exit codes."""

import json
import subprocess
import sys

import pytest

from cannc.compiler.cli.main import COMMANDS, main

HEAVY = {"onnx", "onnx_ir", "torch", "onnxruntime", "numpy", "transformers", "pydantic", "rich"}


def test_help_lists_every_command(capsys):
    assert main(["--help"]) == 0
    out = capsys.readouterr().out
    assert all(f"\n  {name} " in out for name in COMMANDS)


@pytest.mark.parametrize("arguments", [["--help"], ["--version"], ["optimize", "--help"]])
def test_help_imports_nothing_heavy(arguments):
    code = (
        "import sys, json; from cannc.compiler.cli.main import main; "
        f"main({arguments!r}); "
        "print('MODULES', json.dumps(sorted(m.split('.')[0] for m in sys.modules)))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60
    )
    modules = set(json.loads(done.stdout.rpartition("MODULES ")[2]))
    assert not modules & HEAVY


@pytest.mark.parametrize("name", [*COMMANDS])
def test_each_command_has_help(name, capsys):
    assert main([name, "--help"]) == 0
    assert "Usage: cannc" in capsys.readouterr().out


def test_unknown_command_names_the_nearest(capsys):
    assert main(["optimise", "x.onnx"]) == 2
    assert "did you mean 'optimize'?" in capsys.readouterr().err


def test_unknown_option_is_a_usage_error(capsys):
    assert main(["check", "x.onnx", "--socc", "Ascend910B4"]) == 2
    assert "error[CLI001]" in capsys.readouterr().err


@pytest.mark.parametrize("name", ["profile"])
def test_planned_commands_say_so(name, capsys):
    assert main([name, "anything", "--at", "all"]) == 2
    assert "not there yet" in capsys.readouterr().err


def test_a_bug_is_reported_as_one(monkeypatch, capsys):
    def broken(*_args, **_kwargs):
        raise RuntimeError("boom")

    monkeypatch.setattr("cannc.compiler.pipeline.check", broken)
    assert main(["check", "x.onnx"]) == 70
    err = capsys.readouterr().err
    assert "error[BUG001]: RuntimeError: boom" in err
    assert "Traceback" not in err
    assert main(["check", "x.onnx", "--debug"]) == 70
    assert "Traceback" in capsys.readouterr().err


def test_targets_lists_socs(capsys):
    assert main(["targets", "--json", "-"]) == 0
    assert "Ascend910B4" in json.loads(capsys.readouterr().out)["soc"]
