"""Each rule of the self-check finds the file that breaks it."""

import pytest
from tests.support.om_files import assembled, branching, with_definition, written

from cannc.compiler.core.errors import CanncError
from cannc.compiler.om.header import Header
from cannc.compiler.om.inout_info import InOutInfo
from cannc.compiler.om.partitions import PartitionType
from cannc.compiler.om.selfcheck import check_file


def op_named(definition, name):
    return next(op for graph in definition.graph for op in graph.op if op.name == name)


def set_item(container, key, value):
    container[key] = value


MODEL_EDITS = {
    "the marks of a host artifact": lambda d: d.attr["cannc_artifact_kind"].Clear(),
    "host artifact are missing": lambda d: set_item_s(d.attr["host_env_os"], b""),
    "soc_version claims a device": lambda d: set_item_s(d.attr["soc_version"], b"Ascend310"),
    "weight_size 5": lambda d: setattr(d.attr["weight_size"], "i", 5),
    "two graphs have one name": lambda d: setattr(d.graph[1], "name", d.graph[2].name),
    "no graph 'g/if/else_branch'": lambda d: setattr(d.graph[1], "name", "other"),
    "two ops are named 'mm'": lambda d: setattr(op_named(d, "clip"), "name", "mm"),
    "reads 'ghost:0'": lambda d: set_item(op_named(d, "mm").input, 0, "ghost:0"),
    "reads 'clip:0', which nothing before": lambda d: set_item(
        op_named(d, "mm").input, 0, "clip:0"
    ),
    "an output that 'x' lacks": lambda d: set_item(op_named(d, "mm").input, 0, "x:1"),
    "does not describe each": lambda d: op_named(d, "mm").input_desc.pop(),
    "is_input_const is wrong": lambda d: set_item(op_named(d, "mm").is_input_const, 1, False),
    "place is not repeated": lambda d: setattr(op_named(d, "mm").input_desc[1], "data_offset", 0),
    "data type 2, produced as 1": lambda d: setattr(op_named(d, "mm").input_desc[0], "dtype", 2),
    "shape [-1, 9]": lambda d: set_item(op_named(d, "mm").input_desc[0].shape.dim, 1, 9),
    "data type 36, which Netron": lambda d: setattr(op_named(d, "mm").output_desc[0], "dtype", 36),
    "does not name its sources": lambda d: op_named(d, "Node_Output").src_name.pop(),
    "lacks its value": lambda d: op_named(d, "w").attr.pop("value"),
    "lies at 100": lambda d: setattr(op_named(d, "w").attr["value"].t.desc, "data_offset", 100),
    "has 64 bytes for shape [8, 4]": lambda d: setattr(
        op_named(d, "w").attr["value"].t.desc, "weight_size", 64
    ),
    "memory offsets": lambda d: op_named(d, "mm").output_i.append(512),
    "graph input 'ghost:0'": lambda d: d.graph[0].input.append("ghost:0"),
    "has kind None": lambda d: op_named(d, "mm").attr["nothing"].SetInParent(),
    "has kind td": lambda d: op_named(d, "mm").attr["td"].td.SetInParent(),
    "without val_type": lambda d: op_named(d, "mm").attr["list"].list.i.append(1),
}


def set_item_s(attr, value):
    attr.s = value


@pytest.fixture
def file(tmp_path):
    return written(branching(), tmp_path / "m.om")


@pytest.mark.parametrize("fault", MODEL_EDITS)
def test_faults_of_the_graph(file, tmp_path, fault):
    MODEL_EDITS[fault](file.definition)
    path = with_definition(file, file.definition, tmp_path / "bad.om")
    with pytest.raises(CanncError) as caught:
        check_file(path)
    assert caught.value.code == "OM030"
    assert fault in caught.value.why


def changed(file, path, *, parts=None, **header):
    original = [(p.type, file.read(p)) for p in file.partitions]
    return assembled(
        path, parts(original) if parts else original, Header(**{**vars(file.header), **header})
    )


@pytest.mark.parametrize(
    ("fault", "parts"),
    [
        ("opens empty in Netron", lambda p: [entry for entry in p if entry[0] == 0]),
        ("MODEL_INOUT_INFO is missing", lambda p: [entry for entry in p if entry[0] != 8]),
        ("repeat", lambda p: [*p, p[0]]),
        ("TASK_INFO in a host artifact", lambda p: [*p, (PartitionType.TASK_INFO, b"")]),
        (
            "lists (0, 0) inputs",
            lambda p: [(k, InOutInfo(batch=[1]).pack() if k == 8 else d) for k, d in p],
        ),
        (
            "refuses strings as short as ['x', 'y']",
            lambda p: [
                (k, d + InOutInfo(designated_order=["x", "y"]).pack() if k == 8 else d)
                for k, d in p
            ],
        ),
    ],
)
def test_faults_of_the_container(file, tmp_path, fault, parts):
    with pytest.raises(CanncError) as caught:
        check_file(changed(file, tmp_path / "bad.om", parts=parts))
    assert fault in caught.value.why


def test_the_early_refusal_must_be_asked_for(file, tmp_path):
    with pytest.raises(CanncError) as caught:
        check_file(changed(file, tmp_path / "bad.om", checks_host=0))
    assert "refuse it early" in caught.value.why


def test_a_good_file_passes(file):
    check_file(file.path)
