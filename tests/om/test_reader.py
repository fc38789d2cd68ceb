"""Reading files of every kind: real ones, and ones put together to have a certain form."""

import pytest
from tests.support.device_om import bundle, narrow
from tests.support.models import mlp
from tests.support.om_files import SHARED, assembled, branching, written

from cannc.compiler.core.errors import ModelError, UsageError
from cannc.compiler.om.attributes import put, put_list
from cannc.compiler.om.header import HEADER_BYTES, Header
from cannc.compiler.om.proto import ModelDef, ModelTaskDef
from cannc.compiler.om.reader import OmFile

REAL = SHARED / "om"
real = pytest.mark.skipif(not REAL.is_dir(), reason="no real .om files here")


def kinds(file):
    return [part.type for part in file.partitions]


@real
def test_a_real_file_of_atc_1_75():
    file = OmFile.open(REAL / "a3c_pong_atc175_v1_32bit.om")
    assert (file.header.version_text, file.header.wide, file.header.model_num) == ("1.0", False, 1)
    assert kinds(file) == [0, 1, 3, 2]
    assert len(file.definition.graph[0].op) == 25
    attributes = file.model_attributes
    assert file.weight_region.size == attributes["weight_size"] == 320000
    assert (attributes["memory_size"], attributes["stream_num"]) == (90624, 1)
    assert attributes["opp_version"] == "1.75.22.0.220"
    assert attributes["attr_model_out_nodes_name"] == ["out_a:0"]
    assert not file.is_host
    assert len(file.kernels) == 12
    assert [task.type for task in file.tasks.tasks].count("end graph") == 1
    assert file.interface is None
    assert {(w.dtype, w.layout) for w in file.weights} >= {("FLOAT16", "FRACTAL_Z")}
    assert all(w.offset >= 512 and w.offset + w.size <= 320000 for w in file.weights)


@real
def test_a_real_file_of_toolkit_5_0_4():
    file = OmFile.open(REAL / "autoencoder_atc504_v2_32bit.om")
    assert (file.header.version_text, file.header.wide) == ("2.0", False)
    assert kinds(file) == [0, 1, 3, 2]
    attributes = file.model_attributes
    assert len(file.definition.graph[0].op) == 46
    assert (attributes["soc_version"], attributes["framework_type"]) == ("Ascend310", "TensorFlow")
    assert attributes["om_info_list"] == [386560, 64667, 0, 12828]
    assert (attributes["memory_size"], attributes["event_num"]) == (6014464, 1)
    assert attributes["atc_cmdline"].startswith("/usr/local/Ascend")
    assert len(file.tasks.tasks) == 30
    names = {op.name for op in file.definition.graph[0].op}
    assert {kernel.name for kernel in file.kernels} & names


@real
@pytest.mark.parametrize(
    ("name", "ops", "model_type"),
    [("relu", 3, 3), ("batchnorm", 7, 3), ("tf_softmax_hcs_npucl", 4, 4)],
)
def test_real_files_for_phone_chips(name, ops, model_type):
    file = OmFile.open(REAL / f"hiai-{name}.om")
    assert (file.header.version_text, file.header.model_type) == ("1.0", model_type)
    assert len(file.definition.graph[0].op) == ops
    # Their task partition is in another format: unknown, not an error.
    assert file.tasks is None
    if name == "batchnorm":
        assert [(w.dtype, w.dims, w.size, w.offset) for w in file.weights] == [
            ("FLOAT", (1,), 4, None)
        ] * 4


@real
def test_a_device_file_gives_no_onnx_model():
    with pytest.raises(ModelError) as caught:
        OmFile.open(REAL / "a3c_pong_atc175_v1_32bit.om").to_model()
    assert caught.value.code == "OM010"


def test_version_1_header_and_32_bit_table(tmp_path):
    definition = ModelDef(name="old")
    definition.graph.add().op.add(name="a", type="Data")
    parts = [(0, definition.SerializeToString()), (1, bytes(64))]
    file = OmFile.open(narrow(tmp_path / "old.om", parts))
    assert file.header.platform_version == "1.11"
    assert file.header.model_num == 1
    assert file.definition.name == "old"
    assert file.weight_region.size == 64


def test_several_models_in_one_file(tmp_path):
    first, second = ModelDef(name="root"), ModelDef(name="sub")
    whole = assembled(tmp_path / "1.om", [(0, first.SerializeToString()), (8, b"")]).read_bytes()
    other = assembled(tmp_path / "2.om", [(0, second.SerializeToString())]).read_bytes()
    body = whole[HEADER_BYTES:] + other[HEADER_BYTES:]
    path = tmp_path / "both.om"
    header = Header(model_length=len(body), model_num=2, dynamic=1)
    path.write_bytes(header.pack() + body)
    file = OmFile.open(path)
    assert [len(table) for table in file.tables] == [2, 1]
    assert [model.definition.name for model in file.models] == ["root", "sub"]
    path.write_bytes(Header(model_length=len(body) + 4, model_num=2).pack() + body + bytes(4))
    with pytest.raises(ModelError, match="partition table"):
        OmFile.open(path)


def test_a_bundle_holds_whole_files(tmp_path):
    inner = written(mlp(), tmp_path / "inner.om").path.read_bytes()
    file = OmFile.open(bundle(tmp_path / "bundle.om", inner))
    (model,) = file.bundled
    assert [node.op_type for node in model.to_model().graph] == [
        "MatMul", "Add", "Relu", "MatMul", "Add",
    ]  # fmt: skip
    weight = model.to_model().graph.initializers["b1"].const_value
    assert weight.numpy().shape == (16,)
    with pytest.raises(ModelError, match="no model definition"):
        _ = file.definition


