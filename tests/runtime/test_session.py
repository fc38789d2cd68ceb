"""Artifacts, sessions over them, and measuring."""

from pathlib import Path

import numpy as np
import onnx_ir as ir
import pytest
from tests.support.models import mlp, parse, save

from cannc.compiler.core.errors import ModelError, UsageError
from cannc.compiler.core.unit import CompileUnit
from cannc.compiler.om.writer import write_om
from cannc.compiler.runtime.artifact import load_artifact
from cannc.compiler.runtime.host_session import HostSession
from cannc.compiler.runtime.latency import Latency, measure
from cannc.compiler.runtime.session import Session


@pytest.fixture
def artifact(tmp_path: Path) -> Path:
    unit = CompileUnit.of(ir.from_proto(mlp()))
    unit.stamp()
    write_om(unit.model, tmp_path / "m.om", name="m", attributes={})
    return tmp_path / "m.om"


def test_only_the_om_is_read(artifact, tmp_path):
    alone = tmp_path / "elsewhere"
    alone.mkdir()
    moved = artifact.rename(alone / "moved.om")
    x = np.random.default_rng(0).standard_normal((2, 8)).astype(np.float32)
    with Session(moved) as session:
        assert session.device_name == "host (simulated float16)"
        assert [str(port) for port in session.inputs] == ["float[N,8]"]
        assert [port.name for port in session.outputs] == ["y"]
        assert session.init_ms > 0
        result = session.run({"x": x})
    np.testing.assert_array_equal(result["y"], HostSession(ir.from_proto(mlp())).run({"x": x})["y"])


def test_a_closed_session_says_so(artifact):
    session = Session(artifact, "host")
    session.close()
    session.close()
    with pytest.raises(UsageError) as error:
        session.run({"x": np.zeros((1, 8), np.float32)})
    assert error.value.code == "RUN014"


def test_nan_is_refused_unless_allowed(artifact):
    x = np.full((1, 8), np.nan, np.float32)
    with Session(artifact) as session:
        with pytest.raises(UsageError) as error:
            session.run({"x": x})
        assert error.value.code == "INP006"
        assert session.run({"x": x}, allow_nan=True)["y"].shape == (1, 4)


def test_unknown_backends_and_files(artifact, tmp_path):
    with pytest.raises(UsageError) as error:
        Session(artifact, "gpu")
    assert error.value.code == "RUN011"
    with pytest.raises(UsageError, match=r"runs \.om files") as error:
        Session(save(mlp(), tmp_path / "m.onnx"))
    assert "cannc compile" in error.value.fix
    (tmp_path / "text.om").write_text("no model")
    with pytest.raises(ModelError):
        Session(tmp_path / "text.om")
    with pytest.raises(UsageError) as error:
        Session(tmp_path / "none.om")
    assert error.value.code == "IO010"


def test_provenance_travels_in_the_artifact(artifact):
    unit = load_artifact(artifact)
    assert {fate.kind for fate in unit.fates()} == {"same"}
    assert unit.provenance.digest == CompileUnit.of(ir.from_proto(mlp())).provenance.digest


def test_an_onnx_file_is_an_artifact_too(tmp_path):
    unit = load_artifact(save(mlp(), tmp_path / "m.onnx"))
    assert unit.source == tmp_path / "m.onnx"


def test_random_inputs(artifact, tmp_path):
    with Session(artifact) as session, pytest.raises(UsageError) as error:
        session.random_inputs()
    assert error.value.code == "INP007"
    model = parse("g (float16[2] x, int64[3] n, bool[1] b) => (float16[2] y) { y = Neg (x) }")
    write_om(ir.from_proto(model), tmp_path / "r.om", name="r", attributes={})
    with Session(tmp_path / "r.om") as session:
        one, two, other = (session.random_inputs(seed) for seed in (0, 0, 1))
        assert {k: v.dtype.name for k, v in one.items()} == {
            "x": "float16",
            "n": "int64",
            "b": "bool",
        }
        assert all(np.array_equal(one[name], two[name]) for name in one)
        assert not np.array_equal(one["x"], other["x"])
        session.run(one)


def test_latency_figures():
    latency = Latency.of([k / 1000 for k in range(1, 102)])
    assert (latency.runs, latency.min_ms, latency.max_ms) == (101, 1, 101)
    assert latency.p50_ms == pytest.approx(51)
    assert latency.p90_ms == pytest.approx(91)
    assert latency.p99_ms == pytest.approx(100)
    assert latency.mean_ms == pytest.approx(51)
    assert latency.std_ms == pytest.approx(np.std(np.arange(1, 102), ddof=1))
    assert latency.per_second == pytest.approx(1000 / 51)
    assert latency.jitter
    assert not Latency.of([0.01] * 5).jitter
    assert set(latency.to_dict()) >= {"p50_ms", "p99_ms", "jitter"}
    assert "P50 51.00 ms" in str(latency)


def test_throughput_of_runs_that_overlap_is_by_the_clock():
    assert Latency.of([2.0, 2.0], wall=2.0).per_second == 1
    assert "1.0 runs/s" in str(Latency.of([2.0, 2.0], wall=2.0))


class Doubling:
    """Returns twice what it gets; counts runs."""

    def __init__(self):
        self.fed = []

    def run(self, feeds):
        self.fed.append(feeds["n"])
        return {"n": 2 * feeds["n"]}


@pytest.mark.parametrize("in_flight", [1, 3])
def test_measuring_runs_warmup_and_repeats(in_flight):
    session, kept = Doubling(), []
    samples = [{"n": n} for n in range(9)]
    latency = measure(
        *(session, samples, lambda index, outputs: kept.append((index, outputs["n"]))),
        warmup=2,
        repeat=3,
        in_flight=in_flight,
    )
    assert kept == [(n, 2 * n) for n in range(9)]
    assert latency.runs == 27
    assert sorted(session.fed) == sorted([0, 0, *[*range(9)] * 3])


@pytest.mark.parametrize("bad", [{"repeat": 0}, {"warmup": -1}, {"in_flight": 0}])
def test_measuring_nothing_is_refused(bad):
    with pytest.raises(UsageError) as error:
        measure(Doubling(), [{"n": 1}], lambda *_: None, **bad)
    assert error.value.code == "RUN020"
