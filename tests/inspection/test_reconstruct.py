"""--onnx: the exact model of a host artifact, a valid picture of a device graph."""

import numpy as np
import onnx
import pytest
from tests.support import device_om as dev
from tests.support.models import mlp
from tests.support.netron import needs_netron, opened
from tests.support.om_files import SHARED, branching, written

from cannc.compiler.core.errors import ModelError, UsageError
from cannc.compiler.core.onnx_io import write_model
from cannc.compiler.inspection.reconstruct import as_onnx
from cannc.compiler.om.attributes import put
from cannc.compiler.om.reader import OmFile

REAL = sorted((SHARED / "om").glob("*.om"))


def reconstructed(path, model=0):
    """Write the picture and load it back, checked."""
    out = path.with_suffix(".onnx")
    write_model(as_onnx(OmFile.open(path), model), out, path)
    onnx.checker.check_model(str(out), full_check=False)
    return onnx.load(out)


def test_a_host_artifact_gives_its_exact_model(tmp_path):
    for proto in (mlp(), branching()):
        found = reconstructed(written(proto, tmp_path / "m.om").path)
        assert [n.op_type for n in found.graph.node] == [n.op_type for n in proto.graph.node]
        assert [n.input for n in found.graph.node] == [n.input for n in proto.graph.node]
        mine = {t.name: onnx.numpy_helper.to_array(t) for t in found.graph.initializer}
        for tensor in proto.graph.initializer:
            np.testing.assert_array_equal(mine[tensor.name], onnx.numpy_helper.to_array(tensor))
        assert found.opset_import == proto.opset_import
        assert [f.name for f in found.functions] == [f.name for f in proto.functions]


def test_a_device_graph_becomes_a_picture(tmp_path):
    found = reconstructed(dev.device_om(tmp_path / "net.om"))
    assert {i.domain: i.version for i in found.opset_import} == {"": 18, "ge": 1}
    conv, relu = (n for n in found.graph.node if n.name in ("conv", "relu"))
    assert (conv.domain, conv.op_type) == ("ge", "Conv2D")
    assert list(conv.input) == ["x", "w1", "", "bias"]
    assert list(relu.input) == list(conv.output) == ["conv:0"]
    attributes = {a.name: onnx.helper.get_attribute_value(a) for a in conv.attribute}
    assert attributes == {
        "data_format": b"NCHW",
        "relu_flag": 1,
        "scale": 0.5,
        "strides": [1, 1, 1, 1],
    }
    assert {p.key: p.value for p in conv.metadata_props} == {"ge.control_inputs": "wait"}
    weights = {t.name: onnx.numpy_helper.to_array(t) for t in found.graph.initializer}
    assert weights["w1"].shape == (1, 1, 16, 16)
    stored = dev.device_parts()[4][1]
    np.testing.assert_array_equal(weights["w1"].reshape(-1).view(np.uint8)[:8], list(stored[:8]))
    assert [v.name for v in found.graph.output] == ["relu:0"]
    (shown,) = (v for v in found.graph.value_info if v.name == "conv:0")
    assert [d.dim_value for d in shown.type.tensor_type.shape.dim] == [1, 1, 4, 4, 16]


def test_gears_become_graphs_of_their_op(tmp_path):
    model = dev.definition()
    root = model.graph[0]
    case = root.op.add(name="case", type="Case", input=["x:0"])
    for index in range(2):
        gear = model.graph.add(name=f"gear{index}")
        data = gear.op.add(name="x", type="Data")
        dev.describe(data.output_desc.add(), (1,))
        op = gear.op.add(name="relu", type="Relu", input=["x:0"])
        dev.describe(op.output_desc.add(), (1,))
        gear.op.add(name="out", type="NetOutput", input=["relu:0"])
        case.subgraph_name.append(gear.name)
    found = reconstructed(dev.device_om(tmp_path / "net.om", model))
    (node,) = (n for n in found.graph.node if n.op_type == "Case")
    assert [a.g.name for a in node.attribute] == ["gear0", "gear1"]
    names = [v for a in node.attribute for n in a.g.node for v in n.output]
    assert len(set(names)) == 2


