"""The pyACL code path: order of calls and releases, gears and ranges, threads, memory."""

import threading
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from tests.support.acl import COPIED, SHARED, Recorded, write
from tests.support.gears import with_gears
from tests.support.models import mlp, parse

from cannc.compiler.core.errors import ModelError, ToolchainError, UsageError, notes
from cannc.compiler.om.gears import GearKind
from cannc.compiler.runtime.acl.calls import Calls
from cannc.compiler.runtime.acl.executor import AclExecutor
from cannc.compiler.runtime.acl.model import tensor_name
from cannc.compiler.runtime.acl.status import AclError
from cannc.compiler.runtime.fitting import GearRunner
from cannc.compiler.runtime.host_acl.acl import HostAcl
from cannc.compiler.runtime.naming import name_sizes

HEADER = '<ir_version: 10, opset_import: ["": 18]>'
FIXED = f"{HEADER} g (float[2,3] x) => (float[2,3] y) {{ y = Neg (x) }}"
BOTH = f"{HEADER} g (float[N,S] x, float16[N] b) => (float[N,S] y, float16[N] z)"
BOTH += " { y = Neg (x) z = Abs (b) }"
IMAGE = f"{HEADER} g (float[1,2,H,W] x) => (float[1,2,H,W] y) {{ y = Neg (x) }}"
ROWS = f"{HEADER} g (float[N,S] x) => (float[N,S] y)"
NON_ZERO = f"{HEADER} g (float[N] x) => (int64[1,M] y) {{ y = NonZero (x) }}"
RNG = np.random.default_rng(0)


def numbers(*shape):
    return RNG.standard_normal(shape).astype(np.float32)


@pytest.fixture(params=[SHARED, COPIED], ids=["shared", "copied"])
def api(request):
    api = HostAcl(run_mode=request.param)
    yield api
    assert api.left() == {}


def executor(api, path, in_flight=1):
    return AclExecutor(api, path, 0, in_flight)


def test_a_run(api, tmp_path):
    running = executor(api, write(parse(FIXED), tmp_path / "m.om"))
    assert [port.name for port in running.model.inputs] == ["x"]
    assert [port.name for port in running.model.outputs] == ["y"]
    for _ in range(3):
        x = numbers(2, 3)
        np.testing.assert_array_equal(running.run({"x": x}, None)["y"], -x)
    assert api.left()["memory"] == 2
    running.close()


def test_results_stay_after_later_runs_and_closing(api, tmp_path):
    running = executor(api, write(parse(FIXED), tmp_path / "m.om"))
    x = numbers(2, 3)
    first = running.run({"x": x}, None)["y"]
    running.run({"x": numbers(2, 3)}, None)
    running.close()
    np.testing.assert_array_equal(first, -x)


@pytest.mark.parametrize(("mode", "copies"), [(SHARED, 0), (COPIED, 2)])
def test_nothing_is_copied_where_memory_is_shared(mode, copies, tmp_path):
    api = Recorded(HostAcl(run_mode=mode))
    running = executor(api, write(parse(FIXED), tmp_path / "m.om"))
    running.run({"x": numbers(2, 3)}, None)
    assert api.names.count("rt.memcpy") == copies
    running.close()


def test_order_of_calls(tmp_path):
    api = Recorded(HostAcl(run_mode=COPIED))
    running = executor(api, write(parse(FIXED), tmp_path / "m.om"))
    running.run({"x": numbers(2, 3)}, None)
    running.close()
    kept = [n for n in api.names if not n.startswith(("mdl.get", "rt.get", "rt.set_context"))]
    buffer = ["rt.malloc", "create_data_buffer", "mdl.add_dataset_buffer"]
    assert kept == [
        *("init", "rt.set_device", "rt.create_context"),
        *("mdl.load_from_file", "mdl.create_desc"),
        *("mdl.create_dataset", *buffer, "mdl.create_dataset", *buffer),
        *("rt.memcpy", "mdl.execute", "rt.memcpy"),
        *("destroy_data_buffer", "rt.free", "mdl.destroy_dataset") * 2,
        *("mdl.destroy_desc", "mdl.unload", "rt.destroy_context", "rt.reset_device"),
    ]


def calls_of_one_run(path):
    """Return the calls that open, run and close; each could fail."""
    api = Recorded(HostAcl(run_mode=COPIED))
    running = executor(api, path)
    running.run({"x": numbers(2, 3)}, None)
    names = list(api.names)
    running.close()
    return [(name, names[: k + 1].count(name)) for k, name in enumerate(names)]


def run_once(api, path):
    running = executor(api, path)
    try:
        running.run({"x": numbers(2, 3)}, None)
    finally:
        running.close()


PLAIN = ("get_num", "_name_by_index", "_size_by_index", "data_type", "_format")


