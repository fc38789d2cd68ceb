"""Compiled models of every generation: what is in them is named, and nothing is guessed."""

import dataclasses
import json

import pytest
from tests.support import device_om as dev
from tests.support.om_files import SHARED, assembled

from cannc.compiler.core.errors import ModelError, UsageError
from cannc.compiler.inspection.inspect import inspect_file
from cannc.compiler.om.attributes import put, put_list
from cannc.compiler.om.header import Header
from cannc.compiler.om.partitions import PartitionType as P
from cannc.compiler.om.proto import ModelDef

REAL = SHARED / "om"
real = pytest.mark.skipif(not REAL.is_dir(), reason="no real .om files here")


@real
def test_the_file_of_atc_1_75():
    found = inspect_file(REAL / "a3c_pong_atc175_v1_32bit.om")
    (model,) = found.models
    container = model.container
    assert found.kind == "device"
    assert (found.header.version, found.header.table_bits) == ("1.0", 32)
    assert [p.type for p in container.partitions] == [0, 1, 3, 2]
    assert container.op_count == model.graphs["a3c_pong_model_0"] == 25
    assert container.memory["memory_size"] == 90624
    assert container.memory["weight_size"] == container.partitions[1].size_bytes == 320000
    assert container.resources["stream_num"] == 1
    assert container.compiler["opp_version"] == "1.75.22.0.220"
    assert [(t.name, t.dtype, t.dims) for t in model.inputs] == [("s", "float32", (1, 42, 42, 1))]
    assert [(t.name, t.dtype, t.size_bytes) for t in model.outputs] == [("out_a:0", "int32", 4)]
    assert len(container.kernels) == 12
    assert container.tasks.by_type["end graph"] == 1
    assert model.weights.count == 11
    assert model.weights.largest[0].layout.startswith("FRACTAL")
    assert found.unread == ()


@real
def test_the_file_of_toolkit_5_0_4():
    found = inspect_file(REAL / "autoencoder_atc504_v2_32bit.om", with_graph=True)
    (model,) = found.models
    container = model.container
    assert (found.header.version, found.header.table_bits) == ("2.0", 32)
    assert container.op_count == 46
    assert container.sizes == {
        "weights": 386560,
        "tbe_kernels": 64667,
        "cust_aicpu_kernels": 0,
        "task_info": 12828,
    }
    assert container.memory["memory_size"] == 6014464
    assert container.resources["event_num"] == 1
    assert "--soc_version=Ascend310" in container.compiler["atc_cmdline"]
    assert container.compiler["framework_type"] == "TensorFlow"
    assert found.kind == "device"
    lines = [str(op) for op in model.graph[0].ops]
    assert "trans_Cast_0  Cast(input, ^atomic_addr_clean-1_0) -> float16[100,784]:NHWC" in lines


@real
@pytest.mark.parametrize(
    ("name", "ops", "types", "unread"),
    [
        ("relu", 3, {"Activation": 1}, []),
        ("batchnorm", 7, {"BNInference": 1}, []),
        ("tf_softmax_hcs_npucl", 4, {"CastT": 1, "GraphOp": 1}, ["TASK_INFO"]),
    ],
)
def test_files_for_phone_chips(name, ops, types, unread):
    found = inspect_file(REAL / f"hiai-{name}.om")
    (model,) = found.models
    assert found.kind == "kirin"
    assert model.container.op_count == ops
    assert model.ops == types
    assert [u.part for u in found.unread] == unread


