"""A host artifact opens in Netron: its own sources, run headless under node.

"Opened" means: format recognized, every graph and node there, every value typed, every tensor's
numbers decoded, every attribute formatted (om-format.md section 11).
"""

import ml_dtypes
import numpy as np
import pytest
from onnx import TensorProto as T
from onnx import helper as h
from onnx import numpy_helper
from tests.support.gears import with_gears
from tests.support.models import mlp
from tests.support.netron import needs_netron, opened
from tests.support.om_files import SHARED, branching, with_definition, written

pytestmark = needs_netron


def nodes_of(shown, graph=0):
    return {node["name"]: node for node in shown["modules"][graph]["nodes"]}


def values_of(shown):
    for module in shown["modules"]:
        for node in module["nodes"]:
            for argument in (*node["inputs"], *node["outputs"]):
                yield from argument["value"]


WEIGHTS = {
    "f32": np.array([[1.5, -2.25], [0, 3]], np.float32),
    "f16": np.array([1.5, -2.25, 65504], np.float16),
    "f64": np.array([1e300], np.float64),
    "i8": np.array([-128, 127, 5], np.int8),
    "u8": np.array([[0, 255]], np.uint8),
    "i32": np.array([-(2**31), 7], np.int32),
    "i64": np.array([2**40, -1], np.int64),
    "flag": np.array([True, False, True]),
    "scalar": np.array(2.5, np.float32),
    "one": np.array([4], np.int64),
}
TYPES = {
    "f32": "float32[2,2]",
    "f16": "float16[3]",
    "f64": "float64[1]",
    "i8": "int8[3]",
    "u8": "uint8[1,2]",
    "i32": "int32[2]",
    "i64": "int64[2]",
    "flag": "boolean[3]",
    "scalar": "float32",
    "one": "int64[1]",
}


def test_weights_of_every_type_show_their_numbers(tmp_path):
    nodes = [h.make_node("Identity", [name], [f"{name}_out"], name=f"n_{name}") for name in WEIGHTS]
    outputs = [
        h.make_tensor_value_info(f"{name}_out", h.np_dtype_to_tensor_dtype(a.dtype), a.shape)
        for name, a in WEIGHTS.items()
    ]
    weights = [numpy_helper.from_array(array, name) for name, array in WEIGHTS.items()]
    graph = h.make_graph(nodes, "g", [], outputs, weights)
    model = h.make_model(graph, opset_imports=[h.make_opsetid("", 18)])
    shown = nodes_of(opened(written(model, tmp_path / "m.om").path))
    for name, array in WEIGHTS.items():
        (value,) = shown[f"n_{name}"]["inputs"][0]["value"]
        assert value["type"] == TYPES[name]
        np.testing.assert_array_equal(value["initializer"]["value"], array.astype(float))


def test_types_that_netron_lacks_open_as_bytes(tmp_path):
    names = {"fp8": ml_dtypes.float8_e4m3fn, "u4": ml_dtypes.uint4, "fp4": ml_dtypes.float4_e2m1fn}
    weights = [numpy_helper.from_array(np.arange(4).astype(d), n) for n, d in names.items()]
    weights.append(h.make_tensor("text", T.STRING, [1], [b"words"]))
    weights.append(numpy_helper.from_array(np.ones(3, ml_dtypes.bfloat16), "bf16"))
    nodes = [h.make_node("Identity", [t.name], [f"{t.name}_out"], name=t.name) for t in weights]
    outputs = [
        h.make_tensor_value_info(f"{t.name}_out", t.data_type, list(t.dims)) for t in weights
    ]
    graph = h.make_graph(nodes, "g", [], outputs, weights)
    model = h.make_model(graph, opset_imports=[h.make_opsetid("", 23)])
    shown = nodes_of(opened(written(model, tmp_path / "m.om").path))
    types = {
        n: node["inputs"][0]["value"][0]["type"] for n, node in shown.items() if node["inputs"]
    }
    assert types["fp8"] == "uint8[4]"
    assert types["u4"] == types["fp4"] == "uint8[2]"
    assert types["bf16"] == "bfloat16[3]"
    assert types["text"].startswith("uint8[")