def test_whatever_call_fails_everything_is_released(tmp_path):
    path = write(parse(FIXED), tmp_path / "m.om")
    failing = [c for c in calls_of_one_run(path) if not any(part in c[0] for part in PLAIN)]
    makers = ("create_desc", "create_dataset", "create_data_buffer")
    seen = set()
    for name, time in failing:
        real = HostAcl(run_mode=COPIED)
        api = Recorded(real)
        is_maker = name.rsplit(".")[-1] in makers
        api.fail(name, 0 if is_maker else 507018, time)
        with pytest.raises(AclError) as error:
            run_once(api, path)
        assert error.value.call == f"acl.{name}"
        assert error.value.exit_code == 4
        if not is_maker:
            assert "507018: an exception in the AI CPU" in error.value.why
        assert real.left() == {}, name
        seen.add(name)
    assert {"init", "rt.set_device", "mdl.execute", "rt.malloc", "mdl.create_dataset"} <= seen


def test_a_run_that_failed_does_not_break_the_next(api, tmp_path):
    recorded = Recorded(api)
    running = executor(recorded, write(parse(FIXED), tmp_path / "m.om"))
    recorded.fail("mdl.execute", 507011, 2)
    x = numbers(2, 3)
    running.run({"x": x}, None)
    with pytest.raises(AclError, match="execute failed"):
        running.run({"x": x}, None)
    np.testing.assert_array_equal(running.run({"x": x}, None)["y"], -x)
    running.close()


@pytest.mark.parametrize(
    "name", ["rt.free", "mdl.unload", "mdl.destroy_desc", "destroy_data_buffer", "rt.reset_device"]
)
def test_a_release_that_fails_is_told_and_the_others_still_happen(name, tmp_path):
    api = Recorded(HostAcl())
    running = executor(api, write(parse(FIXED), tmp_path / "m.om"))
    running.run({"x": numbers(2, 3)}, None)
    api.fail(name, 507899)
    with pytest.raises(AclError) as error:
        running.close()
    assert error.value.call == f"acl.{name}"
    assert "rt.reset_device" in api.names  # the last of them


def test_a_failure_while_releasing_after_a_failure_is_a_note(tmp_path):
    api = Recorded(HostAcl())
    api.fail("mdl.get_desc", 100000)
    api.fail("mdl.unload", 107004)
    with pytest.raises(AclError) as error:
        executor(api, write(parse(FIXED), tmp_path / "m.om"))
    assert error.value.call == "acl.mdl.get_desc"
    assert "acl.mdl.unload failed" in notes(error.value)[0]


def test_a_call_that_an_old_release_lacks_is_named():
    with pytest.raises(ToolchainError) as error:
        Calls(HostAcl()).do("mdl.execute_v9", 1)
    assert error.value.code == "RUN031"
    assert "acl.mdl.execute_v9" in error.value.what


def test_the_process_may_have_started_pyacl_itself(tmp_path):
    api = HostAcl()
    assert api.init() == 0
    running = executor(api, write(parse(FIXED), tmp_path / "m.om"))
    running.close()
    assert api.finalize() == 0  # not ended by us


def test_two_models_share_a_device(api, tmp_path):
    path = write(parse(FIXED), tmp_path / "m.om")
    one, two = executor(api, path), executor(api, path)
    assert (api.left()["device"], api.left()["context"]) == (1, 2)
    x = numbers(2, 3)
    one.run({"x": x}, None)
    one.close()
    np.testing.assert_array_equal(two.run({"x": x}, None)["y"], -x)
    two.close()


GEARS = {
    "batch": (
        *(BOTH, GearKind.BATCH),
        [{"x": (n, 3), "b": (n,)} for n in (1, 4)],
        [(1,), (4,)],
    ),
    "image": (
        *(IMAGE, GearKind.IMAGE),
        [{"x": (1, 2, 8, 4)}, {"x": (1, 2, 4, 6)}],
        [(8, 4), (4, 6)],
    ),
    "dims": (
        *(BOTH, GearKind.DIMS),
        [{"x": (n, s), "b": (n,)} for n, s in ((1, 4), (2, 4), (2, 8))],
        [(1, 4, 1), (2, 4, 2), (2, 8, 2)],
    ),
}


@pytest.mark.parametrize("kind", GEARS)
def test_gears_of_each_kind_run_at_their_sizes(api, kind, tmp_path):
    text, number, sizes, rows = GEARS[kind]
    if kind == "batch":
        text = text.replace("[N,S]", "[N,3]")
    path = with_gears(parse(text), tmp_path / "m.om", sizes, rows, number).path
    running = executor(api, path)
    gears = running.model.gears
    assert gears.kind == number
    assert [gear.inputs for gear in gears.gears] == sizes
    assert [gear.sizes for gear in gears.gears] == rows
    for index in (1, 0, len(sizes) - 1):
        feeds = {name: numbers(*dims) for name, dims in sizes[index].items()}
        feeds = {n: a.astype(np.float16) if n == "b" else a for n, a in feeds.items()}
        results = running.run(feeds, index)
        np.testing.assert_array_equal(results["y"], -feeds["x"])
        if "b" in feeds:
            np.testing.assert_array_equal(results["z"], np.abs(feeds["b"]))
    running.close()


