"""ONNX models and host artifacts, which are ONNX models: graph, weights, and what cannc left."""

import numpy as np
import onnx
import pytest
from onnx import helper as h
from tests.support.models import mlp, parse, save
from tests.support.om_files import branching, written

import cannc
from cannc.compiler.core.errors import ModelError
from cannc.compiler.inspection.inspect import inspect_file
from cannc.compiler.inspection.sections import sections
from cannc.compiler.om.writer import write_om


def test_an_onnx_model(tmp_path):
    found = inspect_file(save(mlp(), tmp_path / "m.onnx"), with_graph=True)
    (model,) = found.models
    assert (found.format, found.kind, found.header, found.cannc) == ("onnx", "onnx", None, None)
    assert found.onnx.opsets == {"ai.onnx": 18}
    assert found.onnx.ir_version == 10
    assert [(t.name, t.dtype, t.dims) for t in model.inputs] == [("x", "float32", ("N", 8))]
    assert [(t.name, t.dims) for t in model.outputs] == [("y", ("N", 4))]
    assert model.ops == {"Add": 2, "MatMul": 2, "Relu": 1}
    assert model.weights.by_dtype == {"float32": 4 * (8 * 16 + 16 + 16 * 4 + 4)}
    assert model.weights.by_op == {"MatMul": 768, "Add": 80}
    largest = model.weights.largest[0]
    assert (largest.name, largest.used_by, largest.dims) == ("w1", "MatMul_0", (8, 16))
    assert str(model.graph[0].ops[1]) == "Add_1  Add(MatMul_0:0, b1) -> undefined[?]"
    assert model.graph[0].outputs == ("Add_4:0",)


def test_nested_graphs_functions_and_metadata(tmp_path):
    proto = branching()
    proto.metadata_props.add(key="long", value="x" * 1000)
    found = inspect_file(save(proto, tmp_path / "m.onnx"), with_graph=True)
    (model,) = found.models
    assert model.graphs == {"g": 4, "if.then_branch/": 1, "if.else_branch/": 1}
    assert model.ops["npu::Twice"] == 1
    assert [(f.domain, f.name, f.nodes) for f in found.onnx.functions] == [("npu", "Twice", 1)]
    assert found.onnx.metadata["long"] == "<1000 bytes>"
    inner = {g.name: g for g in model.graph}["if.else_branch/"]
    assert inner.ops[0].inputs == ("mm:0", "w2")
    # A constant that only a branch reads is charged to the op there.
    (w2,) = (w for w in model.weights.largest if w.name == "w2")
    assert (w2.used_by, w2.op_type) == ("in_else", "Mul")


def test_constants_of_nodes_count_as_weights(tmp_path):
    proto = parse(
        """g (float[2] x) => (float[2] y) {
            c = Constant <value = float[2] {1.0, 2.0}> ()
            y = Add(x, c)
        }"""
    )
    weights = inspect_file(save(proto, tmp_path / "m.onnx")).models[0].weights
    assert [(w.name, w.used_by, w.size_bytes) for w in weights.largest] == [("c", "Add_1", 8)]


def test_external_data_is_listed_and_need_not_be_there(tmp_path):
    path = tmp_path / "m.onnx"
    onnx.save(mlp(), path, save_as_external_data=True, location="m.data", size_threshold=64)
    (data,) = inspect_file(path).onnx.external
    assert (data.location, data.tensors, data.found_bytes) == ("m.data", 3, 832)
    assert data.needed_bytes <= data.found_bytes
    (tmp_path / "m.data").write_bytes(bytes(100))
    assert inspect_file(path).onnx.external[0].found_bytes == 100
    (tmp_path / "m.data").unlink()
    found = inspect_file(path)
    assert found.onnx.external[0].found_bytes is None
    assert found.models[0].weights.total_bytes == 848


def test_external_data_outside_the_folder_is_not_looked_at(tmp_path):
    (tmp_path / "secret").write_bytes(bytes(5000))
    folder = tmp_path / "in"
    folder.mkdir()
    proto = mlp()
    tensor = proto.graph.initializer[0]
    tensor.ClearField("raw_data")
    tensor.data_location = onnx.TensorProto.EXTERNAL
    tensor.external_data.add(key="location", value="../secret")
    (data,) = inspect_file(save(proto, folder / "m.onnx")).onnx.external
    assert (data.location, data.found_bytes) == ("../secret", None)


def test_a_broken_graph_is_shown_with_its_faults(tmp_path):
    proto = mlp()
    proto.graph.node[1].input[0] = "nowhere"
    found = inspect_file(save(proto, tmp_path / "m.onnx"))
    assert [(u.part, u.code) for u in found.unread] == [("graph", "ONNX003")]
    assert "nowhere" in found.unread[0].why


