"""Gears in the container: what is written, what comes back, and what is refused."""

import numpy as np
import onnx
import onnx_ir as ir
import pytest
from onnx import TensorProto as T
from onnx import helper as h
from onnx import numpy_helper
from tests.support.gears import with_gears
from tests.support.models import mlp, parse
from tests.support.om_files import branching, with_definition, written

from cannc.compiler.core.errors import CanncError, ModelError
from cannc.compiler.core.shapes import infer_shapes
from cannc.compiler.om.attributes import put, put_list, to_dict
from cannc.compiler.om.gear_merge import gear_faults, main_graphs, merge
from cannc.compiler.om.gears import GearKind
from cannc.compiler.om.selfcheck import check_file

BRANCHED = [{"x": (n, 8), "c": ()} for n in (1, 2, 4)]


def proto_of(model) -> bytes:
    """Return a model as bytes, shapes of inner values and metadata included."""
    proto = ir.to_proto(model)
    del proto.graph.value_info[:]  # in any order; compared by `shapes_of`
    return proto.SerializeToString(deterministic=True)


def both(proto, folder, sizes):
    """Write a model without and with gears; return it as read from the former, and the latter."""
    (folder / "plain").mkdir()
    plain = written(proto, folder / "plain" / "m.om").to_model()
    return plain, with_gears(proto, folder / "m.om", sizes)


def inferred(proto):
    """Return a model whose inner values have types and shapes."""
    model = ir.from_proto(proto)
    infer_shapes(model)
    return ir.to_proto(model)


def shapes_of(model):
    return {
        value.name: (str(value.type), str(value.shape))
        for node in model.graph.all_nodes()
        for value in node.outputs
    }


def op_named(graph, name):
    return next(op for op in graph.op if op.name == name)


def dims(desc):
    return list(desc.shape.dim)


def test_the_root_graph_chooses_by_a_table(tmp_path):
    file = with_gears(branching(), tmp_path / "m.om", BRANCHED)
    root = file.definition.graph[0]
    assert [(op.name, op.type) for op in root.op] == [
        ("x", "Data"),
        ("c", "Data"),
        ("ascend_mbatch_shape_data", "Data"),
        ("ascend_mbatch_shape_const", "Const"),
        ("ascend_mbatch_shape_mapindex", "MapIndex"),
        ("ascend_mbatch_shape_case", "Case"),
        ("Node_Output", "NetOutput"),
    ]
    x, choice = root.op[0], root.op[2]
    assert to_dict(x.attr)["_mbatch_origin_input_dims"] == [-1, 8]
    assert dims(x.output_desc[0]) == dims(x.input_desc[0]) == [4, 8]
    assert "_mbatch_origin_input_dims" not in root.op[1].attr
    assert (choice.attr["index"].i, dims(choice.output_desc[0])) == (2, [1])
    table = op_named(root, "ascend_mbatch_shape_const").attr["value"].t
    region = file.weight_region
    np.testing.assert_array_equal(region.mapped(table, "t").numpy(), np.int32([1, 2, 4]))
    case = op_named(root, "ascend_mbatch_shape_case")
    assert list(case.input) == ["ascend_mbatch_shape_mapindex:0", "x:0", "c:0"]
    assert to_dict(case.attr) == {
        "_batch_num": 3,
        "_pred_value_0": [1],
        "_pred_value_1": [2],
        "_pred_value_2": [4],
        "mbatch-inserted-node": True,
        "mbatch_dynamic_type": 1,
        "user_designate_shape_order": ["x", "c"],
    }
    assert [dims(desc) for desc in case.output_desc] == [[4, 4]]
    end = to_dict(root.op[-1].attr)
    assert end["_dynamic_output_dims"] == ["0,0,1,4", "1,0,2,4", "2,0,4,4"]
    assert file.model_attributes["attr_model_out_nodes_name"] == ["ascend_mbatch_shape_case:0:z"]


