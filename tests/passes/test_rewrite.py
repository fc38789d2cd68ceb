from __future__ import annotations

import numpy as np
import onnx_ir as ir
import pytest
from tests.support.passes import fates, parse, show

from cannc.compiler.core.provenance import origins
from cannc.compiler.core.tensors import DerivedTensor
from cannc.compiler.core.unit import CompileUnit
from cannc.passes.rewrite import Rewriter, graph_of


def _rewriter(unit: CompileUnit) -> Rewriter:
    return Rewriter(unit.model, unit.provenance, "test")


CHAIN = "(float[2] x) => (float[2] y) { a = Relu(x) b = Tanh(a) y = Neg(b) }"


def test_replacing_several_nodes_unites_their_origins_and_keeps_name_and_edges() -> None:
    unit = parse(CHAIN)
    first, second, _ = list(unit.model.graph)
    rewriter = _rewriter(unit)
    new = rewriter.node("Exp", [unit.model.graph.inputs[0]], like=second.outputs[0])
    rewriter.replace([first, second], [new], {second.outputs[0]: new.outputs[0]})
    assert show(unit.model) == ["b = Exp(x)", "y = Neg(b)"]
    assert origins(new) == ["Relu_0", "Tanh_1"]
    assert new.name == "Tanh_1"
    assert fates(unit) == {"a": "inside", "b": "same", "y": "same"}
    assert rewriter.applied == 1
    assert not rewriter.unordered


def test_all_new_nodes_stand_for_all_old_ones() -> None:
    unit = parse(CHAIN)
    (_, node, _) = list(unit.model.graph)
    rewriter = _rewriter(unit)
    one = rewriter.node("Exp", [node.inputs[0]], like=node.outputs[0])
    two = rewriter.node("Log", [one.outputs[0]], like=node.outputs[0])
    rewriter.replace([node], [one, two], {node.outputs[0]: two.outputs[0]})
    assert show(unit.model)[1:3] == ["b__test = Exp(a)", "b = Log(b__test)"]
    assert origins(one) == origins(two) == ["Tanh_1"]
    assert (one.name, two.name) == ("b__test", "Tanh_1")


def test_an_output_keeps_its_declared_shape() -> None:
    unit = parse("(float[N] x) => (float[M] y) { y = Neg(x) }")
    (node,) = list(unit.model.graph)
    rewriter = _rewriter(unit)
    new = rewriter.node("Exp", [node.inputs[0]])
    new.outputs[0].shape = ir.Shape(["N"])
    rewriter.replace([node], [new], {node.outputs[0]: new.outputs[0]})
    (output,) = unit.model.graph.outputs
    assert (output.name, str(output.shape), output.dtype) == ("y", "[M]", ir.DataType.FLOAT)


def test_a_value_used_outside_cannot_vanish() -> None:
    unit = parse("(float[2] x) => (y, z) { a = Relu(x) y = Tanh(a) z = Neg(a) }")
    first, second, _ = list(unit.model.graph)
    rewriter = _rewriter(unit)
    new = rewriter.node("Exp", [first.inputs[0]], like=second.outputs[0])
    with pytest.raises(ValueError, match="still"):
        rewriter.replace([first, second], [new], {second.outputs[0]: new.outputs[0]})


def test_a_permuted_value_is_an_alias_with_its_permutation() -> None:
    unit = parse("(float[2, 3] x) => (y) { a = Transpose(x) b = Relu(a) y = Transpose(b) }")
    first, relu, last = list(unit.model.graph)
    rewriter = _rewriter(unit)
    new = rewriter.node("Relu", [first.inputs[0]], like=last.outputs[0])
    rewriter.replace(
        [first, relu, last],
        [new],
        {
            first.outputs[0]: first.inputs[0],  # type: ignore[dict-item]
            relu.outputs[0]: new.outputs[0],
            last.outputs[0]: new.outputs[0],
        },
        perms={first.outputs[0]: (1, 0), relu.outputs[0]: (1, 0)},
    )
    assert show(unit.model) == ["y = Relu(x)"]
    found = {fate.value: (fate.kind, fate.target, fate.perm) for fate in unit.fates()}
    assert found == {
        "a": ("alias", "x", (1, 0)), "b": ("alias", "y", (1, 0)), "y": ("same", "", None)
    }  # fmt: skip


