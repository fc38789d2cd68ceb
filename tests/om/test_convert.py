"""ONNX model -> ModelDef -> ONNX model: what the node tests do not cover."""

import json

import ml_dtypes
import numpy as np
import onnx
import onnx_ir as ir
import pytest
from onnx import TensorProto as T
from onnx import helper as h
from onnx import numpy_helper
from tests.support.models import mlp, parse
from tests.support.om_files import branching, with_definition, written
from tests.support.runner import session

from cannc.compiler.core.errors import ModelError
from cannc.compiler.om.reader import OmFile
from cannc.compiler.om.writer import write_om

X = np.random.default_rng(0).normal(size=(3, 8)).astype(np.float32)


def run(model, feeds):
    """Run a model whose weights may lie in an OM file."""
    for graph in (model.graph, *(s for s in model.graph.subgraphs())):
        for value in graph.initializers.values():
            tensor = value.const_value
            value.const_value = ir.Tensor(np.array(tensor.numpy()), dtype=tensor.dtype)
    return session(model).run(None, feeds)


def op_named(definition, name):
    return next(op for graph in definition.graph for op in graph.op if op.name == name)


@pytest.mark.parametrize("condition", [True, False])
def test_branches_functions_and_optional_inputs_run_the_same(tmp_path, condition):
    model = branching()
    feeds = {"x": X, "c": np.array(condition)}
    back = written(model, tmp_path / "m.om").to_model()
    np.testing.assert_array_equal(run(back, feeds)[0], session(model).run(None, feeds)[0])


def test_captured_values_are_explicit_in_the_file_and_implicit_again_in_the_model(tmp_path):
    file = written(branching(), tmp_path / "m.om")
    op = op_named(file.definition, "if")
    assert list(op.input) == ["c:0", "mm:0", "w2:0"]
    assert set(op.subgraph_name) == {"g/if/then_branch", "g/if/else_branch"}
    (node,) = (n for n in file.to_model().graph if n.op_type == "If")
    assert [v.name for v in node.inputs] == ["c"]
    inner = node.attributes["else_branch"].as_graph()
    assert not inner.inputs
    assert inner.node(0).inputs[1] is file.to_model().graph.initializers["w2"] or (
        inner.node(0).inputs[1].name == "w2"
    )


def test_capture_through_two_levels(tmp_path):
    """The innermost graph reads a value of the outermost one, which the middle one never uses."""
    model = parse(
        """g (float[2] x, bool a, bool b) => (float[2] y) {
            v = Relu(x)
            y = If(a) <
                then_branch = t () => (float[2] r) {
                    r = If(b) <
                        then_branch = tt () => (float[2] q) { q = Neg(v) },
                        else_branch = te () => (float[2] q) { q = Abs(x) }
                    >
                },
                else_branch = e () => (float[2] r) { r = Identity(v) }
            >
        }"""
    )
    back = written(model, tmp_path / "m.om").to_model()
    for a in (True, False):
        for b in (True, False):
            feeds = {"x": np.array([-1, 2], np.float32), "a": np.array(a), "b": np.array(b)}
            np.testing.assert_array_equal(run(back, feeds)[0], session(model).run(None, feeds)[0])


def test_a_branch_that_returns_an_outer_value(tmp_path):
    model = parse(
        """g (float[2] x, bool a) => (float[2] y) {
            v = Relu(x)
            y = If(a) <
                then_branch = t () => (float[2] v) { unused = Neg(x) },
                else_branch = e () => (float[2] r) { r = Neg(v) }
            >
        }"""
    )
    back = written(model, tmp_path / "m.om").to_model()
    (node,) = (n for n in back.graph if n.op_type == "If")
    assert [v.name for v in node.attributes["then_branch"].as_graph().outputs] == ["v"]
    assert back.graph.node(0).outputs[0].name == "v"


def test_editing_an_attribute_in_the_file_changes_the_model(tmp_path):
    """D12: the ModelDef is the only source."""
    model = parse("g (float[2,3] x) => (float[a,b] y) { y = Transpose<perm=[0,1]>(x) }")
    file = written(model, tmp_path / "m.om")
    definition = file.definition
    (op,) = (op for op in definition.graph[0].op if op.type == "Transpose")
    op.attr["perm"].list.i[:] = [1, 0]
    edited = OmFile.open(with_definition(file, definition, tmp_path / "edited.om")).to_model()
    x = np.arange(6, dtype=np.float32).reshape(2, 3)
    np.testing.assert_array_equal(run(edited, {"x": x})[0], x.T)


def test_editing_an_edge_in_the_file_changes_the_model(tmp_path):
    model = parse("g (float[2] a, float[2] b) => (float[2] y) { n = Neg(a)\n y = Sub(n, b) }")
    file = written(model, tmp_path / "m.om")
    definition = file.definition
    (op,) = (op for op in definition.graph[0].op if op.type == "Sub")
    assert list(op.input) == [f"{definition.graph[0].op[2].name}:0", "b:0"]
    op.input[0], op.input[1] = op.input[1], op.input[0]
    edited = OmFile.open(with_definition(file, definition, tmp_path / "edited.om")).to_model()
    a, b = np.array([1, 2], np.float32), np.array([5, 7], np.float32)
    np.testing.assert_array_equal(run(edited, {"a": a, "b": b})[0], b + a)