def test_each_gear_has_the_model_with_static_shapes(tmp_path):
    file = with_gears(inferred(branching()), tmp_path / "m.om", BRANCHED)
    case = op_named(file.definition.graph[0], "ascend_mbatch_shape_case")
    assert [graph.name for graph in main_graphs(file.definition)] == list(case.subgraph_name)
    for number, batch in enumerate((1, 2, 4)):
        end = f"_ascend_mbatch_batch_{number}"
        graphs = [g for g in file.definition.graph if g.name.endswith(end)]
        assert [g.name for g in graphs] == [
            f"g{end}",
            f"g/if/else_branch{end}",
            f"g/if/then_branch{end}",
        ]
        for graph in graphs:
            for op in graph.op:
                assert op.name.endswith(end)
                assert op.attr["_batch_label"].s == f"Batch_{number}".encode()
                assert all(-1 not in dims(desc) for desc in (*op.input_desc, *op.output_desc))
        main, otherwise, then = graphs
        assert dims(op_named(main, f"mm{end}").output_desc[0]) == [batch, 4]
        assert op_named(main, f"mm{end}").output_desc[0].size == batch * 4 * 4
        assert op_named(main, f"x{end}").attr["_parent_node_index"].i == 1
        assert op_named(main, f"c{end}").attr["_parent_node_index"].i == 2
        assert dims(op_named(then, f"in_then{end}").input_desc[0]) == [batch, 4]
        assert dims(op_named(otherwise, f"in_else{end}").output_desc[0]) == [batch, 4]
        assert list(op_named(main, f"if{end}").subgraph_name) == [g.name for g in graphs[1:]]


def test_weights_are_stored_once(tmp_path):
    plain = written(branching(), tmp_path / "plain.om")
    geared = with_gears(branching(), tmp_path / "geared.om", BRANCHED)
    places = {}
    for weight in geared.weights:
        places.setdefault(weight.name.partition("_ascend")[0], set()).add(weight.offset)
    assert {name: len(found) for name, found in places.items()} == dict.fromkeys(places, 1)
    assert len(geared.weights) == 3 * len(plain.weights) + 1
    # Only the table is added: one aligned place.
    assert geared.weight_region.size == plain.weight_region.size + 512


def test_the_interface_lists_gears(tmp_path):
    info = with_gears(branching(), tmp_path / "m.om", BRANCHED).interface
    assert [(i.name, i.dims, i.size) for i in info.inputs] == [
        ("x", (-1, 8), 4 * 8 * 4),
        ("c", (), 1),
        ("ascend_mbatch_shape_data", (1,), 4),
    ]
    assert [(o.name, o.dims, o.size) for o in info.outputs] == [("z", (4, 4), 64)]
    assert (info.batch, info.image_sizes, info.dims) == ([1, 2, 4], [], [])
    assert info.output_shapes == ["0,0,1,4", "1,0,2,4", "2,0,4,4"]
    # 'x' and 'c' are too short for GE's loader, which would refuse the whole file.
    assert info.designated_order == []


@pytest.mark.parametrize(
    ("kind", "rows"), [(GearKind.IMAGE, [(8, 8), (16, 8)]), (GearKind.DIMS, [(8, 8), (16, 8)])]
)
def test_other_kinds_of_gears_have_their_own_block(tmp_path, kind, rows):
    header = '<ir_version: 10, opset_import: ["": 18]>'
    model = parse(f"{header} g (float[1,3,H,W] image) => (float[1,3,H,W] y) {{ y = Relu (image) }}")
    sizes = [{"image": (1, 3, *row)} for row in rows]
    file = with_gears(model, tmp_path / "m.om", sizes, rows, kind)
    assert file.gears.kind == kind
    assert [gear.sizes for gear in file.gears.gears] == rows
    info = file.interface
    assert info.designated_order == ["image"]
    blocks = {GearKind.IMAGE: info.image_sizes, GearKind.DIMS: info.dims}
    assert blocks.pop(kind) == rows
    assert [info.batch, *blocks.values()] == [[], []]
    assert [str(gear) for gear in file.gears.gears] == ["image[1,3,8,8]", "image[1,3,16,8]"]


@pytest.mark.parametrize(
    ("proto", "sizes"),
    [(mlp(), [{"x": (3, 8)}, {"x": (5, 8)}]), (branching(), BRANCHED)],
    ids=["mlp", "branching"],
)
def test_the_model_comes_back_exactly(tmp_path, proto, sizes):
    plain, file = both(proto, tmp_path, sizes)
    for gear in (None, 0, 1):
        assert proto_of(file.to_model(gear)) == proto_of(plain)
        assert shapes_of(file.to_model(gear)) == shapes_of(plain)
    assert [gear.inputs for gear in file.gears.gears] == sizes
    assert file.gear_groups == (0,) * len(sizes)
    for name, value in file.to_model().graph.initializers.items():
        expected = plain.graph.initializers[name].const_value.numpy()
        np.testing.assert_array_equal(value.const_value.numpy(), expected)
        assert isinstance(value.const_value, ir.ExternalTensor)