def test_a_flow_model_is_walked_and_named(tmp_path):
    parts = [(0, b""), (6, b"flow"), (7, b"one"), (7, b"two")]
    file = OmFile.open(assembled(tmp_path / "flow.om", parts, Header(model_type=3)))
    assert [p.name for p in file.partitions] == [
        "MODEL_DEF", "FLOW_MODEL", "FLOW_SUBMODEL", "FLOW_SUBMODEL",
    ]  # fmt: skip
    assert file.read(file.partitions[3]) == b"two"


def test_unknown_partitions_are_named_by_number(tmp_path):
    file = OmFile.open(assembled(tmp_path / "m.om", [(0, b""), (77, b"?")]))
    assert file.partitions[1].name == "unknown type 77"


def test_an_encrypted_file_is_said_to_be_encrypted(tmp_path):
    file = OmFile.open(assembled(tmp_path / "m.om", [(0, b"?"), (1, b"?")], Header(encrypted=True)))
    with pytest.raises(ModelError) as caught:
        _ = file.definition
    assert caught.value.code == "OM005"


@pytest.mark.parametrize(
    ("data", "why"),
    [
        (b"PK\x03\x04" + bytes(400), "om2 format"),
        (b"version https://git-lfs.github.com/spec/v1\n", "git lfs pull"),
        (b"\x08\x07" + bytes(400), "starts with"),
        (b"", "starts with"),
        (b"IMOD" + bytes(20), "cut off"),
    ],
)
def test_what_is_not_an_offline_model_is_called_by_its_name(tmp_path, data, why):
    path = tmp_path / "m.om"
    path.write_bytes(data)
    with pytest.raises(ModelError) as caught:
        OmFile.open(path)
    assert caught.value.code == "OM001"
    assert why in caught.value.why


def test_no_such_file(tmp_path):
    with pytest.raises(UsageError):
        OmFile.open(tmp_path / "missing.om")


def test_an_artifact_is_found_through_a_symbolic_link(tmp_path):
    (tmp_path / "real").mkdir()
    written(mlp(), tmp_path / "real" / "m.om")
    link = tmp_path / "link.om"
    link.symlink_to(tmp_path / "real" / "m.om")
    weight = OmFile.open(link).to_model().graph.initializers["w1"].const_value
    assert weight.numpy().shape == (8, 16)


def compressed(definition):
    """Code the attribute names of all ops as CANN 8 does; string values of 'kind' too."""
    names = [f"n{i}" for i in range(130)] + ["value", "index", "kind"]
    key = {
        n: "\0" + chr(i % 127 + 1) + (chr(i // 127 + 1) if i >= 127 else "")
        for i, n in enumerate(names)
    }
    for graph in definition.graph:
        for op in graph.op:
            op.attr["kind"].i = 1
            for name in [n for n in op.attr if n in key]:
                op.attr[key[name]].CopyFrom(op.attr[name])
                del op.attr[name]
    put(definition.attr, "om_compress_version", 1)
    put_list(definition.attr, "attr_name_enum", "s", names)
    put_list(definition.attr, "attr_value_enum", "s", ["zero", "one"])
    put_list(definition.attr, "attrs_use_string_value", "b", [n == "kind" for n in names])
    return definition


def test_compressed_attributes_are_undone(tmp_path):
    file = written(branching(), tmp_path / "m.om")
    path = assembled(
        tmp_path / "c.om", [(0, compressed(file.definition).SerializeToString()), (8, b"")]
    )
    found = OmFile.open(path).definition
    ops = {op.name: op for op in found.graph[0].op}
    assert set(ops["w"].attr) == {"value", "kind"}
    assert ops["w"].attr["kind"].s == b"one"
    assert ops["c"].attr["index"].i == 1
    assert "om_compress_version" not in found.attr


@pytest.mark.parametrize(
    "edit",
    [
        lambda d: d.attr.pop("attr_name_enum"),
        lambda d: d.attr["attrs_use_string_value"].list.b.pop(),
        lambda d: d.attr["attr_value_enum"].list.s.pop(),
        lambda d: d.graph[0].op[0].attr["\0\x7f\x7f"].SetInParent(),
        lambda d: d.graph[0].op[0].attr["\0"].SetInParent(),
        lambda d: d.graph[0].op[0].attr["\0" + "\1" * 10**6].SetInParent(),
    ],
)
def test_a_broken_dictionary_is_refused(tmp_path, edit):
    definition = compressed(written(branching(), tmp_path / "m.om").definition)
    edit(definition)
    path = assembled(tmp_path / "c.om", [(0, definition.SerializeToString()), (8, b"")])
    with pytest.raises(ModelError) as caught:
        _ = OmFile.open(path).definition
    assert caught.value.code == "OM006"


def test_tasks_of_a_compiled_model(tmp_path):
    tasks = ModelTaskDef(memory_size=4096, weight_size=512)
    tasks.task.add(type=0, stream_id=2).kernel.kernel_name = "k"
    tasks.task[0].kernel.context.op_index = 3
    tasks.task.add(type=19)
    tasks.task.add(type=999)
    parts = [(0, b""), (2, tasks.SerializeToString())]
    found = OmFile.open(assembled(tmp_path / "m.om", parts)).tasks
    assert found.memory_size == 4096
    assert [(t.type, t.stream, t.op_index, t.kernel) for t in found.tasks] == [
        ("kernel", 2, 3, "k"),
        ("end graph", 0, None, ""),
        ("unknown 999", 0, None, ""),
    ]
