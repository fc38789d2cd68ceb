"""Gears and ranges at the command line."""

import json

import numpy as np
import pytest
from tests.support.models import mlp, save

import cannc
from cannc.compiler.cli.main import main


@pytest.fixture
def folder(tmp_path):
    save(mlp(), tmp_path / "model.onnx")
    for batch in (3, 4):
        np.save(tmp_path / f"x{batch}.npy", np.ones((batch, 8), np.float32))
    return tmp_path


def run(*arguments):
    return main([str(a) for a in arguments])


def compiled(folder, *options):
    model, out = folder / "model.onnx", folder / "m.om"
    code = run("compile", model, "-o", out, "--backend", "host", "--soc", "Ascend910B4", *options)
    return out if code == 0 else code


def outputs(capsys):
    return json.loads(capsys.readouterr().out)["outputs"]


def test_gears_from_compile_to_compare(folder, capsys):
    artifact = compiled(folder, "--shapes", "gears", "--gears", "N=1,4")
    capsys.readouterr()
    assert run("run", artifact, "--json", "-") == 0
    assert outputs(capsys) == {"y": ["float32", [4, 4]]}
    three = f"x={folder / 'x3.npy'}"
    assert run("run", artifact, "--inputs", three, "--json", "-") == 0
    assert outputs(capsys) == {"y": ["float32", [3, 4]]}
    assert run("run", artifact, "--inputs", three, "--padding", "none") == 2
    assert "RUN015" in capsys.readouterr().err
    model = folder / "model.onnx"
    assert run("compare", model, artifact, "--inputs", f"x={folder / 'x4.npy'}") == 0
    assert run("compare", model, artifact) == 0
    assert run("compare", model, artifact, "--inputs", three) == 2
    capsys.readouterr()
    assert run("inspect", artifact, "--json", "-") == 0
    facts = json.loads(capsys.readouterr().out)
    assert facts["models"][0]["gears"]["rows"] == [[1], [4]]


def test_ranges_from_compile_to_run(folder, capsys):
    artifact = compiled(folder, "--shapes", "range", "--input-shape", "x:1~3,8")
    capsys.readouterr()
    assert run("run", artifact, "--json", "-") == 0
    assert outputs(capsys) == {"y": ["float32", [3, 4]]}
    assert run("run", artifact, "--inputs", f"x={folder / 'x4.npy'}") == 2
    assert "INP008" in capsys.readouterr().err


def test_sizes_that_contradict_shapes_are_a_usage_error(folder, capsys):
    assert compiled(folder, "--shapes", "fixed", "--gears", "N=1,4") == 2
    assert "ATC049" in capsys.readouterr().err
    assert compiled(folder, "--shapes", "fixed", "--input-shape", "x:2,8").is_file()


def test_a_dry_run_of_atc_holds_to_shapes_too(folder, capsys):
    arguments = ["compile", folder / "model.onnx", "-o", folder / "m.om", "--backend", "atc"]
    arguments += ["--soc", "Ascend910B4", "--dry-run", "--shapes", "gears"]
    assert run(*arguments) == 2
    assert "ATC049" in capsys.readouterr().err
    assert run(*arguments, "--gears", "N=1,4") == 0
    assert "--dynamic_batch_size=1,4" in capsys.readouterr().out


def test_inspect_shows_ranges(folder, capsys):
    artifact = compiled(folder, "--input-shape", "x:1~3,8")
    capsys.readouterr()
    assert run("inspect", artifact) == 0
    assert "float32[N,8] of 1~3,8" in capsys.readouterr().out
    assert run("inspect", artifact, "--json", "-") == 0
    (x,) = json.loads(capsys.readouterr().out)["models"][0]["inputs"]
    assert x["ranges"] == [[1, 3], [8, 8]]


def test_folders_of_raw_samples_as_ais_bench_takes_them(folder, capsys):
    artifact = compiled(folder)
    samples = folder / "samples"
    samples.mkdir()
    arrays = [np.full((n, 8), n, np.float32) for n in (1, 2, 3)]
    for n, array in enumerate(arrays):
        array.tofile(samples / f"s{n}.bin")
    capsys.readouterr()
    out = folder / "out"
    flags = ("--in-flight", "2", "--repeat", "2", "-o", out, "--out-format", "bin", "--json", "-")
    assert run("run", artifact, "--inputs", samples, *flags) == 0
    report = json.loads(capsys.readouterr().out)
    assert (report["samples"], report["in_flight"], report["latency_ms"]["runs"]) == (3, 2, 6)
    assert report["latency_ms"]["per_second"] > 0
    assert report["init_ms"] > 0
    assert report["device"] == "host (simulated float16)"
    assert sorted(path.name for path in out.iterdir()) == ["s0_0.bin", "s1_0.bin", "s2_0.bin"]
    with cannc.Session(artifact) as session:
        for n, array in enumerate(arrays):
            found = np.fromfile(out / f"s{n}_0.bin", np.float32).reshape(-1, 4)
            np.testing.assert_array_equal(found, session.run({"x": array})["y"])


def test_random_inputs_follow_the_seed(folder, capsys):
    artifact = compiled(folder, "--shapes", "range", "--input-shape", "x:1~3,8")
    for name, seed in (("a", 1), ("b", 1), ("c", 2)):
        assert run("run", artifact, "--seed", seed, "-o", folder / name) == 0
    assert "runs/s" in capsys.readouterr().out
    a, b, c = (np.load(folder / name / "y.npy") for name in "abc")
    np.testing.assert_array_equal(a, b)
    assert not np.array_equal(a, c)
