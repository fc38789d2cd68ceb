"""The copy of a model that ATC gets: what its parser needs, and the same numbers."""

from pathlib import Path

import numpy as np
import onnx
import onnx_ir as ir
import pytest
from tests.support.models import mlp, parse, save

from cannc.compiler.backends.atc.handover import prepare
from cannc.compiler.core.errors import ModelError
from cannc.compiler.core.target import Target
from cannc.compiler.core.unit import load
from cannc.compiler.runtime.host_session import HostSession
from cannc.passes.fusion.npu_ops import use_npu_op

NEW, OLD = Target("Ascend910B4"), Target("Ascend910B4", "8.0.0")


def handed(model, folder: Path, target=NEW) -> onnx.ModelProto:
    """Hand a model over; return what the file holds, with external data still outside."""
    unit = load(model)
    before = ir.to_proto(unit.model).SerializeToString(deterministic=True)
    path = prepare(unit.model, target).write(folder)
    assert ir.to_proto(unit.model).SerializeToString(deterministic=True) == before
    return onnx.load(path, load_external_data=False)


def fused(*, op_type="NPUFastGelu"):
    """A model with a fused operator as our passes write it: domain npu with a body."""
    unit = load(parse("g (float[2, 4] x) => (float[2, 4] y) { [act] y = Relu(x) }"))
    (node,) = unit.model.graph
    node.domain, node.op_type = "npu", op_type
    use_npu_op(unit.model, op_type)
    return unit


def test_numbers_and_interface_stay(tmp_path):
    model = mlp()
    handed(model, tmp_path)
    x = np.random.default_rng(0).normal(size=(3, 8)).astype(np.float32)
    found = HostSession(load(tmp_path / "model.onnx").model).run({"x": x})
    expected = HostSession(load(model).model).run({"x": x})
    np.testing.assert_array_equal(found["y"], expected["y"])


def test_fused_nodes_keep_their_domain_and_lose_their_bodies(tmp_path):
    proto = handed(fused(), tmp_path)
    assert [node.domain for node in proto.graph.node] == ["npu"]
    assert list(proto.functions) == []
    assert [entry.domain for entry in proto.opset_import] == ["npu"]


@pytest.mark.parametrize("cann", ["8.0.0", "8.5.0"])
def test_old_and_unknown_parsers_get_one_domain(tmp_path, cann):
    proto = handed(fused(), tmp_path, Target("Ascend910B4", cann))
    assert [(n.domain, n.op_type) for n in proto.graph.node] == [("", "NPUFastGelu")]
    assert [entry.domain for entry in proto.opset_import] == [""]


@pytest.mark.parametrize(
    ("op_type", "name"),
    [
        ("NPURmsNorm", "NPURmsNorm"),
        ("NPURotaryMul", "NPURotaryMul"),
        ("WeightQuantBatchMatmulV2", "NPUWeightQuantBatchMatmulV2"),
    ],
)
def test_names_in_the_default_domain(op_type, name):
    unit = load(parse("g (float[2, 4] x) => (float[2, 4] y) { y = Relu(x) }"))
    (node,) = unit.model.graph
    node.domain, node.op_type = "npu", op_type
    unit.model.opset_imports["npu"] = 1
    (moved,) = prepare(unit.model, OLD).model.graph
    assert (moved.domain, moved.op_type) == ("", name)
    (kept,) = prepare(unit.model, NEW).model.graph
    assert (kept.domain, kept.op_type) == ("npu", op_type)


def test_an_operator_without_such_a_name_is_inlined_or_refused(tmp_path):
    unit = fused(op_type="NPUGeluV2")
    proto = handed(unit, tmp_path, OLD)
    assert {node.domain for node in proto.graph.node} == {""}
    assert len(proto.graph.node) > 1
    unit.model.functions.clear()
    with pytest.raises(ModelError) as error:
        prepare(unit.model, OLD)
    assert error.value.code == "ATC071"
    assert "E16005" in error.value.why


def test_unregistered_functions_are_inlined(tmp_path):
    model = onnx.parser.parse_model(
        """<ir_version: 8, opset_import: ["" : 17, "mine" : 1, "unused" : 1]>
        g (float[2] x) => (float[2] y) { h = mine.Twice(x) y = Neg(h) }
        <domain: "mine", opset_import: ["" : 17]> Twice (a) => (b) { b = Add(a, a) }"""
    )
    proto = handed(model, tmp_path)
    assert [node.op_type for node in proto.graph.node] == ["Add", "Neg"]
    assert [(e.domain, e.version) for e in proto.opset_import] == [("", 17)]


@pytest.mark.parametrize(("opset", "taken"), [(7, False), (8, True), (18, True), (19, False)])
def test_opsets_that_the_parser_takes(opset, taken, tmp_path):
    text = f'<ir_version: 8, opset_import: ["" : {opset}]> g (float[2] x) => (float[2] y) '
    unit = load(parse(text + "{ y = Relu(x) }"))
    if taken:
        assert prepare(unit.model, NEW).model.opset_imports == {"": opset}
        return
    with pytest.raises(ModelError) as error:
        prepare(unit.model, NEW)
    assert error.value.code == "ATC070"
    assert "E13010" in error.value.why


def test_any_opset_goes_when_only_fused_nodes_are_left(tmp_path):
    unit = fused()
    unit.model.opset_imports[""] = 19
    assert "" not in prepare(unit.model, NEW).model.opset_imports


