"""Running ATC: what counts as success, what a failure says, and what is left behind.

The tool is a stand-in (tests/support/atc_standin.py) that checks flags and model as ATC does.
"""

import contextlib
import json
import os
import shlex
import shutil
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import numpy as np
import onnx
import pytest
from tests.support import atc_standin
from tests.support.models import mlp, parse, save

from cannc.compiler.backends.atc.discovery import find_atc
from cannc.compiler.backends.base import CompileOptions
from cannc.compiler.backends.select import FALLBACK_NOTE, select_backend
from cannc.compiler.cli.main import main
from cannc.compiler.core.errors import (
    MissingToolError,
    ToolchainError,
    UnsupportedOpError,
    UsageError,
    notes,
)
from cannc.compiler.core.target import Target
from cannc.compiler.core.unit import load
from cannc.compiler.pipeline import compile_model

SOC = "Ascend910B4"


@pytest.fixture(scope="module")
def om(tmp_path_factory):
    """A real container for the stand-in to hand out: it cannot make one."""
    out = tmp_path_factory.mktemp("om") / "any.om"
    unit = load(mlp())
    unit.target = Target(SOC)
    select_backend("host").compile(unit, out, CompileOptions())
    return out


@pytest.fixture
def atc(tmp_path, om):
    return atc_standin.install(tmp_path / "toolkit", om)


@pytest.fixture
def out(tmp_path):
    (tmp_path / "out").mkdir()
    return tmp_path / "out" / "m.om"


def compile_(model, out, atc, backend="atc", soc=SOC, cann=None, **options):
    return compile_model(model, out, backend, soc, cann, CompileOptions(atc=atc, **options))


def running(atc) -> bool:
    """Tell whether a stand-in works somewhere."""
    commands = []
    for entry in Path("/proc").glob("[0-9]*/cmdline"):
        with contextlib.suppress(OSError):
            commands.append(entry.read_bytes().decode(errors="replace"))
    return any(f"{atc}\0--model" in command for command in commands)


def failure(model, out, atc, **options):
    """Compile, expect ATC to fail, and return the error; nothing may stand at the output."""
    with pytest.raises(ToolchainError) as error:
        compile_(model, out, atc, **options)
    assert not out.exists()
    return error.value


def test_success_leaves_the_artifact_and_nothing_else(atc, out, om):
    result = compile_(mlp(), out, atc)
    assert out.read_bytes() == om.read_bytes()
    assert [*out.parent.iterdir()] == [out]
    assert (result.path, result.size_bytes, result.device) == (out, out.stat().st_size, SOC)
    assert result.weight_bytes > 0
    (call,) = atc_standin.calls(atc)
    assert f"--soc_version={SOC}" in call["arguments"]
    assert "--framework=5" in call["arguments"]
    assert "--precision_mode_v2=origin" in call["arguments"]
    assert call["files"] == ["atc.log", "model.onnx"]
    assert not Path(call["folder"]).exists()


@pytest.mark.parametrize(
    ("precision", "cann", "flag"),
    [
        ("keep", None, "--precision_mode_v2=origin"),
        ("fp16", None, "--precision_mode_v2=fp16"),
        ("keep", "6.0.1", "--precision_mode=must_keep_origin_dtype"),
        ("fp16", "6.0.1", "--precision_mode=force_fp16"),
    ],
)
def test_the_precision_is_always_said(atc, out, precision, cann, flag):
    compile_(mlp(), out, atc, precision=precision, cann=cann)
    assert flag in atc_standin.calls(atc)[0]["arguments"]


def test_float32_islands_of_a_float16_model_are_kept(atc, out):
    model = parse(
        """g (float16[2, 4] x) => (float16[2, 4] y) {
            a = Relu(x)
            f = Cast<to = 1>(a)
            [island] e = Exp(f)
            h = Cast<to = 10>(e)
            y = Neg(h)
        }"""
    )
    result = compile_(model, out, atc, atc_options={"precision_mode_v2": "fp16"})
    assert "--keep_dtype=keep_dtype.txt" in shlex.split(result.command)
    assert "keep_dtype.txt" in atc_standin.calls(atc)[0]["files"]
    dry = compile_(model, out, atc, atc_options={"precision_mode_v2": "fp16"}, dry_run=True)
    assert "keep_dtype" in dry.command
    assert (out.with_suffix(".atc") / "keep_dtype.txt").read_text() == "island\n"


