"""``cannc split`` and the run of what it writes, as a user would do it."""

import json

import numpy as np
import onnx
import onnx_ir as ir
import pytest
from tests.support import golden_models
from tests.support.models import mlp, save

import cannc
from cannc.compiler.cli.main import main
from cannc.compiler.core import onnx_io
from cannc.quant.report import QuantReport


def run(*arguments):
    return main([str(a) for a in arguments])


@pytest.fixture
def model(tmp_path):
    np.savez(tmp_path / "in.npz", **golden_models.inputs(golden_models.transformer()))
    return save(golden_models.transformer(), tmp_path / "model.onnx")


def test_split_and_run(model, tmp_path, capsys):
    folder = tmp_path / "new" / "parts"
    assert run("split", model, "-o", folder, "--parts", "3", "--soc", "Ascend310P3") == 0
    assert "part_02.onnx" in capsys.readouterr().out
    written = {path.name for path in folder.iterdir()}
    parts = {f"part_0{i}{end}" for i in range(3) for end in (".onnx", ".provenance.json")}
    assert written == {"pipeline.json", *parts}
    assert cannc.load(folder / "part_01.onnx").target.soc == "Ascend310P3"
    inputs, results = tmp_path / "in.npz", tmp_path / "results"
    assert run("run", folder / "pipeline.json", "--inputs", inputs, "-o", results) == 0
    assert np.load(results / "y.npy").shape == (2, 5, 32)


def test_json_says_how_the_parts_are_wired(model, tmp_path, capsys):
    arguments = ["--at", "ln", "--at", "q", "--json", "-"]
    assert run("split", model, "-o", tmp_path / "parts", *arguments) == 0
    shown = json.loads(capsys.readouterr().out)
    assert shown == json.loads((tmp_path / "parts" / "pipeline.json").read_text())
    assert shown["schema_version"] == 1
    assert shown["strategy"] == "named"
    wires = [[(w["name"], w["from"]) for w in part["inputs"]] for part in shown["parts"]]
    assert wires == [[("x", "input")], [("x", "input"), ("mask", "input"), ("q", 0)], [("ln", 1)]]
    assert [w["from"] for w in shown["outputs"]] == [2]


def test_a_second_split_leaves_no_parts_of_the_first(model, tmp_path):
    folder = tmp_path / "parts"
    assert run("split", model, "-o", folder, "--parts", "4", "--quiet") == 0
    (folder / "note.txt").write_text("mine")
    assert run("split", model, "-o", folder, "--parts", "2", "--strategy", "even") == 0
    assert sorted(p.name for p in folder.glob("*.onnx")) == ["part_00.onnx", "part_01.onnx"]
    assert len([*folder.glob("*.provenance.json")]) == 2
    assert (folder / "note.txt").read_text() == "mine"


def test_large_parts_have_data_of_their_own(model, tmp_path, monkeypatch):
    monkeypatch.setattr(onnx_io, "EXTERNAL_ABOVE_BYTES", 6000)
    folder = tmp_path / "parts"
    assert run("split", model, "-o", folder, "--at", "ln") == 0
    assert len([*folder.glob("part_00.onnx.*.data")]) == 1
    assert len([*folder.glob("part_01.onnx.*.data")]) == 1
    assert run("run", folder / "pipeline.json", "--inputs", tmp_path / "in.npz") == 0


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        (["--parts", "500"], "SPL004"),
        (["--parts", "2", "--layers-per-subgraph", "2"], "SPL003"),
        (["--at", "lnn"], "SPL006"),
        (["--parts", "2", "--strategy", "named"], "SPL003"),
        (["--parts", "2", "--input-shape", "x:1"], "MEM003"),
    ],
)
def test_refusals_write_nothing(model, tmp_path, capsys, arguments, code):
    folder = tmp_path / "parts"
    assert run("split", model, "-o", folder, *arguments) == 2
    assert f"error[{code}]" in capsys.readouterr().err
    assert [*folder.iterdir()] == []


def test_the_source_is_never_overwritten(tmp_path, capsys):
    source = save(mlp(), tmp_path / "part_00.onnx")
    before = source.read_bytes()
    assert run("split", source, "-o", tmp_path, "--parts", "2") == 2
    assert "IO001" in capsys.readouterr().err
    assert source.read_bytes() == before


def test_a_part_is_not_split_into_the_folder_of_its_pipeline(model, tmp_path, capsys):
    folder = tmp_path / "parts"
    assert run("split", model, "-o", folder, "--parts", "4", "--quiet") == 0
    assert run("split", folder / "part_03.onnx", "-o", folder, "--parts", "2") == 2
    assert "IO001" in capsys.readouterr().err
    assert run("run", folder / "pipeline.json", "--inputs", tmp_path / "in.npz") == 0


def test_examples_of_an_earlier_split_go(model, tmp_path):
    unit = cannc.load(model)
    unit.examples = golden_models.inputs(golden_models.transformer())
    folder = tmp_path / "parts"
    cannc.split(unit, parts=2, out=folder)
    assert (folder / "part_00.examples.npz").is_file()
    cannc.split(model, parts=2, out=folder)
    assert not [*folder.glob("*.npz")]


def test_the_class_and_the_library_call(tmp_path):
    model = golden_models.transformer()
    parts = cannc.GraphSplitter(parts=2).split(model, out=tmp_path, soc="Ascend310P3")
    assert [part.target.soc for part in parts] == ["Ascend310P3"] * 2
    saved = cannc.load(tmp_path / "part_01.onnx")
    assert len(saved.model.graph) == len(parts[1].model.graph)
    again = cannc.split(ir.from_proto(model), parts=2)
    names = [[v.name for v in part.model.graph.inputs] for part in again]
    assert names == [[v.name for v in part.model.graph.inputs] for part in parts]
    onnx.checker.check_model(tmp_path / "part_01.onnx")


def test_quantized_parts_report_their_own_weights():
    unit = cannc.quantize(golden_models.transformer())
    first, second = cannc.split(unit, cuts=["ln"])
    rows = [{row.weight for row in QuantReport.of(part).quantized} for part in (first, second)]
    assert rows == [{"wq", "wk", "wv", "wo"}, {"w1", "w2"}]