def test_a_producer_that_moves_behind_its_user_is_reported() -> None:
    unit = parse("(float[2] x) => (y, z) { a = Relu(x) y = Neg(a) z = Tanh(x) }")
    first, _, last = list(unit.model.graph)
    rewriter = _rewriter(unit)
    new = rewriter.node("Both", [first.inputs[0]], num_outputs=2, like=first.outputs[0])
    pairs = {first.outputs[0]: new.outputs[0], last.outputs[0]: new.outputs[1]}
    rewriter.replace([first, last], [new], pairs)
    assert rewriter.unordered
    unit.model.graph.sort()
    assert show(unit.model) == ["a, z = Both(x)", "y = Neg(a)"]


def test_constants_are_named_after_what_they_replace_and_stay_lazy() -> None:
    unit = parse("(float[2] x) => (y) <float[2] w = {1.0, 2.0}> { y = Mul(x, w) }")
    weight = unit.model.graph.initializers["w"]
    assert weight.const_value is not None

    def fail(array: object) -> object:
        raise AssertionError("read too early")

    lazy = DerivedTensor(weight.const_value, fail, ir.DataType.FLOAT)  # type: ignore[arg-type]
    rewriter = _rewriter(unit)
    one, two = rewriter.constant(weight, lazy), rewriter.constant(weight, np.ones(3, np.int64))
    assert (one.name, two.name) == ("w__test", "w__test_1")
    assert (one.dtype, two.dtype) == (ir.DataType.FLOAT, ir.DataType.INT64)


def test_many_names_of_one_stem_cost_linear_time() -> None:
    unit = parse("(float[2] x) => (y) <float[2] w = {1.0, 2.0}> { y = Mul(x, w) }")
    rewriter = _rewriter(unit)
    weight = unit.model.graph.initializers["w"]
    tensor = ir.Tensor(np.ones(1, np.float32))
    names = {rewriter.constant(weight, tensor).name for _ in range(20_000)}
    assert len(names) == 20_000


def test_folding_a_body_leaves_no_trace_unknown() -> None:
    unit = parse(
        """(float x) => (float y) <bool c = {1}> {
            a = If (c) <
                then_branch = t () => (float p) { q = Tanh(x) p = Neg(q) },
                else_branch = e () => (float r) { r = Exp(x) }
            >
            y = Neg(a)
        }"""
    )
    node = unit.model.graph[0]
    _rewriter(unit).fold(node, [ir.Tensor(np.float32(1))])
    assert fates(unit)["a"] == "folded"
    assert "unknown" not in fates(unit).values()
    assert not unit.model.graph.inputs[0].uses()


def test_a_body_that_moves_to_a_new_node_stays_alive() -> None:
    unit = parse(
        """(float x, bool c) => (float y) {
            y = If (c) <
                then_branch = t () => (float p) { p = Tanh(x) },
                else_branch = e () => (float r) { r = Exp(x) }
            >
        }"""
    )
    (node,) = list(unit.model.graph)
    rewriter = _rewriter(unit)
    negated = rewriter.node("Not", [node.inputs[0]])
    new = rewriter.node(
        "If",
        [negated.outputs[0]],
        {
            "then_branch": node.attributes["else_branch"].as_graph(),
            "else_branch": node.attributes["then_branch"].as_graph(),
        },
        like=node.outputs[0],
    )
    rewriter.replace([node], [negated, new], {node.outputs[0]: new.outputs[0]})
    assert len(unit.model.graph.inputs[0].uses()) == 2


def test_interface_constants_cannot_be_dropped() -> None:
    unit = parse("(float x, float w) => (y) <float w = {1.0}> { y = Neg(x) }")
    with pytest.raises(ValueError, match="interface"):
        _rewriter(unit).drop_initializer(unit.model.graph.initializers["w"])


def test_renaming_leaves_an_alias() -> None:
    unit = parse(CHAIN)
    _rewriter(unit).rename(unit.model.graph[0].outputs[0], "better")
    assert fates(unit)["a"] == "alias better"


def test_a_node_outside_any_graph_has_none() -> None:
    with pytest.raises(TypeError, match="no graph"):
        graph_of(ir.Node("", "Relu", []))
