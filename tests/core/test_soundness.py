from __future__ import annotations

import time

import onnx
import pytest
from onnx import TensorProto, helper
from tests.support.models import parse

from cannc.compiler.core.errors import ModelError
from cannc.compiler.core.soundness import check_sound


def _faults(model: onnx.ModelProto) -> str:
    with pytest.raises(ModelError) as caught:
        check_sound(model, "m.onnx")
    assert caught.value.code == "ONNX003"
    assert caught.value.where == "m.onnx"
    return caught.value.why


def _chain() -> onnx.ModelProto:
    return parse(
        "g (float[2] x) => (float[2] y) <float[2] w = {1.0, 2.0}> { a = Add(x, w) y = Relu(a) }"
    )


def test_a_sound_model_passes() -> None:
    check_sound(_chain(), "m.onnx")


def test_names_of_an_outer_graph_are_seen_inside_and_not_the_other_way() -> None:
    text = """g (float[2] x, bool c) => (float[2] y) {
        z = If (c) <
            then_branch = t () => (float[2] p) { q = Neg(x) p = Relu(q) },
            else_branch = e () => (float[2] r) { q = Exp(x) r = Tanh(q) }
        >
        y = Relu(NAME)
    }"""
    check_sound(parse(text.replace("NAME", "z")), "m.onnx")
    assert "reads 'q'" in _faults(parse(text.replace("NAME", "q")))


def _reversed(model: onnx.ModelProto) -> None:
    nodes = list(model.graph.node)[::-1]
    del model.graph.node[:]
    model.graph.node.extend(nodes)


def _twice(model: onnx.ModelProto) -> None:
    model.graph.node.append(model.graph.node[-1])


def _unknown_output(model: onnx.ModelProto) -> None:
    model.graph.output[0].name = "nowhere"


def _no_opset(model: onnx.ModelProto) -> None:
    del model.opset_import[:]


def _foreign(model: onnx.ModelProto) -> None:
    model.graph.node[0].domain = "my"


def _input_twice(model: onnx.ModelProto) -> None:
    model.graph.input.append(model.graph.input[0])


def _weight_twice(model: onnx.ModelProto) -> None:
    model.graph.initializer.append(model.graph.initializer[0])


def _short_weight(model: onnx.ModelProto) -> None:
    tensor = model.graph.initializer[0]
    tensor.ClearField("float_data")
    tensor.raw_data = b"1234"


def _negative(model: onnx.ModelProto) -> None:
    model.graph.initializer[0].dims[0] = -2


@pytest.mark.parametrize(
    ("damage", "finding"),
    [
        (_reversed, "reads 'a', which nothing before it produces"),
        (_twice, "produces 'y' a second time"),
        (_unknown_output, "graph output 'nowhere' is produced by nothing"),
        (_no_opset, "no opset_import"),
        (_foreign, "domain 'my' is not imported"),
        (_input_twice, "graph input 'x' is declared twice"),
        (_weight_twice, "initializer 'w' is stored twice"),
        (_short_weight, "tensor 'w' has 4 bytes, its shape needs 8"),
        (_negative, "tensor 'w' has a negative dimension"),
    ],
)
def test_faults_are_named(damage, finding: str) -> None:
    model = _chain()
    damage(model)
    assert finding in _faults(model)


def test_many_faults_are_counted_and_ten_are_listed() -> None:
    nodes = [helper.make_node("Relu", [f"m{i}"], [f"o{i}"]) for i in range(30)]
    graph = helper.make_graph(nodes, "g", [], [])
    why = _faults(helper.make_model(graph))
    assert why.count("reads") == 10
    assert why.endswith("and 20 more")


def test_attributes_cost_no_copies_of_all_names() -> None:
    nodes = [
        helper.make_node("Cast", ["x" if i == 0 else f"v{i - 1}"], [f"v{i}"], to=1)
        for i in range(20_000)
    ]
    value = helper.make_tensor_value_info
    graph = helper.make_graph(
        nodes, "g", [value("x", TensorProto.FLOAT, [1])], [value("v19999", TensorProto.FLOAT, [1])]
    )
    started = time.process_time()
    check_sound(helper.make_model(graph), "m.onnx")
    assert time.process_time() - started < 5  # quadratic: a minute