def test_a_device_model_in_full(tmp_path):
    found = inspect_file(dev.device_om(tmp_path / "net.om"), top=2, with_graph=True)
    (model,) = found.models
    container = model.container
    assert found.kind == "device"
    assert found.reasons[0] == "6 tasks with an end-graph task"
    assert container.compiler["atc_cmdline"] == dev.COMMAND
    assert container.compiler["soc_version"] == "Ascend310B4"
    assert container.memory == {"memory_size": 8192, "weight_size": dev.WEIGHT_BYTES}
    assert container.memory_regions == ((2, 0, 8192, 0),)
    assert container.sizes["tbe_kernels"] == 30
    assert [(k.name, k.size_bytes) for k in container.kernels] == [("conv", 8), ("relu", 8)]
    assert [(k.name, k.kind, k.vendor) for k in container.libraries] == [
        ("a.so", "space registry", "vendor")
    ]
    assert container.tasks.by_type["kernel"] == 2
    assert container.tasks.kernels == {"conv": 2}
    (tiling,) = container.tilings
    assert (tiling.key, tiling.workspaces, tiling.ids) == (77, (512, 1024), (5, 6))
    assert (model.gears.kind, model.gears.rows) == ("batch", ((1,), (2,), (8,)))
    assert [(t.dtype, t.dims, t.layout) for t in model.inputs] == [
        ("float16", (1, 16, 4, 4), "NCHW")
    ]
    assert model.ops == {"Conv2D": 1, "Recv": 1, "Relu": 1}
    assert "offset" not in container.attributes
    (graph,) = model.graph
    assert str(graph.ops[5]) == (
        "conv  Conv2D(x, w1, -, bias, ^wait) -> float16[1,1,4,4,16]:NC1HWC0"
    )
    assert graph.outputs == ("relu:0",)


def test_weights_are_added_up_and_shared_ones_counted_once(tmp_path):
    weights = inspect_file(dev.device_om(tmp_path / "net.om"), top=2).models[0].weights
    assert (weights.count, weights.total_bytes, weights.stored_bytes) == (3, 1056, 544)
    assert weights.by_dtype == {"float16": 1056}
    assert weights.by_op == {"Conv2D": 544, "nothing": 512}
    assert [(w.name, w.place, w.used_by) for w in weights.largest] == [
        ("w1", "weights+512", "conv"),
        ("w2", "weights+512", ""),
    ]
    assert len(inspect_file(tmp_path / "net.om", top=0).models[0].weights.largest) == 3


def test_weights_in_other_files_are_named(tmp_path):
    model = dev.definition()
    op = model.graph[0].op.add(name="far", type="FileConstant")
    put(op.attr, "location", "/build/machine/weights.bin")
    put(op.attr, "offset", 4096)
    put(op.attr, "length", 100)
    dev.describe(op.output_desc.add(), (50,))
    weights = inspect_file(dev.device_om(tmp_path / "net.om", model)).models[0].weights
    (far,) = (w for w in weights.largest if w.name == "far")
    assert (far.place, far.size_bytes, far.dtype) == ("weights.bin+4096", 100, "float16")


def test_compressed_attributes_are_shown_by_name(tmp_path):
    plain = inspect_file(dev.device_om(tmp_path / "a.om"))
    coded = inspect_file(dev.device_om(tmp_path / "a.om", dev.compressed(dev.definition())))
    assert coded.models[0].weights == plain.models[0].weights
    assert coded.models[0].container.attributes == plain.models[0].container.attributes


def test_several_models_share_the_first_ones_dictionary(tmp_path):
    root, sub = dev.compressed(dev.definition("root")), dev.definition("sub")
    coded = dev.compressed(sub, dictionary=False)
    path = dev.several_models(tmp_path / "net.om", root, coded)
    found = inspect_file(path)
    assert [m.name for m in found.models] == ["root", "sub"]
    assert [m.weights.count for m in found.models] == [3, 3]
    assert found.header.dynamic
    # The root holds a definition only; the task list of the other one decides.
    assert found.kind == "device"


@pytest.mark.parametrize(
    ("drop", "kinds", "kind", "reason"),
    [
        ((P.TASK_INFO,), (), "graph-only", "no task list (TASK_INFO): nothing in it"),
        ((), (0, 1), "graph-only", "2 tasks without an end-graph task"),
        ((), (0, 19), "device", "2 tasks with an end-graph task"),
    ],
)
def test_what_can_be_executed(tmp_path, drop, kinds, kind, reason):
    parts = [
        (k, dev.tasks(*kinds) if k == P.TASK_INFO else data)
        for k, data in dev.device_parts()
        if k not in drop
    ]
    found = inspect_file(assembled(tmp_path / "m.om", parts))
    assert found.kind == kind
    assert found.reasons[0].startswith(reason)


