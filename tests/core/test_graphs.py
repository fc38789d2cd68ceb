from __future__ import annotations

import time

import onnx_ir as ir
import pytest
from tests.support.models import parse

from cannc.compiler.core.graphs import Names, all_graphs, name_nodes, subgraphs, walk
from cannc.compiler.core.unit import load

BRANCHES = """g (float[2] x, bool c) => (float[2] y) {
    y = If (c) <
        then_branch = t () => (float[2] p) { q = Neg(x) p = Relu(q) },
        else_branch = e () => (float[2] p) { p = Tanh(x) }
    >
}"""


def test_a_walk_goes_outer_before_inner_with_scopes() -> None:
    model = load(parse(BRANCHES)).model
    walked = [(scoped.scope, scoped.node.op_type) for scoped in walk(model.graph)]
    assert walked == [
        ("", "If"),
        ("If_0.then_branch/", "Neg"),
        ("If_0.then_branch/", "Relu"),
        ("If_0.else_branch/", "Tanh"),
    ]
    keys = [s.key(value) for s in walk(model.graph) for value in s.node.outputs]
    assert keys[2:] == ["If_0.then_branch/p", "If_0.else_branch/p"]
    assert [scope for scope, _ in all_graphs(model.graph)] == [
        "", "If_0.then_branch/", "If_0.else_branch/"
    ]  # fmt: skip


def test_lists_of_bodies_are_numbered() -> None:
    body = ir.Graph([], [], nodes=[], name="b")
    node = ir.Node("", "Custom", [], [ir.AttrGraphs("bodies", [body])])
    assert subgraphs(node) == [("bodies0", body)]


def test_unnamed_nodes_get_the_name_that_atc_gives() -> None:
    # One counter over all unnamed nodes, main graph first (pyacl.md section 8, D14).
    proto = parse(BRANCHES.replace("y = If", "a = Abs(x) y = If").replace("(c)", "(c)"))
    model = load(proto).model
    assert [scoped.node.name for scoped in walk(model.graph)] == [
        "Abs_0", "If_1", "Neg_2", "Relu_3", "Tanh_4"
    ]  # fmt: skip


def test_equal_names_get_a_suffix_that_is_free() -> None:
    nodes = [ir.Node("", "Relu", [], name=name) for name in ("n", "n", "n_1", "n")]
    model = ir.Model(ir.Graph([], [], nodes=nodes), ir_version=10)
    name_nodes(model)
    names = [node.name for node in model.graph]
    assert names[0] == "n"
    assert names[2] == "n_1"
    assert len(set(names)) == 4


def test_skipped_outputs_get_names_that_nothing_else_has() -> None:
    proto = parse(
        """g (float[2] x, float[2] Split_0__unused0) => (float[1] y) {
            , y = Split<num_outputs = 2>(x)
        }"""
    )
    model = load(proto).model
    names = [value.name for value in model.graph[0].outputs]
    assert names[1] == "y"
    assert names[0] not in {"", None, "y", "x", "Split_0__unused0"}


def test_fresh_names_are_new_whatever_is_taken() -> None:
    names = Names(["a", "a_1", None, ""])
    assert [names.fresh("a"), names.fresh("a"), names.fresh("b")] == ["a_2", "a_3", "b"]
    assert "a_2" in names
    assert "c" not in names


@pytest.mark.parametrize("count", [20_000])
def test_equal_names_cost_linear_time(count: int) -> None:
    nodes = [ir.Node("", "Relu", [], name="n") for _ in range(count)]
    model = ir.Model(ir.Graph([], [], nodes=nodes), ir_version=10)
    started = time.process_time()
    name_nodes(model)
    assert time.process_time() - started < 5  # quadratic: minutes