def test_a_golden_build_turns_fusions_off(atc, out):
    compile_(mlp(), out, atc, golden=True)
    (call,) = atc_standin.calls(atc)
    assert {"--fusion_switch_file=fusion_switch.json", "--quant_dumpable=1"} < {*call["arguments"]}
    compile_(mlp(), out, atc, golden=True, dry_run=True)
    switch = json.loads((out.with_suffix(".atc") / "fusion_switch.json").read_text())
    assert switch["Switch"] == {"GraphFusion": {"ALL": "off"}, "UBFusion": {"ALL": "off"}}


def test_a_renamed_artifact_gets_the_name_that_was_asked_for(atc, out):
    atc_standin.behave(atc, outcome="renamed")
    result = compile_(mlp(), out, atc)
    assert [*out.parent.iterdir()] == [out]
    assert "it holds host code and runs only on linux x86_64" in result.notes


def test_external_weights_come_along(atc, out):
    compile_(mlp(), out, atc, atc_options={"external_weight": 1})
    assert (out.parent / "weight" / "weight_123").read_bytes() == b"123"


def test_warnings_become_notes(atc, out):
    atc_standin.behave(atc, warning="W11001: Op [Relu_0] is slow.")
    assert "ATC warns: W11001: Op [Relu_0] is slow." in compile_(mlp(), out, atc).notes


@pytest.mark.parametrize(
    ("outcome", "code", "said"),
    [
        ("SIGKILL", "ATC102", "killed (SIGKILL)"),
        ("SIGSEGV", "ATC102", "crashed (SIGSEGV)"),
        ("no file", "ATC104", "no output file"),
        ("silent", "ATC104", "exit code 1"),
        ("error, rc 0", "ATC101", "E10001"),
    ],
)
def test_an_old_artifact_is_not_taken_for_a_result(atc, out, outcome, code, said):
    atc_standin.behave(atc, outcome=outcome)
    out.write_bytes(b"old")
    with pytest.raises(ToolchainError) as error:
        compile_(mlp(), out, atc)
    assert error.value.code == code
    assert said in str(error.value)
    assert out.read_bytes() == b"old"
    (kept,) = (path for path in out.parent.iterdir() if path != out)
    assert str(kept / "atc.log") in error.value.fix
    assert (kept / "model.onnx").is_file()


def test_a_damaged_artifact_is_refused(atc, out):
    atc_standin.behave(atc, outcome="damaged")
    error = failure(mlp(), out, atc)
    assert error.code == "ATC106"
    assert "OM002" in error.why


def test_another_release_than_the_one_named_is_said(atc, out):
    assert not any("--cann says" in note for note in compile_(mlp(), out, atc).notes)
    notes_ = compile_(mlp(), out, atc, cann="8.0.0").notes
    assert "--cann says 8.0.0, the ATC that ran is of 8.3.RC1" in notes_


def test_memory_is_said_when_the_kernel_killed(atc, out, monkeypatch):
    atc_standin.behave(atc, outcome="SIGKILL")
    counts = iter([3, 4])
    monkeypatch.setattr("cannc.compiler.backends.atc.memory.oom_kills", lambda: next(counts))
    error = failure(mlp(), out, atc)
    assert "ran out of memory" in error.what
    assert "TE_PARALLEL_COMPILER=1" in error.fix


def test_time_out_ends_atc_and_its_children(atc, out):
    atc_standin.behave(atc, seconds=60)
    error = failure(mlp(), out, atc, timeout_s=1)
    assert error.code == "ATC103"
    assert "1 s" in error.why
    (call,) = atc_standin.calls(atc)
    assert not running(atc)
    assert Path(call["folder"]).is_dir()


