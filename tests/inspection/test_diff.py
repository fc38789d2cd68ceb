"""--diff: every kind of change is found and charged to what changed; equal files are equal."""

import numpy as np
import onnx
import pytest
from onnx import numpy_helper
from tests.support import device_om as dev
from tests.support.models import mlp, save
from tests.support.om_files import assembled, branching, written

from cannc.compiler.core.errors import ModelError
from cannc.compiler.inspection.diff import diff_files
from cannc.compiler.om.attributes import put
from cannc.compiler.om.partitions import PartitionType as P


def found(before, after):
    """Return the changes as (section, item, change)."""
    report = diff_files(before, after)
    assert report.same == (not report.changes)
    assert sum(report.summary.values()) == len(report.changes)
    return [(c.section, c.item, c.change) for c in report.changes]


@pytest.mark.parametrize("model", [mlp, branching])
def test_a_file_equals_itself_and_its_other_format(tmp_path, model):
    as_onnx = save(model(), tmp_path / "m.onnx")
    as_om = written(model(), tmp_path / "m.om").path
    assert found(as_onnx, as_onnx) == []
    assert found(as_om, as_om) == []
    report = diff_files(as_onnx, as_om)
    assert report.same, report.changes
    assert "onnx against om" in report.notes[0]


def test_where_weights_are_stored_does_not_matter(tmp_path):
    onnx.save(
        mlp(), tmp_path / "e.onnx", save_as_external_data=True, location="e.data", size_threshold=0
    )
    assert found(save(mlp(), tmp_path / "m.onnx"), tmp_path / "e.onnx") == []


def edits():
    def weight(graph):
        array = numpy_helper.to_array(graph.initializer[0]).copy()
        array[0, 0] += 1
        graph.initializer[0].CopyFrom(numpy_helper.from_array(array, "w1"))

    def weight_form(graph):
        graph.initializer[1].CopyFrom(numpy_helper.from_array(np.zeros((1, 16), "f4"), "b1"))

    def edge(graph):
        graph.node[3].input[0] = "hb"

    def attribute(graph):
        graph.node[2].op_type = "LeakyRelu"
        graph.node[2].attribute.append(onnx.helper.make_attribute("alpha", 0.5))

    def removed(graph):
        graph.node[3].input[0] = "hb"
        del graph.node[2]

    def dim(graph):
        graph.input[0].type.tensor_type.shape.dim[0].dim_param = "M"

    def names(graph):
        for index, node in enumerate(graph.node):
            node.name = f"n{index}"

    yield weight, [("weights", "w1", "changed")]
    yield weight_form, [("weights", "b1", "changed")]
    yield edge, [("edges", "n3", "changed")]
    yield (
        attribute,
        [("ops", "n2", "changed"), ("ops", "n2.alpha", "added")],
    )
    yield removed, [("ops", "n2", "removed"), ("edges", "n3", "changed")]
    yield dim, [("inputs", "x", "changed")]
    yield names, []


@pytest.mark.parametrize(("edit", "changes"), list(edits()))
@pytest.mark.parametrize("suffix", [".onnx", ".om"])
def test_each_kind_of_change(tmp_path, edit, changes, suffix):
    paths = []
    for name, change in (("a", lambda graph: None), ("b", edit)):
        proto = mlp()
        for index, node in enumerate(proto.graph.node):
            node.name = f"n{index}"
        change(proto.graph)
        path = tmp_path / name / f"m{suffix}"
        path.parent.mkdir()
        paths.append(save(proto, path) if suffix == ".onnx" else written(proto, path).path)
    # An edit may move what lies behind it in the file; that is told, but it is not the point.
    about_layout = ("partitions", "memory", "sizes")
    assert [c for c in found(*paths) if c[0] not in about_layout] == changes