def test_an_original_graph_without_code(tmp_path):
    model = dev.definition("net_original", compiled=False)
    path = assembled(tmp_path / "m.om", [(0, dev.serialized(model))], Header(model_num=0))
    found = inspect_file(path)
    assert found.kind == "graph-only"
    assert "no device code" in found.reasons
    assert "not compiled by ATC" in found.reasons[2]


def test_gears_of_a_model_from_before_the_interface_partition(tmp_path):
    model = dev.definition()
    root = model.graph[0]
    case = root.op.add(name="ascend_mbatch_shape_case", type="Case")
    put(case.attr, "_batch_num", 2)
    put_list(case.attr, "_pred_value_0", "i", [224, 224])
    put_list(case.attr, "_pred_value_1", "i", [448, 448])
    put_list(case.attr, "user_designate_shape_order", "s", ["x"])
    put(case.attr, "mbatch_dynamic_type", 2)
    put_list(root.op[0].attr, "_mbatch_origin_input_dims", "i", [1, 16, -1, -1])
    put_list(root.op[7].attr, "_dynamic_output_dims", "s", ["0,1,16,4,4"])
    parts = [(k, d) for k, d in dev.device_parts(model) if k != P.MODEL_INOUT_INFO]
    (found,) = inspect_file(assembled(tmp_path / "m.om", parts)).models
    assert found.gears.kind == "image size"
    assert found.gears.rows == ((224, 224), (448, 448))
    assert found.gears.order == ("x",)
    assert found.gears.output_shapes == ("0,1,16,4,4",)
    assert found.inputs[0].dims == (1, 16, -1, -1)
    assert (found.outputs[0].name, found.outputs[0].size_bytes) == ("relu:0:y", 512)


def test_parts_that_cannot_be_read_are_named_with_the_reason(tmp_path):
    broken = {P.TBE_KERNELS: b"?" * 40, P.TILING_DATA: b"?", P.TASK_INFO: b"\xff\xff\xff"}
    parts = [(k, broken.get(k, data)) for k, data in dev.device_parts()]
    found = inspect_file(assembled(tmp_path / "m.om", [*parts, (99, b"new")]))
    assert [(u.part, u.code) for u in found.unread] == [
        ("kernels", "OM011"),
        ("TILING_DATA", "OM012"),
        ("TASK_INFO", ""),
    ]
    assert found.kind == "unknown"
    assert found.models[0].container.partitions[-1].name == "unknown type 99"
    assert found.models[0].ops["Conv2D"] == 1


def test_an_encrypted_file_shows_header_and_table(tmp_path):
    parts = [(0, b"?"), (1, b"?")]
    found = inspect_file(assembled(tmp_path / "m.om", parts, Header(name="n", encrypted=True)))
    assert (found.kind, found.header.name) == ("encrypted", "n")
    assert [(u.part, u.why) for u in found.unread] == [
        ("MODEL_DEF", "encrypted"),
        ("WEIGHTS_DATA", "encrypted"),
    ]


def test_an_encrypted_table_is_no_damage(tmp_path):
    body = b"\xa5" * 600
    path = tmp_path / "m.om"
    path.write_bytes(Header(model_length=len(body), encrypted=True).pack() + body)
    found = inspect_file(path)
    assert found.kind == "encrypted"
    assert [(u.part, u.code) for u in found.unread] == [("partition table", "OM003")]