def test_names_are_unique_among_nodes_inputs_and_weights(tmp_path):
    model = parse(
        """g (float[2] x) => (float[2] y) {
            [x] a = Add(x, w)
            [x] b = Neg(a)
            [w] c = Abs(b)
            y, Y_unused = Dropout(c)
        }""",
        w=np.ones(2, np.float32),
    )
    model.graph.node[-1].output[1] = ""
    proto = handed(model, tmp_path)
    names = [node.name for node in proto.graph.node]
    assert len({*names, "x", "w"}) == len(names) + 2
    assert all(name for node in proto.graph.node for name in node.output)
    assert prepare(load(model).model, NEW).nodes[names[0]] == "x"


def test_notes_and_provenance_are_stripped(tmp_path):
    model = mlp()
    model.doc_string = "secret"
    model.graph.doc_string = "secret"
    model.graph.node[0].doc_string = "secret"
    model.metadata_props.add(key="k", value="secret")
    unit = load(model)
    unit.stamp()
    path = prepare(unit.model, NEW).write(tmp_path)
    proto = onnx.load(path)
    assert b"secret" not in path.read_bytes()
    assert list(proto.metadata_props) == []
    assert all(not node.metadata_props for node in proto.graph.node)


def test_inputs_with_defaults_are_constants(tmp_path):
    model = parse("g (float[2] x, float[2] w) => (float[2] y) { y = Add(x, w) }", w=np.ones(2, "f"))
    proto = handed(model, tmp_path)
    assert [value.name for value in proto.graph.input] == ["x"]
    assert [tensor.name for tensor in proto.graph.initializer] == ["w"]


def external(folder: Path) -> Path:
    model = mlp()
    path = folder / "m.onnx"
    onnx.save(model, path, save_as_external_data=True, location="all.bin", size_threshold=0)
    stored = onnx.load(path, load_external_data=False)
    for tensor in stored.graph.initializer:
        tensor.external_data.add(key="checksum", value="12ab")
    onnx.save(stored, path)
    return path


def test_weight_files_are_linked_not_copied(tmp_path):
    work = tmp_path / "work"
    work.mkdir()
    proto = handed(external(tmp_path), work)
    stored = [{e.key: e.value for e in t.external_data} for t in proto.graph.initializer]
    assert {frozenset(entry) for entry in stored} == {frozenset({"location", "offset", "length"})}
    assert {entry["location"] for entry in stored} == {"weights0.data"}
    link = work / "weights0.data"
    assert link.is_symlink()
    assert link.samefile(tmp_path / "all.bin")
    assert link.stat().st_nlink == 1, "onnx refuses data files with several hard links"
    original = {t.name: t.raw_data for t in mlp().graph.initializer}
    for tensor, entry in zip(proto.graph.initializer, stored, strict=True):
        start = int(entry["offset"])
        data = link.read_bytes()[start : start + int(entry["length"])]
        assert data == original[tensor.name]


def test_where_links_cannot_be_made_the_file_is_copied(tmp_path, monkeypatch):
    def refuse(*_):
        raise OSError(1, "Operation not permitted")

    monkeypatch.setattr(Path, "symlink_to", refuse)
    work = tmp_path / "work"
    work.mkdir()
    handed(external(tmp_path), work)
    assert (work / "weights0.data").read_bytes() == (tmp_path / "all.bin").read_bytes()


def test_weights_of_branches_are_in_the_model_file(tmp_path):
    model = parse(
        """g (bool c, float[2] x) => (float[2] y) {
            y = If (c) <
                then_branch = t () => (float[2] a) <float[2] w = {1.0, 2.0}> { a = Add(x, w) },
                else_branch = e () => (float[2] b) { b = Neg(x) }
            >
        }"""
    )
    (weight,) = model.graph.node[0].attribute[0].g.initializer
    data = onnx.numpy_helper.to_array(weight).tobytes()
    (tmp_path / "branch.bin").write_bytes(data)
    weight.ClearField("float_data")
    weight.ClearField("raw_data")
    weight.data_location = onnx.TensorProto.EXTERNAL
    weight.external_data.add(key="location", value="branch.bin")
    work = tmp_path / "work"
    work.mkdir()
    proto = handed(save(model, tmp_path / "m.onnx"), work)
    branches = {a.name: a.g for a in proto.graph.node[0].attribute}
    (inner,) = branches["then_branch"].initializer
    assert inner.data_location == onnx.TensorProto.DEFAULT
    np.testing.assert_array_equal(onnx.numpy_helper.to_array(inner), [1, 2])


def test_large_weights_in_memory_are_streamed_beside_the_model(tmp_path, monkeypatch):
    monkeypatch.setattr("cannc.compiler.backends.atc.weights.EXTERNAL_ABOVE_BYTES", 1024)
    model = parse(
        "g (float[1, 64] x) => (float[1, 64] y) { y = MatMul(x, w) }",
        w=np.random.default_rng(0).normal(size=(64, 64)).astype(np.float32),
    )
    proto = handed(model, tmp_path)
    (weight,) = proto.graph.initializer
    assert {e.key: e.value for e in weight.external_data}["location"] == "weights.data"
    full = onnx.load(tmp_path / "model.onnx")
    assert full.graph.initializer[0].raw_data == model.graph.initializer[0].raw_data