def test_outputs_that_share_a_source_and_constants_that_do_not_fit(tmp_path):
    model = dev.definition()
    end = model.graph[0].op[-1]
    end.input.append("relu:0")
    end.input.append("bias:0")
    model.graph[0].op[3].attr["value"].t.desc.weight_size = 7
    found = reconstructed(dev.device_om(tmp_path / "net.om", model))
    names = [v.name for v in found.graph.output]
    assert len(set(names)) == 3
    assert "bias" not in {t.name for t in found.graph.initializer}
    assert "Const" in {n.op_type for n in found.graph.node}


def test_ops_in_any_order_and_circles(tmp_path):
    model = dev.definition()
    ops = list(model.graph[0].op)
    del model.graph[0].op[:]
    model.graph[0].op.extend(reversed(ops))
    found = reconstructed(dev.device_om(tmp_path / "net.om", model))
    assert [n.name for n in found.graph.node if n.name != "wait"] == ["conv", "relu"]
    (conv,) = (op for op in model.graph[0].op if op.name == "conv")
    conv.input[0] = "relu:0"
    with pytest.raises(ModelError) as caught:
        reconstructed(dev.device_om(tmp_path / "net.om", model))
    assert (caught.value.code, "circle" in caught.value.why) == ("OM014", True)


@pytest.mark.parametrize(
    ("spoil", "why"),
    [
        (lambda g: g.op[5].input.append("nobody:0"), "nothing produces"),
        (lambda g: g.op[5].subgraph_name.append("none"), "does not exist"),
        (lambda g: setattr(g.op[1].attr["value"].t.desc, "data_offset", 2**40), "lies at"),
    ],
)
def test_broken_graphs_are_refused(tmp_path, spoil, why):
    model = dev.definition()
    spoil(model.graph[0])
    with pytest.raises(ModelError) as caught:
        reconstructed(dev.device_om(tmp_path / "net.om", model))
    assert caught.value.code == "OM014"
    assert why in caught.value.why


def test_one_of_several_models(tmp_path):
    second = dev.definition("second")
    put(second.graph[0].op[6].attr, "mark", 7)
    path = dev.several_models(tmp_path / "net.om", dev.definition("first"), second)
    # The weights are in no partition of these models.
    with pytest.raises(ModelError, match="cannot be shown"):
        reconstructed(path, 1)
    with pytest.raises(UsageError) as caught:
        reconstructed(path, 2)
    assert caught.value.code == "INS002"


def test_one_member_of_a_bundle(tmp_path):
    model = dev.definition()
    model.graph[0].op[6].type = "Gelu"
    members = [dev.device_om(tmp_path / "m.om", m).read_bytes() for m in (None, model)]
    found = reconstructed(dev.bundle(tmp_path / "b.om", *members), 1)
    assert "Gelu" in {n.op_type for n in found.graph.node}
    # Weights are found relative to the member.
    weight = onnx.numpy_helper.to_array(found.graph.initializer[0])
    assert weight.reshape(-1).view(np.uint8)[:4].tolist() == [0, 1, 2, 3]


@pytest.mark.skipif(not REAL, reason="no real .om files here")
@pytest.mark.parametrize("path", REAL, ids=lambda path: path.name)
def test_real_files(path, tmp_path):
    copy = tmp_path / path.name
    copy.write_bytes(path.read_bytes())
    found = reconstructed(copy)
    definition = OmFile.open(path).definition
    inner = [op for op in definition.graph[0].op if op.type not in ("Data", "Const", "NetOutput")]
    assert len(found.graph.node) == len(inner)
    constants = sum(op.type == "Const" for op in definition.graph[0].op)
    assert len(found.graph.initializer) == constants


@needs_netron
def test_netron_opens_the_picture(tmp_path):
    write_model(as_onnx(OmFile.open(dev.device_om(tmp_path / "net.om"))), tmp_path / "net.onnx")
    shown = opened(tmp_path / "net.onnx", "ONNX")
    assert {n["type"] for n in shown["modules"][0]["nodes"]} == {"Conv2D", "Recv", "Relu"}