@pytest.mark.parametrize(
    ("code", "message", "node", "means"),
    [
        (
            "EZ3003",
            "No supported Ops kernel and engine are found for [act], optype [Relu].",
            "node act (Relu)",
            "no kernel library",
        ),
        ("E20001", "Failed to compile Op [fc1]. (oppath: [x])", "node fc1 (MatMul)", "compiled"),
        ("E70001", "In op [act_trans_5] the shape is bad", "node act (Relu)", "shape inference"),
        ("E99999", "Something new", "", "does not know"),
    ],
)
def test_a_failure_names_code_meaning_and_node(atc, out, code, message, node, means):
    atc_standin.behave(atc, outcome="fails", code=code, message=message)
    model = parse(
        """g (float[2, 4] x) => (float[2, 4] y) {
            [fc1] h = MatMul(x, w)
            [act] y = Relu(h)
        }""",
        w=np.ones((4, 4), np.float32),
    )
    error = failure(model, out, atc)
    assert error.code == "ATC101"
    assert code in error.what
    assert means in error.what
    assert error.where.startswith(node)
    assert message.split(".")[0] in error.why
    assert "followed by E19999" in error.why
    assert "TraceBack" not in error.why
    assert any("ATC run failed" in note for note in notes(error))


@pytest.mark.parametrize("code", ["E13010", "E16002", "E19010"])
def test_unsupported_operators_come_with_their_cure(atc, out, code):
    atc_standin.behave(atc, unsupported=["Relu"], unsupported_code=code)
    error = failure(mlp(), out, atc)
    assert "unsupported operator" in error.what
    assert "(Relu)" in error.where


def test_refused_findings_stop_before_atc(atc, out):
    model = parse(
        """<ir_version: 8, opset_import: ["" : 17, "com.microsoft" : 1]>
        g (float[2] x) => (float[2] y) { y = com.microsoft.FastGelu(x) }"""
    )
    with pytest.raises(UnsupportedOpError) as error:
        compile_(model, out, atc)
    assert error.value.code == "BCK004"
    assert "E19010" in error.value.why, "the code of CANN 8"
    assert atc_standin.calls(atc) == []


