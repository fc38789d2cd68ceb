from __future__ import annotations

from tests.support.passes import fates, parse, random_feeds, run, show
from tests.support.runner import assert_same_results


def test_a_chain_that_nothing_needs_goes_with_its_weights() -> None:
    before = parse(
        """(float[2] x) => (y) <float w = {1.0}> {
            a = Add(x, w) b = Exp(a) y = Relu(x)
        }"""
    )
    after = run(before, "dead-code")
    assert show(after.model) == ["y = Relu(x)"]
    assert not after.model.graph.initializers
    assert fates(after) == {"a": "dead", "b": "dead", "y": "same"}


def test_a_node_with_one_needed_output_stays() -> None:
    before = parse("""(float[2] x) => (y) <int64[1] k = {1}> { v, i = TopK(x, k) y = Relu(v) }""")
    assert show(run(before, "dead-code").model) == show(before.model)


def test_unused_inputs_stay() -> None:
    before = parse("(float[2] x, int64 unused) => (y) { y = Relu(x) }")
    after = run(before, "dead-code")
    assert [value.name for value in after.model.graph.inputs] == ["x", "unused"]


def test_an_unused_initializer_that_is_an_input_keeps_its_default() -> None:
    before = parse("(float[2] x, float w) => (y) <float w = {1.0}> { y = Relu(x) }")
    assert "w" in run(before, "dead-code").model.graph.initializers


def test_dead_branches_release_what_they_read() -> None:
    before = parse(
        """(float[2] x, bool c) => (float[2] y) {
            a = Tanh(x)
            d = If (c) <
                then_branch = t () => (float[2] p) { p = Neg(a) },
                else_branch = e () => (float[2] r) { r = Exp(a) }
            >
            y = Relu(x)
        }"""
    )
    after = run(before, "dead-code")
    assert show(after.model) == ["y = Relu(x)"]
    assert set(fates(after).values()) == {"dead", "same"}


def test_dead_nodes_inside_a_loop_body_go() -> None:
    before = parse(
        """(float[2] x, int64 n) => (float[2] y) {
            a = Tanh(x)
            t = Constant<value = bool {1}>()
            y = Loop (n, t, x) <
                body = b (int64 i, bool c, float[2] s) => (bool d, float[2] r) {
                    u = Neg(a) d = Identity(c) r = Relu(s)
                }
            >
        }"""
    )
    after = run(before, "dead-code")
    assert show(after.model)[1:] == [
        "y = Loop(n, t, x)",
        "  body: d = Identity(c)",
        "  body: r = Relu(s)",
    ]
    assert fates(after)["a"] == "dead"
    assert_same_results(before.model, after.model, random_feeds(before.model))


def test_unused_functions_and_imports_go() -> None:
    before = parse(
        "(float[2] x) => (y) { y = my.F(x) }",
        imports=', "my" : 1, "other" : 2',
        functions="""
        <domain: "my", opset_import: ["" : 18, "my" : 1]> F (a) => (b) { b = my.G(a) }
        <domain: "my", opset_import: ["" : 18]> G (a) => (b) { b = Relu(a) }
        <domain: "my", opset_import: ["" : 18]> H (a) => (b) { b = Neg(a) }
        """,
    )
    after = run(before, "dead-code")
    assert [name for _, name, _ in after.model.functions] == ["F", "G"]
    assert set(after.model.opset_imports) == {"", "my"}