def test_outputs_that_are_exchanged(tmp_path):
    proto = mlp()
    del proto.graph.node[:]
    proto.graph.node.add(name="a", op_type="Relu", input=["x"], output=["y"])
    other = onnx.ModelProto()
    other.CopyFrom(proto)
    other.graph.node[0].output[0] = "z"
    other.graph.node.add(name="b", op_type="Relu", input=["x"], output=["y"])
    changes = found(save(proto, tmp_path / "a.onnx"), save(other, tmp_path / "b.onnx"))
    assert changes == [
        ("graph outputs", "y", "changed"),
        ("ops", "b", "added"),
        # Its output is no graph output any more, so nothing says its type.
        ("ops", "a outputs", "changed"),
    ]


def test_metadata_opsets_and_functions(tmp_path):
    before = save(branching(), tmp_path / "a.onnx")
    proto = branching()
    proto.metadata_props.add(key="note", value="1")
    proto.opset_import[0].version = 19
    proto.functions[0].node[0].op_type = "Mul"
    proto.producer_name = "me"
    assert found(before, save(proto, tmp_path / "b.onnx")) == [
        ("functions", "npu::Twice", "changed"),
        ("metadata", "note", "added"),
        ("onnx", "producer", "changed"),
        ("opsets", "ai.onnx", "changed"),
    ]


def device(path, *, model=None, **parts):
    """A compiled model with some partitions replaced."""
    new = {getattr(P, name): data for name, data in parts.items()}
    return assembled(path, [(k, new.get(k, d)) for k, d in dev.device_parts(model)])


def test_device_files(tmp_path):
    before = device(tmp_path / "a.om")
    assert found(before, device(tmp_path / "b.om")) == []
    model = dev.definition()
    put(model.attr, "memory_size", 4096)
    put(model.attr, "tag", b"1")
    put(model.graph[0].op[5].attr, "data_format", "NHWC")
    model.graph[0].op[6].input[0] = "conv:1"
    other = device(tmp_path / "b.om", model=model)
    changes = [c for c in found(before, other) if c[0] != "partitions"]
    assert changes == [
        ("attributes", "tag", "added"),
        ("memory", "memory_size", "changed"),
        ("ops", "conv.data_format", "changed"),
        ("edges", "relu", "changed"),
    ]
    put(model.attr, "tag", b"2")
    assert found(other, device(tmp_path / "c.om", model=model)) == [
        ("attributes", "tag", "changed")
    ]


def test_kernels_and_tasks_of_device_files(tmp_path):
    before = device(tmp_path / "a.om")
    after = device(
        tmp_path / "b.om", TBE_KERNELS=dev.kernels("conv", "gelu"), TASK_INFO=dev.tasks(19)
    )
    sections = {(s, i, c) for s, i, c in found(before, after)}
    assert sections >= {
        ("kernels", "gelu", "added"),
        ("kernels", "relu", "removed"),
        ("contents", "TBE_KERNELS", "changed"),
        ("tasks", "kernel", "removed"),
    }
    data = bytearray(dev.device_parts()[4][1])
    data[1024] ^= 1
    after = device(tmp_path / "c.om", WEIGHTS_DATA=bytes(data))
    assert found(before, after) == [("weights", "bias", "changed")]


def test_members_of_bundles(tmp_path):
    member = device(tmp_path / "m.om").read_bytes()
    model = dev.definition()
    put(model.graph[0].op[6].attr, "mark", 1)
    other = device(tmp_path / "n.om", model=model).read_bytes()
    before = dev.bundle(tmp_path / "a.om", member, member)
    after = dev.bundle(tmp_path / "b.om", member, other)
    changes = [c for c in found(before, after) if "partitions" not in c[0]]
    assert changes == [("ops", "member 1: relu.mark", "added")]


def test_weights_that_are_not_there_are_an_error(tmp_path):
    path = tmp_path / "e.onnx"
    onnx.save(mlp(), path, save_as_external_data=True, location="e.data", size_threshold=0)
    (tmp_path / "e.data").unlink()
    with pytest.raises(ModelError) as caught:
        diff_files(path, path)
    assert caught.value.code == "ONNX002"