def test_sizes_of_a_device_model_are_named_by_what_grows_together(api, tmp_path):
    text, kind, sizes, rows = GEARS["dims"]
    running = executor(api, with_gears(parse(text), tmp_path / "m.om", sizes, rows, kind).path)
    model = running.model
    assert [port.shape for port in model.inputs] == [(None, None), (None,)]
    shapes = running.gear_results()
    assert shapes == [[(1, 4), (1,)], [(2, 4), (2,)], [(2, 8), (2,)]]
    inputs, outputs = name_sizes(model.inputs, model.outputs, model.gears, shapes)
    assert [p.shape for p in inputs] == [("size0", "size1"), ("size0",)]
    assert [p.shape for p in outputs] == [("size0", "size1"), ("size0",)]
    running.close()


def device_like(running, padding):
    """Return what a device's session does with gears: no graph judges the padding."""
    model = running.model
    ports = name_sizes(model.inputs, model.outputs, model.gears, running.gear_results())
    return GearRunner(running, model.gears, padding, ports, None)


def test_padding_without_a_graph_to_judge_it_is_done_twice(api, tmp_path):
    recorded = Recorded(api)
    path = with_gears(mlp(), tmp_path / "m.om", [{"x": (n, 8)} for n in (1, 4)]).path
    running = executor(recorded, path)
    runner = device_like(running, "batch")
    x = numbers(3, 8)
    whole = runner.run({"x": np.concatenate([x, x[:1]])})["y"]
    for count in (3, 1):  # the first padded run is judged by a second one
        before = recorded.names.count("mdl.execute")
        np.testing.assert_allclose(runner.run({"x": x})["y"], whole[:3], rtol=1e-5)
        assert recorded.names.count("mdl.execute") - before == (2 if count == 3 else 1)
    assert runner.run({"x": x[:0]})["y"].shape == (0, 4)
    running.close()


@pytest.mark.parametrize(
    "body", ["y = Softmax <axis = 1> (x)", "m = ReduceMean (x) y = Sub (x, m)"]
)
def test_padding_that_shows_is_refused_without_a_graph(api, body, tmp_path):
    sizes = [{"x": (2, 4)}, {"x": (2, 8)}]
    rows = [(2, 4), (2, 8)]
    model = parse(f"{ROWS} {{ {body} }}")
    running = executor(api, with_gears(model, tmp_path / "m.om", sizes, rows, GearKind.DIMS).path)
    with pytest.raises(UsageError) as error:
        device_like(running, "any").run({"x": numbers(2, 6)})
    assert error.value.code == "RUN017"
    running.close()


def test_ranges(api, tmp_path):
    running = executor(api, write(parse(f"{ROWS} {{ y = Neg (x) }}"), tmp_path / "m.om"))
    for shape in ((2, 3), (5, 7), (1, 1), (0, 3)):
        x = numbers(*shape)
        found = running.run({"x": x}, None)["y"]
        assert found.shape == shape
        np.testing.assert_array_equal(found, -x)
    assert api.left()["memory"] == 1  # what the runs allocated is freed
    running.close()


def test_sizes_that_only_the_run_knows(api, tmp_path):
    running = executor(api, write(parse(NON_ZERO), tmp_path / "m.om"))
    for values in ([1, 0, 2], [0, 0], [3, 3, 3, 3]):
        x = np.asarray(values, np.float32)
        np.testing.assert_array_equal(running.run({"x": x}, None)["y"], [np.flatnonzero(x)])
    running.close()


def test_threads_share_slots(api, tmp_path):
    running = executor(api, write(parse(FIXED), tmp_path / "m.om"), in_flight=3)
    barrier = threading.Barrier(6)

    def work(seed):
        barrier.wait()
        for k in range(20):
            x = np.full((2, 3), seed * 100 + k, np.float32)
            np.testing.assert_array_equal(running.run({"x": x}, None)["y"], -x)

    with ThreadPoolExecutor(6) as pool:
        for done in [pool.submit(work, seed) for seed in range(6)]:
            done.result()
    assert api.left()["dataset"] <= 6  # two per slot
    running.close()


def test_threads_on_gears_get_their_own_sizes(api, tmp_path):
    path = with_gears(mlp(), tmp_path / "m.om", [{"x": (n, 8)} for n in (1, 2, 4)]).path
    running = executor(api, path, in_flight=3)

    def work(gear):
        batch = running.model.gears.gears[gear].sizes[0]
        return {running.run({"x": numbers(batch, 8)}, gear)["y"].shape[0] for _ in range(20)}

    with ThreadPoolExecutor(3) as pool:
        assert list(pool.map(work, range(3))) == [{1}, {2}, {4}]
    running.close()


@pytest.mark.parametrize(
    ("name", "tensor"),
    [("Conv_3:0:logits", "logits"), ("a:1:b:c", "b:c"), ("plain", "plain"), ("a:0", "a:0")],
)
def test_device_like_names(name, tensor):
    assert tensor_name(name) == tensor


def test_an_input_for_run_time_preprocessing_is_refused(api, tmp_path):
    text = FIXED.replace(" x", " ascend_dynamic_aipp_data").replace(
        "(x)", "(ascend_dynamic_aipp_data)"
    )
    with pytest.raises(ModelError) as error:
        executor(api, write(parse(text), tmp_path / "m.om"))
    assert error.value.code == "RUN033"