def test_no_serialized_model_or_graph_inside(tmp_path):
    model = branching()
    data = written(model, tmp_path / "m.om").path.read_bytes()
    assert model.graph.SerializeToString() not in data
    for node in model.graph.node:
        assert node.SerializeToString() not in data


def test_names_metadata_and_versions_survive(tmp_path):
    model = branching()
    model.producer_name, model.producer_version, model.model_version = "p", "1.2", 7
    model.domain, model.doc_string = "some.domain", "words"
    model.graph.metadata_props.add(key="k", value="v")
    model.graph.node[0].doc_string = "a node"
    back = written(model, tmp_path / "m.om").to_model()
    assert (back.producer_name, back.producer_version, back.model_version) == ("p", "1.2", 7)
    assert (back.domain, back.doc_string, back.ir_version) == ("some.domain", "words", 10)
    assert back.metadata_props == {"cannc.provenance": "{}"}
    assert back.graph.metadata_props == {"k": "v"}
    assert back.opset_imports == {"": 18, "npu": 1}
    node = back.graph.node(0)
    assert json.loads(node.metadata_props["cannc.origin"]) == ["mm"]
    assert (node.name, node.doc_string) == ("mm", "a node")
    assert [str(dim) for dim in back.graph.inputs[0].shape] == ["N", "8"]
    (function,) = back.functions.values()
    assert (function.domain, function.name) == ("npu", "Twice")


def test_a_node_named_like_an_input_or_like_a_reserved_op(tmp_path):
    nodes = [
        h.make_node("Neg", ["x"], ["a"], name="x"),
        h.make_node("Const", ["a"], ["b"], name="Node_Output", domain="my"),
        h.make_node("Data", ["b"], ["c"], name="x", domain="my"),
        h.make_node("Neg", ["c"], ["y"], name=""),
    ]
    graph = h.make_graph(
        nodes,
        "g",
        [h.make_tensor_value_info("x", T.FLOAT, [2])],
        [h.make_tensor_value_info("y", T.FLOAT, [2])],
    )
    model = h.make_model(graph, opset_imports=[h.make_opsetid("", 18), h.make_opsetid("my", 1)])
    file = written(model, tmp_path / "m.om")
    names = [op.name for op in file.definition.graph[0].op]
    assert len(set(names)) == len(names)
    back = file.to_model()
    found = [(n.domain, n.op_type, n.name, n.outputs[0].name) for n in back.graph]
    assert found == [(n.domain, n.op_type, n.name, n.output[0]) for n in nodes]


def test_an_initializer_that_is_an_input_stays_both(tmp_path):
    model = parse("g (float[2] w, float[2] x) => (float[2] y) { y = Add(x, w) }")
    model.graph.initializer.append(numpy_helper.from_array(np.ones(2, np.float32), "w"))
    file = written(model, tmp_path / "m.om")
    assert [info.name for info in file.interface.inputs] == ["x"]
    back = file.to_model()
    assert [v.name for v in back.graph.inputs] == ["w", "x"]
    assert list(back.graph.initializers) == ["w"]


ARRAYS = {
    "float8": np.arange(6).astype(ml_dtypes.float8_e4m3fn).reshape(2, 3),
    "uint4": np.array([1, 2, 15], ml_dtypes.uint4),
    "int4": np.array([-8, 7, 1], ml_dtypes.int4),
    "bfloat16": np.array([1.5, -2], ml_dtypes.bfloat16),
    "int8": np.array([[-128, 127]], np.int8),
    "bool": np.array([True, False]),
    "scalar": np.array(3.5, np.float64),
    "empty": np.zeros((0, 4), np.float32),
    "int64": np.array([2**40], np.int64),
}


@pytest.mark.parametrize("name", ARRAYS)
@pytest.mark.parametrize("place", ["initializer", "attribute"])
def test_tensors_of_every_kind(tmp_path, name, place):
    array = ARRAYS[name]
    tensor = ir.Tensor(array, name="w")
    value = ir.Value(name="w", type=ir.TensorType(tensor.dtype), shape=tensor.shape)
    if place == "initializer":
        value.const_value = tensor
        node = ir.Node("", "Identity", [value], outputs=[ir.Value(name="y")])
    else:
        node = ir.Node("", "Constant", [], [ir.AttrTensor("value", tensor)])
        node.outputs[0].name = "y"
    weights = [value] if place == "initializer" else []
    graph = ir.Graph([], node.outputs, nodes=[node], initializers=weights, opset_imports={"": 21})
    path = tmp_path / "m.om"
    write_om(ir.Model(graph, ir_version=10), path, name="m", attributes={})
    back = OmFile.open(path).to_model().graph
    attributes = back.node(0).attributes
    found = attributes["value"].as_tensor() if weights == [] else back.initializers["w"].const_value
    assert found.dtype == tensor.dtype
    np.testing.assert_array_equal(found.numpy(), array)