def test_graph_edges_attributes_dynamic_dims_and_optional_inputs(tmp_path):
    shown = opened(written(branching(), tmp_path / "m.om").path)
    assert [m["name"] for m in shown["modules"]] == ["g", "g/if/else_branch", "g/if/then_branch"]
    nodes = nodes_of(shown)
    assert set(nodes) == {"x", "c", "mm", "if", "twice", "clip", "Node_Output"}
    assert nodes["mm"]["type"] == "MatMul"
    names = {a["name"]: a["value"][0]["name"] for a in nodes["mm"]["inputs"]}
    assert names == {"x1": "x:0", "x2": "w:0"}
    assert nodes["x"]["outputs"][0]["value"][0]["type"] == "float32[-1,8]"
    assert nodes["c"]["outputs"][0]["value"][0]["type"] == "boolean"
    # Clip has no lower bound: its empty input is not shown, the upper one is.
    clip = [argument["value"][0]["name"] for argument in nodes["clip"]["inputs"]]
    assert clip == ["twice:0", "hi:0"]
    assert nodes["mm"]["attributes"]["cannc_meta.cannc.origin"] == '["mm"]'
    assert nodes["twice"]["attributes"]["cannc_domain"] == "npu"
    assert all(value["denotation"] == "ND" or value["initializer"] for value in values_of(shown))


def test_attributes_are_listed_with_their_values(tmp_path):
    node = h.make_node(
        "Conv",
        ["x", "w"],
        ["y"],
        name="conv",
        strides=[2, 2],
        auto_pad="SAME_UPPER",
        group=1,
        scale=0.5,
        table=numpy_helper.from_array(np.arange(3, dtype=np.float32)),
        empty=h.make_tensor("e", T.FLOAT, [0], []),
    )
    graph = h.make_graph(
        [node],
        "g",
        [h.make_tensor_value_info("x", T.FLOAT, [1, 3, 8, 8])],
        [h.make_tensor_value_info("y", T.FLOAT, [1, 4, 4, 4])],
        [numpy_helper.from_array(np.zeros((4, 3, 3, 3), np.float32), "w")],
    )
    model = h.make_model(graph, opset_imports=[h.make_opsetid("", 18)])
    attributes = nodes_of(opened(written(model, tmp_path / "m.om").path))["conv"]["attributes"]
    assert attributes["strides"] == "2, 2"
    assert attributes["auto_pad"] == "SAME_UPPER"
    assert attributes["group"] == "1"
    assert attributes["scale"] == "0.5"


def test_every_value_is_typed(tmp_path):
    values = list(values_of(opened(written(mlp(), tmp_path / "m.om").path)))
    assert len(values) > 10
    assert all(value["type"] for value in values)


def test_the_harness_sees_what_netron_refuses(tmp_path):
    file = written(mlp(), tmp_path / "m.om")
    (op,) = (op for op in file.definition.graph[0].op if op.type == "Relu")
    op.input_desc[0].dtype = 2
    path = with_definition(file, file.definition, tmp_path / "bad.om")
    with pytest.raises(AssertionError, match="Duplicate value"):
        opened(path)


@pytest.mark.skipif(not (SHARED / "om").is_dir(), reason="no real .om files here")
def test_the_harness_opens_real_files_too():
    for path in sorted((SHARED / "om").glob("*.om")):
        assert opened(path)["modules"][0]["nodes"]


def test_gears_open_as_one_graph_each_behind_a_choice(tmp_path):
    sizes = [{"x": (n, 8), "c": ()} for n in (1, 2)]
    shown = opened(with_gears(branching(), tmp_path / "m.om", sizes).path)
    ends = [f"_ascend_mbatch_batch_{number}" for number in (0, 1)]
    inner = ("g", "g/if/else_branch", "g/if/then_branch")
    assert [m["name"] for m in shown["modules"]] == ["g", *(n + end for end in ends for n in inner)]
    root = nodes_of(shown)
    assert [node["type"] for node in root.values()] == [
        *["Data"] * 3,
        "MapIndex",
        "Case",
        "NetOutput",
    ]
    (table,) = root["ascend_mbatch_shape_mapindex"]["inputs"][1]["value"]
    assert (table["type"], table["initializer"]["value"]) == ("int32[2]", [1, 2])
    for place, batch in ((1, 1), (4, 2)):
        nodes = nodes_of(shown, place)
        data = nodes[f"x_ascend_mbatch_batch_{batch - 1}"]
        assert data["outputs"][0]["value"][0]["type"] == f"float32[{batch},8]"
        weight = nodes[f"mm_ascend_mbatch_batch_{batch - 1}"]["inputs"][1]["value"][0]
        assert weight["initializer"]["value"][0] == [0.0, 1.0, 2.0, 3.0]
