"""Sessions: threads, runs in flight, closing, leaks, and devices that a host stands in for."""

import gc
import sys
import threading
import types
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import onnx_ir as ir
import pytest
from tests.support import device_om
from tests.support.acl import COPIED, write
from tests.support.gears import with_gears
from tests.support.models import mlp, parse

from cannc.compiler.core.errors import MissingToolError, ModelError, UsageError
from cannc.compiler.om.reader import OmFile
from cannc.compiler.runtime.acl.status import AclError
from cannc.compiler.runtime.host_acl.acl import HostAcl, host_acl
from cannc.compiler.runtime.host_acl.loaded import LoadedModel
from cannc.compiler.runtime.host_session import HostSession
from cannc.compiler.runtime.session import Session

HEADER = '<ir_version: 10, opset_import: ["": 18]>'
RNG = np.random.default_rng(0)


def numbers(*shape):
    return RNG.standard_normal(shape).astype(np.float32)


@pytest.fixture
def left():
    """The handles that this process's host acl holds; they are the same after the test."""
    api = host_acl(low_memory=False)
    before = api.left()
    yield api.left
    assert api.left() == before


@pytest.fixture
def artifact(tmp_path, left):
    return write(mlp(), tmp_path / "m.om")


def test_a_session_goes_through_the_acl_path_and_releases_all(artifact, left):
    before = left()
    with Session(artifact) as session:
        session.run({"x": numbers(2, 8)})
        held = left()
        assert held["model"] == before.get("model", 0) + 1
        assert held["dataset"] == before.get("dataset", 0) + 2
    assert left() == before


def test_both_phases_are_measured(artifact):
    with Session(artifact) as session:
        assert session.init_ms > 0
        assert (session.steady.runs, session.steady.mean_ms) == (0, 0)
        session.run({"x": numbers(2, 8)})
        assert session.steady.mean_ms == session.steady.first_ms > 0
        session.run({"x": numbers(2, 8)})
        assert session.steady.runs == 2
        assert session.steady.mean_ms == pytest.approx(
            session.steady.seconds * 1e3 - session.steady.first_ms
        )


def test_runs_in_flight(artifact):
    reference = HostSession(ir.from_proto(mlp()))
    feeds = [{"x": numbers(n, 8)} for n in range(1, 9)]
    with Session(artifact, in_flight=3) as session:
        runs = [session.submit(feed) for feed in feeds]
        for feed, run in zip(feeds, runs, strict=True):
            np.testing.assert_array_equal(run.result()["y"], reference.run(feed)["y"])
        failing = session.submit({"x": numbers(2, 7)})
        assert failing.exception().code == "INP004"
    with pytest.raises(UsageError) as error:
        session.submit(feeds[0])
    assert error.value.code == "RUN014"
    with pytest.raises(UsageError) as error:
        Session(artifact, in_flight=0)
    assert error.value.code == "RUN019"


def test_closing_waits_for_runs(artifact, monkeypatch):
    began, may_end = threading.Event(), threading.Event()
    real = LoadedModel.run

    def slow(self, feeds, gear):
        began.set()
        assert may_end.wait(60)
        return real(self, feeds, gear)

    monkeypatch.setattr(LoadedModel, "run", slow)
    session = Session(artifact)
    run = session.submit({"x": numbers(2, 8)})
    assert began.wait(60)
    with ThreadPoolExecutor(1) as pool:
        closing = pool.submit(session.close)
        assert not closing.done()
        may_end.set()
        closing.result()
    assert run.result()["y"].shape == (2, 4)


def test_threads_use_one_session(artifact):
    reference = HostSession(ir.from_proto(mlp()))
    with Session(artifact, in_flight=2) as session:

        def work(batch):
            x = np.full((batch, 8), batch, np.float32)
            for _ in range(20):
                found = session.run({"x": x})["y"]
                np.testing.assert_array_equal(found, reference.run({"x": x})["y"])

        with ThreadPoolExecutor(6) as pool:
            list(pool.map(work, range(1, 7)))
        assert session.steady.runs == 120


def resident_bytes():
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * 4096


@pytest.mark.skipif(not Path("/proc/self/statm").is_file(), reason="needs Linux")
def test_ten_thousand_runs_leak_nothing(artifact, left):
    """Each run holds 256 KB; kept once in a hundred runs, they would add 25 MB."""
    x = numbers(8192, 8)
    with Session(artifact) as session:
        for _ in range(500):
            session.run({"x": x})
        gc.collect()
        before, handles = resident_bytes(), left()
        for _ in range(10_000):
            session.run({"x": x})
        gc.collect()
        assert left() == handles
        assert resident_bytes() - before < 10e6


