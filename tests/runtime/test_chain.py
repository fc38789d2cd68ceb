"""``pipeline.json``: parts on disk, run one after the other, and what is refused."""

import json

import numpy as np
import onnx
import pytest
from tests.support import golden_models
from tests.support.models import mlp, parse

import cannc
from cannc.compiler.core.errors import MissingToolError, ModelError, UsageError
from cannc.compiler.runtime.chain import Chain, open_session
from cannc.compiler.runtime.host_session import HostSession
from cannc.compiler.runtime.session import Session


@pytest.fixture
def folder(tmp_path):
    cannc.split(golden_models.transformer(), parts=3, out=tmp_path / "parts")
    return tmp_path / "parts"


def test_a_chain_is_used_like_a_session(folder):
    model = golden_models.transformer()
    feeds = golden_models.inputs(model)
    expected = HostSession(cannc.load(model).model).run(feeds)
    with open_session(folder / "pipeline.json") as chain:
        assert isinstance(chain, Chain)
        assert [str(port) for port in chain.inputs] == ["float[B,S,32]", "int64[B,S]"]
        assert [port.name for port in chain.outputs] == ["y"]
        assert chain.init_ms > 0
        for _ in range(2):
            results = chain.run(feeds)
            np.testing.assert_allclose(results["y"], expected["y"], rtol=1e-5, atol=1e-6)
    with pytest.raises(UsageError) as refused:
        chain.run(feeds)
    assert refused.value.code == "RUN014"


def test_feeds_are_checked_for_the_whole(folder):
    feeds = golden_models.inputs(golden_models.transformer())
    chain = Chain(folder / "pipeline.json")
    for changed, code in (
        ({"x": feeds["x"]}, "INP001"),
        ({**feeds, "ln": feeds["x"]}, "INP002"),
        ({**feeds, "mask": feeds["mask"][:1]}, "INP004"),
        ({**feeds, "x": np.full_like(feeds["x"], np.nan)}, "INP006"),
    ):
        with pytest.raises(UsageError) as refused:
            chain.run(changed)
        assert refused.value.code == code
    narrow = chain.run({**feeds, "mask": feeds["mask"].astype(np.int32)})
    np.testing.assert_array_equal(narrow["y"], chain.run(feeds)["y"])


def test_order_of_outputs_and_values_handed_on(tmp_path):
    model = parse(
        """g (float[N, 4] x, int64[M] ids)
             => (float[N, 4] y, int64[M] ids, float[N, 4] early, float[4, 4] w) {
            early = MatMul(x, w)
            b = Relu(early)
            y = MatMul(b, w)
        }""",
        w=np.eye(4, dtype=np.float32) * 2,
    )
    cannc.split(model, parts=3, out=tmp_path)
    x, ids = np.ones((1, 4), np.float32), np.arange(3)
    results = Chain(tmp_path / "pipeline.json").run({"x": x, "ids": ids})
    assert list(results) == ["y", "ids", "early", "w"]
    np.testing.assert_array_equal(results["y"], 4 * x)
    np.testing.assert_array_equal(results["ids"], ids)
    np.testing.assert_array_equal(results["w"], 2 * np.eye(4))


def test_half_precision_is_rounded_the_same(tmp_path):
    unit = cannc.optimize(golden_models.cnn(), precision="fp16")
    cannc.split(unit, parts=4, out=tmp_path)
    feeds = golden_models.inputs(golden_models.cnn())
    expected = HostSession(unit.model).run(feeds)["y"]
    results = Chain(tmp_path / "pipeline.json").run(feeds)
    assert results["y"].dtype == expected.dtype
    np.testing.assert_allclose(results["y"], expected, rtol=2e-3, atol=2e-3)


def spoil(folder, change):
    path = folder / "pipeline.json"
    data = json.loads(path.read_text())
    change(data)
    path.write_text(json.dumps(data))
    return path


@pytest.mark.parametrize(
    ("change", "why"),
    [
        (lambda d: d.update(schema_version=2), "schema_version"),
        (lambda d: d.pop("parts"), "parts"),
        (lambda d: d.update(parts=[]), "no parts"),
        (lambda d: d["parts"].reverse(), "nothing before part 0"),
        (lambda d: d["outputs"][0].update(name="z"), "'z'"),
        (lambda d: d["outputs"][0].update({"from": -1}), "'y'"),
        (lambda d: d["parts"][0].update(file="../part_00.onnx"), "not beside it"),
    ],
)
def test_damaged_pipeline_files(folder, change, why):
    with pytest.raises(ModelError) as refused:
        Chain(spoil(folder, change))
    assert refused.value.code == "PIPE001"
    assert why in refused.value.why


def test_a_part_that_was_changed_is_refused(folder):
    onnx.save(mlp(), folder / "part_01.onnx")
    with pytest.raises(ModelError) as refused:
        Chain(folder / "pipeline.json")
    assert refused.value.code == "PIPE002"
    (folder / "part_01.onnx").unlink()
    with pytest.raises(UsageError) as refused:
        Chain(folder / "pipeline.json")
    assert refused.value.code == "IO010"


def test_no_file_no_text_no_device(tmp_path):
    with pytest.raises(UsageError) as refused:
        Chain(tmp_path / "pipeline.json")
    assert refused.value.code == "IO010"
    (tmp_path / "pipeline.json").write_text("no json")
    with pytest.raises(ModelError) as refused:
        Chain(tmp_path / "pipeline.json")
    assert refused.value.code == "PIPE001"
    with pytest.raises(MissingToolError) as missing:
        Chain(tmp_path / "pipeline.json", backend="acl")
    assert missing.value.code == "RUN013"


def test_artifacts_open_as_sessions(tmp_path):
    out = cannc.compile(mlp(), tmp_path / "m.om", backend="host", soc="Ascend910B4")
    with open_session(out) as session:
        assert isinstance(session, Session)
