"""Sessions: taps, sequences, optionals, strings, weights that stay mapped, errors."""

import logging
from pathlib import Path

import ml_dtypes
import numpy as np
import onnx
import onnx_ir as ir
import pytest
from onnx import TensorProto, helper, numpy_helper
from tests.support.models import mlp, parse
from tests.support.runner import run_plain

from cannc.compiler.core.errors import CanncError, ModelError, UsageError
from cannc.compiler.core.onnx_io import read_model
from cannc.compiler.runtime.host_runner import HostRunner
from cannc.compiler.runtime.host_session import HostSession


def session(proto: onnx.ModelProto, **options) -> HostSession:
    return HostSession(ir.from_proto(proto), **options)


def external_model(folder: Path, rows: int = 64) -> tuple[Path, np.ndarray]:
    """A model whose weights lie in two files in two folders."""
    weight = np.random.default_rng(0).standard_normal((rows, rows)).astype(np.float32)
    model = parse(
        f"g (float[N,{rows}] x) => (float[N,{rows}] y) {{ h = MatMul (x, a) y = MatMul (h, b) }}",
        a=weight,
        b=weight.T.copy(),
    )
    (folder / "other").mkdir()
    for tensor, location in zip(model.graph.initializer, ("a.bin", "other/b.bin"), strict=True):
        # Not aligned to a page, as inside an .om.
        (folder / location).write_bytes(bytes(512) + tensor.raw_data)
        onnx.external_data_helper.set_external_data(tensor, location, 512, len(tensor.raw_data))
        tensor.ClearField("raw_data")
    path = folder / "m.onnx"
    path.write_bytes(model.SerializeToString())
    return path, weight


def test_outputs_come_first_then_taps():
    runner = session(mlp(), taps=["a", "y", "h"])
    x = np.random.default_rng(1).standard_normal((3, 8)).astype(np.float32)
    result = runner.run({"x": x})
    assert list(result) == ["y", "a", "h"] == [port.name for port in runner.outputs]
    assert (result["a"] == np.maximum(result["a"], 0)).all()
    np.testing.assert_allclose(result["y"], run_plain(mlp(), {"x": x})["y"], rtol=1e-5)


def test_a_cast_input_is_noted_once_per_session(caplog):
    caplog.set_level(logging.INFO)
    running = session(mlp())
    for _ in range(3):
        running.run({"x": np.zeros((1, 8))})
    notes = [r.getMessage() for r in caplog.records if r.name.startswith("cannc")]
    assert notes == ["input x: float64 cast to float32"]


def test_inputs_and_weights_can_be_tapped():
    result = session(mlp(), taps=["x", "w1"]).run({"x": np.zeros((1, 8), np.float32)})
    assert result["x"].shape == (1, 8)
    assert result["w1"].shape == (8, 16)


def test_an_unknown_tap_names_the_nearest():
    with pytest.raises(UsageError, match="did you mean 'hb'") as error:
        session(mlp(), taps=["hbb"])
    assert error.value.code == "RUN004"


def test_external_weights_stay_mapped(tmp_path):
    path, weight = external_model(tmp_path)
    model = read_model(path)
    x = np.eye(64, dtype=np.float32)
    for options in ({}, {"fuse": False}, {"low_memory": True}):
        running = HostSession(model, **options)
        assert running._session._held == {}
        np.testing.assert_allclose(running.run({"x": x})["y"], weight @ weight.T, rtol=1e-4)
    assert model.graph.initializers["a"].const_value.raw is None  # nobody read it through Python


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="needs Linux's memory counters")
def test_low_memory_keeps_weights_out_of_memory(tmp_path):
    path, _ = external_model(tmp_path, rows=2048)  # 33 MB

    def anonymous_bytes() -> int:
        lines = Path("/proc/self/status").read_text().splitlines()
        return 1024 * next(int(line.split()[1]) for line in lines if line.startswith("RssAnon"))

    model = read_model(path)
    before = anonymous_bytes()
    running = HostSession(model, low_memory=True)
    running.run({"x": np.zeros((1, 2048), np.float32)})
    assert anonymous_bytes() - before < 12e6


def test_unused_weights_are_left_out():
    text = "g (float[2] x) => (float[2] y) { y = Neg (x) }"
    running = session(parse(text, w=np.ones((512, 4), np.float32)))
    assert running.run({"x": np.ones(2, np.float32)})["y"].tolist() == [-1, -1]


def test_weights_over_the_inline_limit_never_pass_through_protobuf():
    big = np.ones((512, 4), np.float32)
    model = ir.from_proto(
        parse("g (float[4,N] x) => (float[512,N] y) { y = MatMul (w, x) }", w=big)
    )
    running = HostSession(model)
    assert list(running._session._held) == ["w"]
    assert (running.run({"x": np.ones((4, 2), np.float32)})["y"] == 4).all()
    assert model.graph.initializers["w"].const_value.numpy().shape == (512, 4)  # untouched


