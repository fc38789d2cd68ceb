"""The plan in a compile: which sizes it is made for, the budget, and what the user sees."""

import json

import numpy as np
import pytest
from click.testing import CliRunner
from tests.support.models import mlp, parse, save

import cannc
from cannc.compiler.backends.atc.backend import AtcBackend
from cannc.compiler.backends.base import CompileOptions
from cannc.compiler.backends.host import HostBackend
from cannc.compiler.cli.main import cli
from cannc.compiler.core.errors import UsageError
from cannc.compiler.core.target import Target
from cannc.compiler.core.unit import load
from cannc.compiler.memory.blame import WorkspaceError
from cannc.compiler.memory.plan import MemoryPlan
from cannc.compiler.om.reader import OmFile

WAITING = """g (float[N, 1] x) => (float[N, 1] y) {
    [wide] a = Expand(x, shape)
    [s1] sa = Softmax(a)
    [r1] ra = ReduceSum(sa, axis)
    [mm] m = MatMul(ra, up)
    [s2] sm = Softmax(m)
    [r2] rm = ReduceSum(sm, axis)
    [mul] p = Mul(a, rm)
    [r3] y = ReduceSum(p, axis)
}"""
WEIGHTS = {
    "shape": np.array([1, 1024], np.int64),
    "axis": np.array([1], np.int64),
    "up": np.ones((1, 1024), np.float32),
}


def compiled(tmp_path, model=None, examples=None, **options):
    unit = load(model if model is not None else mlp())
    unit.target = Target.parse("Ascend910B4")
    unit.examples = examples or {}
    return HostBackend().compile(unit, tmp_path / "m.om", CompileOptions(**options))


def example(rows):
    return {"x": np.ones((rows, 8), np.float32)}


@pytest.mark.parametrize(
    ("options", "rows"),
    [
        ({"examples": example(40)}, 40),
        ({"atc_options": {"input_shape": "x:50,8"}, "examples": example(40)}, 50),
        ({"atc_options": {"input_shape": "x:1~60,8"}, "examples": example(40)}, 60),
        ({"atc_options": {"input_shape": "x:-1,8"}, "examples": example(40)}, 40),
        ({"gears": {"N": [1, 70, 8]}, "examples": example(40)}, 70),
    ],
)
def test_sizes_come_from_gears_then_shapes_then_examples(tmp_path, options, rows):
    memory = compiled(tmp_path, **options).memory
    assert memory.sizes == ({"x": (rows, 8)},)
    hidden, last = rows * 16 * 4, rows * 4 * 4
    assert memory.arena_bytes == -(-hidden // 512) * 512 + -(-last // 512) * 512


def test_without_sizes_the_plan_says_so(tmp_path):
    result = compiled(tmp_path)
    assert result.memory.open_dims == ("N",)
    assert any("memory plan: unknown" in note and "N" in note for note in result.notes)
    assert MemoryPlan.of_om(OmFile.open(result.path)).arena_bytes is None
    with pytest.raises(UsageError) as caught:
        compiled(tmp_path, max_workspace=10**9)
    assert caught.value.code == "MEM002"


def test_a_recomputed_artifact_keeps_the_budget_and_the_numbers(tmp_path):
    options = {"atc_options": {"input_shape": "x:4,1"}, "max_workspace": 2 * 16384 + 512}
    model = parse(WAITING, **WEIGHTS)
    with pytest.raises(WorkspaceError) as caught:
        compiled(tmp_path, model, **options)
    assert "N=2 would need" in caught.value.fix  # the open model tells what may be smaller
    assert not (tmp_path / "m.om").exists()
    result = compiled(tmp_path, model, memory_optimizer="recompute", **options)
    assert result.memory.arena_bytes <= options["max_workspace"]
    assert result.memory.recomputed
    assert any("computed twice" in note for note in result.notes)
    feeds = {"x": np.array([[1], [2], [3], [4]], np.float32)}
    with cannc.Session(result.path) as session:
        np.testing.assert_allclose(session.run(feeds)["y"], 1024 * feeds["x"], rtol=1e-5)
    assert MemoryPlan.of_om(OmFile.open(result.path)) == result.memory
    report = cannc.compare(model, result.path, inputs=feeds)
    assert report.verdict == "pass"


def test_the_same_compile_gives_the_same_bytes(tmp_path):
    options = {"atc_options": {"input_shape": "x:4,1"}, "max_workspace": 2 * 16384 + 512}
    found = []
    for _ in range(2):
        model = parse(WAITING, **WEIGHTS)
        result = compiled(tmp_path, model, memory_optimizer="recompute", **options)
        found.append(result.path.read_bytes())
    assert found[0] == found[1]


def command(tmp_path, *arguments):
    model = save(mlp(), tmp_path / "m.onnx")
    base = ["compile", str(model), "-o", str(tmp_path / "m.om"), "--backend", "host"]
    base += ["--soc", "Ascend910B4", "--input-shape", "x:40,8", *arguments]
    return CliRunner().invoke(cli, base)


def test_the_command_shows_and_keeps_the_workspace(tmp_path):
    done = command(tmp_path, "--max-workspace", "4KiB")
    assert done.exit_code == 0
    assert "workspace: 3.6 kB" in done.output
    done = command(tmp_path, "--json", "-")
    assert json.loads(done.output)["memory"]["arena_bytes"] == 2560 + 1024


@pytest.mark.parametrize("text", ["2x", "GB", "-1", "1e3", ""])
def test_sizes_that_are_none_are_refused(tmp_path, text):
    done = command(tmp_path, "--max-workspace", text)
    assert isinstance(done.exception, UsageError)
    assert done.exception.code == "QTY001"


@pytest.mark.parametrize(
    ("text", "count"),
    [("2GB", 2 * 10**9), ("1.5 MiB", 3 * 2**19), ("100", 100), ("3kb", 3000)],
)
def test_sizes_with_units(text, count):
    from cannc.compiler.core.quantities import parse_bytes

    assert parse_bytes(text, "--max-workspace") == count


def test_a_budget_that_nobody_keeps_is_not_passed_over_in_silence(tmp_path):
    unit = load(mlp())
    unit.target = Target.parse("Ascend910B4")
    options = CompileOptions(dry_run=True, max_workspace=1, gears={"N": [1, 2]})
    result = AtcBackend().compile(unit, tmp_path / "m.om", options)
    assert any("--max-workspace" in note for note in result.notes)