def test_string_tensors_and_large_attributes(tmp_path):
    strings = h.make_tensor("s", T.STRING, [2, 1], [b"a", "\u00e9".encode()])
    large = numpy_helper.from_array(np.arange(1000, dtype=np.int64), "big")
    graph = h.make_graph(
        [
            h.make_node("Constant", [], ["c"], value=large),
            h.make_node("Identity", ["s"], ["t"]),
        ],
        "g",
        [],
        [
            h.make_tensor_value_info("c", T.INT64, [1000]),
            h.make_tensor_value_info("t", T.STRING, [2, 1]),
        ],
        [strings],
    )
    file = written(h.make_model(graph, opset_imports=[h.make_opsetid("", 18)]), tmp_path / "m.om")
    back = file.to_model().graph
    assert back.initializers["s"].const_value.numpy().tolist() == [[b"a"], ["\u00e9".encode()]]
    (constant,) = (n for n in back if n.op_type == "Constant")
    np.testing.assert_array_equal(constant.attributes["value"].as_tensor().numpy(), np.arange(1000))
    (op,) = (op for op in file.definition.graph[0].op if op.type == "Constant")
    assert not op.attr["value"].t.data
    assert op.attr["value"].t.desc.weight_size == 8000


def test_a_value_that_nothing_produces_is_refused(tmp_path):
    node = ir.Node("", "Neg", [ir.Value(name="ghost")], outputs=[ir.Value(name="y")])
    graph = ir.Graph([], node.outputs, nodes=[node], opset_imports={"": 18})
    with pytest.raises(ModelError, match="'ghost' is read but produced by nothing"):
        write_om(ir.Model(graph, ir_version=10), tmp_path / "m.om", name="m", attributes={})
    assert not list(tmp_path.iterdir())


def test_an_attribute_with_the_reserved_prefix_is_refused(tmp_path):
    model = mlp()
    model.graph.node[0].attribute.append(h.make_attribute("cannc_domain", "x"))
    with pytest.raises(ModelError, match="reserved"):
        written(model, tmp_path / "m.om")


@pytest.mark.parametrize(
    ("edit", "why"),
    [
        (lambda d: op_named(d, "clip").input.__setitem__(0, "nowhere:0"), "nowhere:0"),
        (lambda d: op_named(d, "mm").input.__setitem__(0, "clip:0"), "nothing before it"),
        (lambda d: op_named(d, "if").subgraph_name.__setitem__(0, "g"), "does not exist"),
        (lambda d: op_named(d, "if").subgraph_name.append("g/if/x"), "names 2 of 3 graphs"),
        (lambda d: op_named(d, "mm").output_desc.add(), "2 outputs, but the names"),
        (lambda d: op_named(d, "mm").attr["k"].td.SetInParent(), "kind 'td'"),
        (lambda d: op_named(d, "x").__setattr__("name", "mm"), "two ops"),
    ],
)
def test_broken_graphs_are_named(tmp_path, edit, why):
    file = written(branching(), tmp_path / "m.om")
    edit(file.definition)
    with pytest.raises(ModelError) as caught:
        OmFile.open(with_definition(file, file.definition, tmp_path / "e.om")).to_model()
    assert caught.value.code == "OM007"
    assert why in caught.value.why


def test_sequences_and_optionals_keep_their_type(tmp_path):
    model = parse(
        """g (seq(float[N]) s, optional(float[2]) o) => (float[K] y, float[2] z) {
            i = Constant<value = int64 {0}>()
            y = SequenceAt(s, i)
            z = OptionalGetElement(o)
        }"""
    )
    back = written(model, tmp_path / "m.om").to_model()
    expected = ir.from_proto(model)
    for found, original in zip(back.graph.inputs, expected.graph.inputs, strict=True):
        assert (found.type, found.shape) == (original.type, original.shape)


def test_onnx_checker_accepts_what_comes_back(tmp_path):
    back = written(branching(), tmp_path / "m.om").to_model()
    for graph in (back.graph, *back.graph.subgraphs()):
        for value in graph.initializers.values():
            value.const_value = ir.Tensor(np.array(value.const_value.numpy()))
    onnx.checker.check_model(ir.to_proto(back))


@pytest.mark.parametrize("items", [[b"a", b"b"], ["a", "b"]])
def test_strings_held_as_text_or_bytes(tmp_path, items):
    tensor = ir.StringTensor(np.array(items, dtype=object), shape=ir.Shape([2]), name="w")
    value = ir.Value(name="w", type=ir.TensorType(tensor.dtype), const_value=tensor)
    node = ir.Node("", "Identity", [value], outputs=[ir.Value(name="y")])
    graph = ir.Graph([], node.outputs, nodes=[node], initializers=[value], opset_imports={"": 18})
    write_om(ir.Model(graph, ir_version=10), tmp_path / "m.om", name="m", attributes={})
    back = OmFile.open(tmp_path / "m.om").to_model().graph.initializers["w"].const_value
    assert back.numpy().tolist() == [b"a", b"b"]