def test_a_bundle_is_described_file_by_file(tmp_path):
    member = dev.device_om(tmp_path / "a.om").read_bytes()
    found = inspect_file(dev.bundle(tmp_path / "b.om", member, member))
    assert found.header.model_type == "bundle"
    assert [m.kind for m in found.members] == ["device", "device"]
    assert found.members[0].models[0].weights.count == 3
    assert found.members[0].size_bytes == len(member)
    # Offsets of a member count from its own first byte.
    first = found.members[1].models[0].container.partitions[0]
    assert first.offset == inspect_file(tmp_path / "a.om").models[0].container.partitions[0].offset


def test_a_bundle_inside_a_bundle_is_named_and_not_followed(tmp_path):
    inner = dev.bundle(tmp_path / "a.om", dev.device_om(tmp_path / "m.om").read_bytes())
    found = inspect_file(dev.bundle(tmp_path / "x.om", inner.read_bytes()))
    assert found.members == ()
    assert [(u.part, u.why) for u in found.unread] == [
        ("pack[0]", "a container inside a container")
    ]


def test_a_damaged_member_is_named(tmp_path):
    found = inspect_file(dev.bundle(tmp_path / "x.om", b"IMOD"))
    assert [(u.part, u.code) for u in found.unread] == [("members", "OM001")]


def test_a_flow_model_names_the_parts_that_it_cannot_read(tmp_path):
    member = dev.device_om(tmp_path / "m.om").read_bytes()
    root = ModelDef(name="flow")
    root.graph.add(name="g").op.add(name="node", type="FlowNode")
    parts = [(0, dev.serialized(root)), (6, b"flow"), (7, b"other"), (7, member)]
    found = inspect_file(assembled(tmp_path / "f.om", parts, Header(name="flow", model_type=3)))
    assert found.reasons == ("a flow model: see the models inside",)
    assert [(m.name, m.kind) for m in found.members] == [("flow[0]", "device")]
    assert [(u.part, u.why[:7]) for u in found.unread] == [
        ("FLOW_MODEL", "4 bytes"),
        ("FLOW_SUBMODEL", "5 bytes"),
    ]


def test_phone_chip_files_by_each_of_their_marks(tmp_path):
    model = ModelDef(name="hiai")
    model.graph.add(name="g").op.add(name="x", type="Data")
    put(model.attr, "target_type", "LITE")
    parts = [(0, dev.serialized(model))]
    for kind in (3, 4, 0):
        found = inspect_file(dev.narrow(tmp_path / "k.om", parts, model_type=kind))
        assert found.kind == "kirin"
    # The same model type in version 2.0 means a flow model.
    found = inspect_file(dev.device_om(tmp_path / "n.om"))
    assert found.kind == "device"


def test_weights_of_phone_chip_files_lie_where_their_attribute_says(tmp_path):
    model = dev.definition(compiled=False)
    for op in (op for op in model.graph[0].op if op.type == "Const"):
        put(op.attr["value"].t.desc.attr, "merged_offset", 64)
    parts = [(0, dev.serialized(model)), (1, bytes(4096))]
    found = inspect_file(dev.narrow(tmp_path / "k.om", parts, model_type=4))
    assert {w.place for w in found.models[0].weights.largest} == {"weights+64"}


def test_the_json_is_the_same_wherever_the_file_lies(tmp_path):
    texts = []
    for folder in ("a", "b"):
        (tmp_path / folder).mkdir()
        found = inspect_file(dev.device_om(tmp_path / folder / "net.om"), with_graph=True)
        texts.append(json.dumps(dataclasses.asdict(found), sort_keys=True, allow_nan=False))
    assert texts[0] == texts[1]
    assert str(tmp_path) not in texts[0]
    assert json.loads(texts[0])["schema_version"] == 1


def test_no_such_file_and_damage(tmp_path):
    with pytest.raises(UsageError):
        inspect_file(tmp_path / "missing.om")
    path = dev.device_om(tmp_path / "net.om")
    path.write_bytes(path.read_bytes()[:-1])
    with pytest.raises(ModelError) as caught:
        inspect_file(path)
    assert caught.value.code == "OM002"