def test_opening_and_closing_leaks_no_handles(artifact, left):
    handles = left()
    for _ in range(50):
        with Session(artifact) as session:
            session.run({"x": numbers(1, 8)})
    assert left() == handles


def test_a_node_that_fails_is_told_as_the_host_tells_it(tmp_path, left):
    text = f"{HEADER} g (float[N] x, int64[1] n) => (float[M] y) {{ y = Reshape (x, n) }}"
    with Session(write(parse(text), tmp_path / "m.om")) as session:
        with pytest.raises(ModelError) as error:
            session.run({"x": numbers(4), "n": np.array([3])})
        assert error.value.code == "RUN002"
        assert isinstance(error.value.__cause__, AclError)
        assert session.run({"x": numbers(4), "n": np.array([4])})["y"].shape == (4,)


@pytest.mark.parametrize(
    ("text", "feeds"),
    [
        ("g (string[2] x) => (string[2] y) { y = Identity (x) }", {"x": np.array(["a", "b"])}),
        (
            "g (float[2] x) => (seq(float[1]) y) { y = SplitToSequence (x) }",
            {"x": np.ones(2, np.float32)},
        ),
    ],
)
def test_what_no_device_takes_runs_on_the_host_directly(text, feeds, tmp_path, left):
    before = left()
    with Session(write(parse(f"{HEADER} {text}"), tmp_path / "m.om")) as session:
        assert len(session.run(feeds)["y"]) == 2
        assert left() == before


def put_acl(monkeypatch, api):
    """Make ``import acl`` give this."""
    api.__spec__ = types.SimpleNamespace(name="acl")
    monkeypatch.setitem(sys.modules, "acl", api)
    return api


def test_no_device(artifact, tmp_path, monkeypatch):
    compiled = device_om.device_om(tmp_path / "net.om")
    for path, backend in ((artifact, "acl"), (compiled, "acl"), (compiled, "auto")):
        with pytest.raises(MissingToolError) as error:
            Session(path, backend)
        assert (error.value.code, error.value.exit_code) == ("RUN032", 3)
        assert "not installed" in error.value.why
        assert "npu-smi" in error.value.fix
    with pytest.raises(MissingToolError) as error:
        Session(compiled, "host")
    assert error.value.code == "RUN010"
    fake = types.ModuleType("acl")
    fake.rt = types.SimpleNamespace(get_device_count=lambda: (0, 0))
    put_acl(monkeypatch, fake)
    with pytest.raises(MissingToolError) as error:
        Session(compiled)
    assert "sees no device" in error.value.why


def test_a_device_that_is_not_there_and_an_artifact_for_the_host(artifact, monkeypatch):
    put_acl(monkeypatch, HostAcl())
    with pytest.raises(MissingToolError) as error:
        Session(artifact, "acl", 5)
    assert "1 devices" in error.value.why
    with pytest.raises(ModelError) as error:
        Session(artifact, "acl")
    assert error.value.code == "RUN013"


@pytest.fixture
def device(tmp_path, monkeypatch):
    """A device's .om, and pyACL that loads a model with gears for it."""
    api = put_acl(monkeypatch, HostAcl(run_mode=COPIED))
    path = device_om.device_om(tmp_path / "net.om").resolve()
    gears = with_gears(mlp(), tmp_path / "m.om", [{"x": (n, 8)} for n in (1, 4)]).path
    with api.mdl.offering(path, LoadedModel(OmFile.open(gears))):
        yield path, api
    assert api.left() == {}


def test_a_device_artifact_goes_the_same_way(device):
    path, api = device
    reference = HostSession(ir.from_proto(mlp()))
    with Session(path) as session:
        assert session.device_name == "host (device 0)"  # what this acl calls itself
        assert [gear.sizes for gear in session.gears] == [(1,), (4,)]
        assert [str(port) for port in session.inputs] == ["float[size0,8]"]
        assert [port.name for port in session.outputs] == ["y"]
        for batch in (1, 3, 4):
            x = numbers(batch, 8)
            found = session.run({"x": x})["y"]
            np.testing.assert_allclose(found, reference.run({"x": x})["y"], rtol=1e-5, atol=1e-6)
        assert api.left()["memory"] == 3


def test_what_a_device_refuses_is_explained(device, monkeypatch):
    path, api = device
    monkeypatch.setattr(api.mdl, "load_from_file", lambda _: (0, 507008))
    with pytest.raises(AclError) as error:
        Session(path)
    assert (error.value.code, error.value.exit_code) == ("RUN030", 4)
    assert "507008: the model is for another SoC" in error.value.why
    assert "--soc" in error.value.fix