@pytest.mark.parametrize("data", [b"", b"\xff\xff", b"hello, this is text", bytes(100)])
def test_what_is_no_model(tmp_path, data):
    path = tmp_path / "m.onnx"
    path.write_bytes(data)
    with pytest.raises(ModelError) as caught:
        inspect_file(path)
    assert caught.value.code == "ONNX001"


def wide_mlp():
    rng = np.random.default_rng(0)
    return parse(
        """g (float[N, 64] x) => (float[N, 64] y) {
            h = MatMul(x, w1)
            a = Relu(h)
            i = Identity(a)
            y = MatMul(i, w2)
        }""",
        w1=rng.normal(size=(64, 64)).astype(np.float32),
        w2=rng.normal(size=(64, 64)).astype(np.float32),
    )


@pytest.fixture(scope="module")
def built(tmp_path_factory):
    """An optimized and quantized model as .onnx and as host artifact."""
    folder = tmp_path_factory.mktemp("built")
    unit = cannc.optimize(wide_mlp(), level="O2", soc="Ascend910B4", precision="fp16")
    unit = cannc.quantize(unit)
    onnx_path = unit.save(folder / "net.onnx")
    om_path = folder / "net.om"
    attributes = {"cannc_version": "1.2.3", "cannc_target_soc": "Ascend910B4"}
    write_om(unit.model, om_path, name="net", attributes=attributes)
    return onnx_path, om_path


def test_what_cannc_left_in_a_model(built):
    for path in built:
        facts = inspect_file(path).cannc
        assert facts.soc == "Ascend910B4"
        assert sum(facts.fates.values()) == 4
        assert facts.fates["same"] >= 1
        assert {stage.name for stage in facts.history} >= {"float16", "quantize"}
        assert facts.quant.scheme == "w8a16"
        assert facts.quant.quantized == 2
        assert facts.quant.bytes_after < facts.quant.bytes_before
    assert facts.version == "1.2.3"


def test_a_host_artifact_is_described_by_its_onnx_model(built):
    as_onnx, as_om = map(inspect_file, built)
    assert as_om.kind == "host-only"
    assert as_om.models[0].ops == as_onnx.models[0].ops
    assert as_om.models[0].inputs == as_onnx.models[0].inputs
    assert as_om.onnx.opsets == as_onnx.onnx.opsets
    assert as_om.models[0].weights.by_dtype == as_onnx.models[0].weights.by_dtype
    # The container itself is there too, with the ops that stand for inputs and constants.
    container = as_om.models[0].container
    assert container.op_count > sum(as_om.models[0].ops.values())
    assert container.tasks is None
    assert as_om.header.checks_host
    assert as_om.models[0].weights.largest[0].place.startswith("net.om+")


def test_notes_that_are_damaged_are_named(tmp_path):
    for key in ("cannc.provenance", "cannc.log", "cannc.soc", "cannc.quant"):
        proto = mlp()
        h.set_model_props(proto, {key: '{"a": [1'})
        file = written(proto, tmp_path / "m.om")
        found = inspect_file(file.path)
        assert [u.part for u in found.unread] == [f"metadata {key}"]
        h.set_model_props(proto, {key: "[]" if key != "cannc.log" else "[1]"})
        assert inspect_file(save(proto, tmp_path / "m.onnx")).unread


def static_mlp():
    proto = wide_mlp()
    proto.graph.input[0].type.tensor_type.shape.dim[0].dim_value = 4
    return proto


def test_the_memory_plan_of_a_host_artifact(tmp_path):
    path = cannc.compile(static_mlp(), tmp_path / "m.om", backend="host", soc="Ascend910B4")
    found = inspect_file(path)
    plan = found.memory_plan
    assert plan.arena_bytes >= plan.lower_bound_bytes > 0
    assert plan.weight_bytes == found.models[0].container.memory["weight_size"]
    titles = {section.title: section for section in sections(found)}
    assert "arena" in dict(titles["Memory plan (estimate)"].rows)
    assert len(titles["Largest tensors at the peak"].rows) == len(plan.holdings) > 0


@pytest.mark.parametrize(
    "text", ["{", "[]", '{"sizes": [1], "holdings": []}', '{"sizes": [], "holdings": [3]}']
)
def test_a_damaged_memory_plan_is_named(tmp_path, text):
    found = inspect_file(written(mlp(), tmp_path / "m.om", cannc_memory_plan=text).path)
    assert found.memory_plan is None
    assert [u.part for u in found.unread] == ["attribute cannc_memory_plan"]
    assert any(section.title == "Not read" for section in sections(found))