def test_a_large_weight_of_a_branch_is_handed_over_too():
    def branch(name: str, value: float) -> onnx.GraphProto:
        weight = numpy_helper.from_array(np.full(600, value, np.float32), "w")  # same name in both
        out = helper.make_tensor_value_info(f"{name}_y", TensorProto.FLOAT, [600])
        node = helper.make_node("Mul", ["x", "w"], [f"{name}_y"])
        return helper.make_graph([node], name, [], [out], [weight])

    node = helper.make_node(
        "If", ["c"], ["y"], then_branch=branch("t", 2), else_branch=branch("e", 3)
    )
    graph = helper.make_graph(
        [node],
        "g",
        [
            helper.make_tensor_value_info("c", TensorProto.BOOL, []),
            helper.make_tensor_value_info("x", TensorProto.FLOAT, [600]),
        ],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [600])],
    )
    proto = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=10)
    running = session(proto)
    assert len(running._session._held) == 2
    x = np.ones(600, np.float32)
    assert running.run({"c": np.array(True), "x": x})["y"][0] == 2
    assert running.run({"c": np.array(False), "x": x})["y"][0] == 3


def test_initializers_that_are_inputs_too_are_constants():
    model = parse(
        "g (float[2] x, float[2] w) => (float[2] y) { y = Add (x, w) }", w=np.ones(2, "f")
    )
    running = session(model)
    assert [port.name for port in running.inputs] == ["x"]
    assert running.run({"x": np.zeros(2, np.float32)})["y"].tolist() == [1, 1]


def test_sequences_in_and_out():
    model = parse(
        "g (seq(float[2]) s) => (seq(float[2]) t) { i = Constant <value_int = 0> ()"
        " a = SequenceAt (s, i) t = SequenceInsert (s, a) }"
    )
    a = np.array([1, 2], np.float32)
    result = session(model).run({"s": [a, a + 1]})
    assert [item.tolist() for item in result["t"]] == [[1, 2], [2, 3], [1, 2]]


def test_optionals_take_none_and_values():
    model = parse("g (optional(float[2]) o) => (bool b) { b = OptionalHasElement (o) }")
    running = session(model)
    assert not running.run({"o": None})["b"]
    assert not running.run({})["b"]
    assert running.run({"o": np.zeros(2, np.float32)})["b"]


def test_strings():
    model = parse("g (string[N] s) => (string[N] t) { t = Identity (s) }")
    assert session(model).run({"s": np.array(["a", "Ä"])})["t"].tolist() == ["a", "Ä"]


@pytest.mark.parametrize(
    "dtype", [ml_dtypes.bfloat16, ml_dtypes.float8_e4m3fn, ml_dtypes.float8_e5m2, ml_dtypes.int4]
)
def test_dtypes_that_numpy_lacks(dtype):
    name = np.dtype(dtype).name.replace("8_e", "8e")
    code = int(ir.DataType.from_numpy(np.dtype(dtype)))
    model = parse(
        f'<ir_version: 10, opset_import: ["": 21]> g ({name}[3] x) => ({name}[3] y, float[3] z)'
        f" {{ z = Cast <to = 1> (x) y = Cast <to = {code}> (z) }}"
    )
    x = np.array([0, 1, -3]).astype(dtype)
    result = session(model).run({"x": x})
    assert result["y"].dtype == dtype
    assert (result["y"] == x).all()
    assert result["z"].tolist() == [0, 1, -3]


def test_a_refused_model_names_the_node():
    model = parse("g (float[2] x) => (float[2] y) { [bad] y = local.Nothing (x) }")
    model.opset_import.append(helper.make_opsetid("local", 1))
    with pytest.raises(ModelError, match="Nothing") as error:
        session(model)
    assert error.value.code == "RUN001"


def test_a_failing_node_is_named():
    model = parse("g (float[N] x, int64[M] s) => (float[K] y) { [bend] y = Reshape (x, s) }")
    with pytest.raises(ModelError) as error:
        session(model).run({"x": np.zeros(3, np.float32), "s": np.array([7])})
    assert error.value.code == "RUN002"
    assert error.value.where == "node bend"


def test_errors_are_not_printed(capfd):
    model = parse("g (float[N] x, int64[M] s) => (float[K] y) { y = Reshape (x, s) }")
    with pytest.raises(CanncError):
        session(model).run({"x": np.zeros(3, np.float32), "s": np.array([7])})
    out = capfd.readouterr()
    assert out.out == out.err == ""


def test_the_number_of_threads_is_checked(monkeypatch):
    monkeypatch.setenv("CANNC_THREADS", "many")
    with pytest.raises(UsageError) as error:
        session(mlp())
    assert error.value.code == "RUN003"


def test_the_runner_needs_only_what_is_fetched():
    model = ir.from_proto(
        parse(
            "g (float[2] x, float[2] unused) => (float[2] y, float[2] z)"
            " { a = Add (w, w) y = Mul (x, a) [bad] z = Reshape (unused, s) }",
            w=np.full(2, 3.0, np.float32),
            s=np.array([7]),
        )
    )
    before = ir.to_proto(model)
    runner = HostRunner()
    assert runner.run(model, {}, ["a"])["a"].tolist() == [6, 6]
    result = runner.run(
        model, {"x": np.ones(2, np.float32), "unused": np.ones(2, np.float32)}, ["y", "a"]
    )
    assert list(result) == ["y", "a"]
    assert ir.to_proto(model) == before


def test_the_runner_returns_declared_dtypes():
    model = ir.from_proto(
        parse("g (float16[1] x) => (float16[1] y) { a = Exp (x) y = Mul (a, a) }")
    )
    result = HostRunner().run(model, {"x": np.ones(1, np.float16)}, ["a"])
    assert result["a"].dtype == np.float16