def test_two_compiles_at_a_time_do_not_disturb_each_other(atc, tmp_path):
    atc_standin.behave(atc, seconds=0.5)
    folder = tmp_path / "both"
    folder.mkdir()
    results = []
    threads = [
        threading.Thread(target=lambda n=n: results.append(compile_(mlp(), folder / n, atc)))
        for n in ("a.om", "b.om")
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(results) == 2
    assert sorted(path.name for path in folder.iterdir()) == ["a.om", "b.om"]
    one, two = atc_standin.calls(atc)
    assert one["folder"] != two["folder"]


def test_paths_that_atc_refuses_are_kept_from_it(atc, tmp_path):
    folder = tmp_path / "my models (new)"
    folder.mkdir()
    model = save(mlp(), folder / "a model.onnx")
    result = compile_(model, folder / "an artifact.om", atc)
    assert result.path.is_file()
    assert sorted(path.name for path in folder.iterdir()) == ["a model.onnx", "an artifact.om"]
    with pytest.raises(UsageError, match="characters that ATC refuses") as error:
        compile_(model, folder / "b.om", atc, dry_run=True)
    assert "E10001" in error.value.why


def test_the_environment_is_the_toolkits_not_ours(atc, out, monkeypatch):
    monkeypatch.setenv("PYTHONPATH", f"{atc.parent.parent}/python{os.pathsep}/elsewhere")
    monkeypatch.setenv("PYTHONHOME", "/nowhere")
    monkeypatch.setenv("VIRTUAL_ENV", sys.prefix)
    monkeypatch.setenv("PATH", f"{sys.prefix}/bin{os.pathsep}{os.environ['PATH']}")
    monkeypatch.setenv("MINE", "1")
    compile_(mlp(), out, atc)
    seen = atc_standin.calls(atc)[0]["environment"]
    assert "PYTHONHOME" not in seen
    assert "VIRTUAL_ENV" not in seen
    assert f"{sys.prefix}/bin" not in seen["PATH"].split(os.pathsep)
    assert "/elsewhere" not in seen["PYTHONPATH"]
    assert f"{atc.parent.parent}/python" in seen["PYTHONPATH"].split(os.pathsep)
    assert seen["ASCEND_OPP_PATH"] == f"{atc.parent.parent}/opp"
    assert seen["MINE"] == "1"


@pytest.mark.parametrize(("memory", "expected"), [(8, "1"), (64, None)])
def test_small_boards_compile_one_kernel_at_a_time(atc, out, monkeypatch, memory, expected):
    place = "cannc.compiler.backends.atc.environment.total_memory_bytes"
    monkeypatch.setattr(place, lambda: memory * 2**30)
    compile_(mlp(), out, atc)
    seen = atc_standin.calls(atc)[0]["environment"]
    assert seen.get("TE_PARALLEL_COMPILER") == seen.get("MAX_COMPILE_CORE_NUMBER") == expected


def test_a_users_own_parallelism_is_kept(atc, out, monkeypatch):
    monkeypatch.setattr("cannc.compiler.backends.atc.environment.total_memory_bytes", lambda: 2**30)
    monkeypatch.setenv("TE_PARALLEL_COMPILER", "3")
    compile_(mlp(), out, atc)
    assert atc_standin.calls(atc)[0]["environment"]["TE_PARALLEL_COMPILER"] == "3"


def test_lines_are_logged_as_they_come(atc, out, caplog):
    with caplog.at_level("INFO"):
        compile_(mlp(), out, atc)
    assert "atc: ATC run success" in caplog.text


def test_auto_takes_atc_where_it_is(atc, out, monkeypatch):
    assert compile_(mlp(), out, atc, backend="auto").device == SOC
    monkeypatch.setenv("PATH", f"{atc.parent}{os.pathsep}{os.environ['PATH']}")
    assert compile_(mlp(), out, None, backend="auto").device == SOC
    monkeypatch.setenv("PATH", str(atc.parent / "nothing"))
    result = compile_(mlp(), out, None, backend="auto")
    assert result.device.startswith("host")
    assert result.notes[0] == FALLBACK_NOTE


def test_finding_atc(atc, tmp_path):
    root = atc.parent.parent
    (root / "set_env.sh").write_text("export A=1\n")
    for found in (
        find_atc(atc, {}),
        find_atc(root, {}),
        find_atc(None, {"PATH": str(atc.parent)}),
        find_atc(None, {"ASCEND_HOME_PATH": str(root)}),
        find_atc(None, {"ASCEND_TOOLKIT_HOME": str(root)}),
        find_atc(None, {}, homes=(str(tmp_path / "none"), str(root))),
    ):
        assert found is not None
        assert (found.path, found.home) == (atc, root)
        assert (found.version, found.set_env) == ("8.3.RC1", root / "set_env.sh")
    assert find_atc(None, {}, homes=()) is None
    with pytest.raises(MissingToolError) as error:
        find_atc(tmp_path / "none", {})
    assert error.value.code == "BCK002"
    (root / "bin" / "plain").write_text("")
    with pytest.raises(MissingToolError, match="no ATC to run") as error:
        find_atc(root / "bin" / "plain", {})
    assert error.value.why == "it is not executable"


@pytest.mark.parametrize(
    ("file", "text", "version"),
    [
        ("version.cfg", "toolkit_installed_version=[7.3.0.1.231:8.0.RC2]\n", "8.0.RC2"),
        ("compiler/version.info", "Version=8.2.0\n", "8.2.0"),
        ("x86_64-linux/ascend_toolkit_install.info", "a=b\nversion=7.0.0\n", "7.0.0"),
        ("other", "Version=8.2.0\n", None),
    ],
)
def test_reading_the_version(tmp_path, file, text, version):
    program = atc_standin.install(tmp_path / "t", version=None)
    path = program.parent.parent / file
    path.parent.mkdir(exist_ok=True)
    path.write_text(text)
    found = find_atc(None, {"ASCEND_HOME_PATH": str(program.parent.parent)})
    assert found is not None
    assert found.version == version


def test_a_link_into_a_component_folder_belongs_to_the_whole_toolkit(tmp_path):
    program = atc_standin.install(tmp_path / "toolkit" / "compiler", version=None)
    root = tmp_path / "toolkit"
    (root / "compiler" / "opp").rename(root / "opp")
    (root / "compiler" / "version.info").write_text("Version=8.2.0\n")
    (root / "bin").mkdir()
    (root / "bin" / "atc").symlink_to(program)
    for path in (root / "bin" / "atc", program):
        found = find_atc(path, {})
        assert found is not None
        assert (found.home, found.version) == (root, "8.2.0")


def test_files_for_debugging_are_kept(atc, out):
    result = compile_(mlp(), out, atc, atc_options={"op_debug_level": 1})
    (folder,) = (path for path in out.parent.iterdir() if path.is_dir())
    assert f"files for debugging kernels are in {folder}" in result.notes
    assert (folder / "kernel_meta").is_dir()


def test_a_terminal_shows_that_work_goes_on(atc, out, tmp_path, capsys, monkeypatch):
    model = save(mlp(), tmp_path / "m.onnx")
    arguments = ["compile", str(model), "-o", str(out), "--soc", SOC, "--atc", str(atc)]
    assert main(arguments) == 0
    assert "compiling" not in capsys.readouterr().err
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    assert main(arguments) == 0
    assert "compiling m.om" in capsys.readouterr().err
    assert main([*arguments, "--quiet"]) == 0
    assert "compiling" not in capsys.readouterr().err


def test_an_interrupt_ends_atc_and_leaves_nothing(atc, out, tmp_path):
    atc_standin.behave(atc, seconds=60)
    model = save(mlp(), tmp_path / "m.onnx")
    command = [sys.executable, "-c", "from cannc.compiler.cli.main import entry; entry()"]
    command += ["compile", str(model)]
    command += ["-o", str(out), "--soc", SOC, "--backend", "atc", "--atc", str(atc)]
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
    deadline = time.monotonic() + 60
    while not atc_standin.calls(atc) and time.monotonic() < deadline:
        time.sleep(0.1)
    assert running(atc)
    process.send_signal(signal.SIGINT)
    _, said = process.communicate(timeout=30)
    assert process.returncode == 130
    assert "interrupted" in said
    assert [*out.parent.iterdir()] == []
    assert not running(atc)


def test_an_atc_that_cannot_start(out, tmp_path):
    broken = tmp_path / "atc"
    broken.write_text("#!/no/such/interpreter\n")
    broken.chmod(0o755)
    assert failure(mlp(), out, broken).code == "ATC105"


def test_a_dry_run_prints_a_command_that_a_shell_can_run(atc, out, tmp_path, capsys, om):
    model = save(mlp(), tmp_path / "m.onnx")
    arguments = ["compile", str(model), "-o", str(out), "--soc", SOC, "--dry-run"]
    arguments += ["--backend", "atc", "--gears", "N=1,2,4", "--atc-arg=--keep_names=a;b c"]
    assert main(arguments) == 0
    command = capsys.readouterr().out.strip()
    assert command.count("\n") == 0
    assert not out.exists()
    shutil.copyfile(out.with_suffix(".atc") / "model.onnx", tmp_path / "handed.onnx")
    path = f"{atc.parent}{os.pathsep}{os.environ['PATH']}"
    subprocess.run(
        ["/bin/sh", "-c", command],
        env={"PATH": path},
        cwd=tmp_path,
        check=True,
        stdout=subprocess.DEVNULL,
    )
    assert out.read_bytes() == om.read_bytes()
    (call,) = atc_standin.calls(atc)
    assert "--keep_names=a;b c" in call["arguments"]
    assert "--dynamic_batch_size=1,2,4" in call["arguments"]
    onnx.checker.check_model(onnx.load(tmp_path / "handed.onnx"))
    assert main(arguments) == 0, "a second time over its own files"


def test_exit_codes_on_the_command_line(atc, out, tmp_path, capsys):
    model = save(mlp(), tmp_path / "m.onnx")
    start = ["compile", str(model), "-o", str(out), "--soc", SOC, "--atc", str(atc)]
    assert main([*start, "--backend", "atc"]) == 0
    assert main([*start, "--backend", "atc", "--atc-arg=--log=loud"]) == 2
    atc_standin.behave(atc, outcome="no file")
    assert main([*start, "--backend", "atc"]) == 4
    assert main([*start[:-1], str(tmp_path / "none"), "--backend", "atc"]) == 3
    assert "E10010" in capsys.readouterr().err