def test_loops_lists_of_graphs_denotations_and_unknown_shapes_come_back(tmp_path):
    body = h.make_graph(
        [
            h.make_node("Add", ["s", "x"], ["s2"], name="add"),
            h.make_node("Identity", ["go"], ["go2"], name="keep"),
        ],
        "body",
        [
            h.make_tensor_value_info("i", T.INT64, []),
            h.make_tensor_value_info("go", T.BOOL, []),
            h.make_tensor_value_info("s", T.FLOAT, ["N", 2]),
        ],
        [
            h.make_tensor_value_info("go2", T.BOOL, []),
            h.make_tensor_value_info("s2", T.FLOAT, ["N", 2]),
        ],
    )
    nodes = [
        h.make_node("Loop", ["n", "", "x"], ["y"], name="loop", body=body),
        h.make_node("NonZero", ["y"], ["where"], name="nonzero"),
    ]
    inputs = [h.make_tensor_value_info("x", T.FLOAT, ["N", 2])]
    inputs[0].type.tensor_type.shape.dim[0].denotation = "DATA_BATCH"
    outputs = [
        h.make_tensor_value_info("y", T.FLOAT, ["N", 2]),
        h.make_tensor_value_info("where", T.INT64, [2, "found"]),
    ]
    weights = [numpy_helper.from_array(np.array(3, np.int64), "n")]
    graph = h.make_graph(nodes, "g", inputs, outputs, weights)
    proto = h.make_model(graph, opset_imports=[h.make_opsetid("", 18)], ir_version=10)
    plain, file = both(proto, tmp_path, [{"x": (2, 2)}, {"x": (6, 2)}])
    assert file.gears.gears[1].inputs == {"x": (6, 2)}
    assert proto_of(file.to_model()) == proto_of(plain)
    assert shapes_of(file.to_model()) == shapes_of(plain)
    # What depends on data stays open within a gear.
    main = main_graphs(file.definition)[1]
    assert dims(op_named(main, "nonzero_ascend_mbatch_batch_1").output_desc[0]) == [2, -1]
    inner = next(g for g in file.definition.graph if g.name.startswith("g/loop/body_ascend"))
    assert dims(op_named(inner, "add_ascend_mbatch_batch_0").output_desc[0]) == [2, 2]


def test_merging_gives_the_definition_that_was_split(tmp_path):
    plain = written(branching(), tmp_path / "m.om").definition
    file = with_gears(branching(), tmp_path / "n.om", BRANCHED)
    merged = merge(file.definition, 2)
    expected = sorted(g.SerializeToString(deterministic=True) for g in plain.graph)
    assert sorted(g.SerializeToString(deterministic=True) for g in merged.graph) == expected


def test_the_same_gears_give_the_same_bytes(tmp_path):
    (tmp_path / "other").mkdir()
    paths = [folder / "m.om" for folder in (tmp_path, tmp_path / "other")]
    for path in paths:
        with_gears(branching(), path, BRANCHED)
    assert paths[0].read_bytes() == paths[1].read_bytes()


def test_an_edited_gear_differs_from_the_others_and_is_read_by_number(tmp_path):
    file = with_gears(mlp(), tmp_path / "m.om", [{"x": (1, 8)}, {"x": (2, 8)}])
    definition = file.definition
    op = op_named(main_graphs(definition)[1], "Relu_ascend_mbatch_batch_1")
    op.type = "Neg"
    edited = type(file).open(with_definition(file, definition, tmp_path / "edited.om"))
    assert edited.gear_groups == (0, 1)
    types = [[n.op_type for n in edited.to_model(g).graph] for g in (0, 1)]
    assert types == [
        ["MatMul", "Add", "Relu", "MatMul", "Add"],
        ["MatMul", "Add", "Neg", "MatMul", "Add"],
    ]
    with pytest.raises(ModelError) as error:
        edited.to_model()
    assert error.value.code == "OM011"
    assert "gear 1 and gear 0" in error.value.why


def _named_as_root(name):
    model = mlp()
    model.graph.input[0].name = name
    model.graph.node[0].input[0] = name
    return model


def test_names_that_gears_need_are_refused(tmp_path):
    taken = _named_as_root("ascend_mbatch_shape_case")
    with pytest.raises(ModelError) as error:
        with_gears(taken, tmp_path / "m.om", [{"ascend_mbatch_shape_case": (n, 8)} for n in (1, 2)])
    assert error.value.code == "OM026"
    assert not (tmp_path / "m.om").exists()
    # Without gears the name is like any other.
    assert (
        written(taken, tmp_path / "m.om").to_model().graph.inputs[0].name
        == taken.graph.input[0].name
    )


def _spoil_case(edit):
    def change(definition):
        edit(op_named(definition.graph[0], "ascend_mbatch_shape_case"))

    return change


def _rename_op(definition):
    main_graphs(definition)[0].op[0].name = "x"


def _open_gear(definition):
    desc = main_graphs(definition)[0].op[0].output_desc[0]
    desc.shape.dim[0] = -1


FAULTS = {
    "2 gears are listed": lambda d: put(d.attr, "cannc_gears", 3),
    "gear 1 has no sizes": _spoil_case(lambda op: op.attr.pop("_pred_value_1")),
    "there is no graph 'gone'": _spoil_case(lambda op: op.subgraph_name.__setitem__(1, "gone")),
    "'x_ascend_mbatch_batch_0' does not end": _spoil_case(
        lambda op: op.subgraph_name.__setitem__(1, op.subgraph_name[0])
    ),
    "two gears have the same sizes": _spoil_case(
        lambda op: op.attr["_pred_value_1"].CopyFrom(op.attr["_pred_value_0"])
    ),
    "_batch_num is not 2": _spoil_case(lambda op: put(op.attr, "_batch_num", 7)),
    "is not a valid GearKind": _spoil_case(lambda op: put(op.attr, "mbatch_dynamic_type", 9)),
    "'x' does not end with": _rename_op,
    "has open dims": _open_gear,
    "not copies of one model": lambda d: put_list(main_graphs(d)[1].op[-2].attr, "axes", "i", [1]),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_broken_gears_are_found_before_the_file_gets_its_name(tmp_path, fault):
    file = with_gears(mlp(), tmp_path / "m.om", [{"x": (1, 8)}, {"x": (2, 8)}])
    definition = file.definition
    assert not [*gear_faults(definition)]
    FAULTS[fault](definition)
    bad = with_definition(file, definition, tmp_path / "bad.om")
    with pytest.raises(CanncError) as error:
        check_file(bad)
    assert error.value.code == "OM030"
    assert fault in error.value.why


@pytest.mark.parametrize(
    "spoil",
    [
        lambda d: d.graph[0].op.__delitem__(slice(None)),
        lambda d: d.graph.__delitem__(1),
        lambda d: d.graph.__delitem__(slice(None)),
        _rename_op,
        lambda d: put(d.attr, "cannc_gears", -1),
        lambda d: d.graph[1].op[0].output_desc.__delitem__(0),
        lambda d: put_list(d.graph[0].op[0].attr, "cannc_outputs", "s", []),
    ],
)
def test_reading_broken_gears_is_an_error_about_the_file(tmp_path, spoil):
    file = with_gears(mlp(), tmp_path / "m.om", [{"x": (1, 8)}, {"x": (2, 8)}])
    definition = file.definition
    spoil(definition)
    bad = type(file).open(with_definition(file, definition, tmp_path / "bad.om"))
    reads = (lambda: bad.gears, lambda: bad.gear_groups, lambda: bad.ranges, bad.to_model)
    assert "OM007" in map(code_of, reads)


def code_of(read):
    """Return the code of the error that reading raises; anything but ModelError is a bug."""
    try:
        read()
    except ModelError as error:
        return error.code
    return None


def test_the_onnx_checker_takes_what_comes_back(tmp_path):
    file = with_gears(branching(), tmp_path / "m.om", BRANCHED)
    proto = ir.to_proto(file.to_model())
    for tensor in proto.graph.initializer:
        tensor.ClearField("external_data")
        tensor.data_location = T.DEFAULT
        tensor.raw_data = bytes(4 * int(np.prod(tensor.dims)))
    onnx.checker.check_model(proto)


def test_scalar_results_are_listed_as_ge_lists_them(tmp_path):
    text = '<ir_version: 10, opset_import: ["": 18]> g (float[N] x) => (float a, float b, float c)'
    body = "{ a = ReduceSum <keepdims = 0> (x) b = Neg (a) c = Exp (a) }"
    file = with_gears(parse(f"{text} {body}"), tmp_path / "m.om", [{"x": (1,)}, {"x": (2,)}])
    assert file.interface.output_shapes == ["0,0,", "1,0,", "0,1,", "1,1,", "0,2,", "1,2,"]
