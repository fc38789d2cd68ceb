from __future__ import annotations

from tests.support.passes import fates, parse, random_feeds, run, show
from tests.support.runner import assert_same_results

from cannc.compiler.core.provenance import origins

IMPORTS = ', "my" : 1'
SCALE = """
<domain: "my", opset_import: ["" : 18]>
Scale <alpha: float = 2.0> (x) => (y) {
    k = Constant<value_float: float = @alpha>()
    t = Mul(x, k)
    y = Relu(t)
}
"""


def test_a_call_becomes_its_body() -> None:
    before = parse(
        "(float[2] x) => (float[2] y) { a = my.Scale<alpha = 3.0>(x) y = Neg(a) }",
        imports=IMPORTS,
        functions=SCALE,
    )
    after = run(before, "inline-functions", "dead-code")
    assert [line.split(" = ")[1] for line in show(after.model)] == [
        "Constant() {value_float: 3.0}",
        "Mul(x, k__inline-functions)",
        "Relu(t__inline-functions)",
        "Neg(a)",
    ]
    assert not after.model.functions
    assert set(after.model.opset_imports) == {""}
    assert fates(after) == {"a": "same", "y": "same"}
    call = before.model.graph[0].name
    assert [origins(node) for node in after.model.graph][:3] == [[call]] * 3
    assert_same_results(before.model, after.model, random_feeds(before.model))


def test_each_call_has_its_own_attributes_and_names() -> None:
    before = parse(
        """(float[2] x) => (float[2] y) {
            a = my.Scale<alpha = 3.0>(x) b = my.Scale(a) y = my.Scale<alpha = 0.5>(b)
        }""",
        imports=IMPORTS,
        functions=SCALE,
    )
    after = run(before, "inline-functions")
    names = [node.name for node in after.model.graph]
    assert len(set(names)) == len(names) == 9
    assert_same_results(before.model, after.model, random_feeds(before.model))


def test_calls_inside_functions_and_branches_are_inlined() -> None:
    before = parse(
        """(float[2] x, bool c) => (float[2] y) {
            y = If (c) <
                then_branch = t () => (float[2] p) { p = my.Twice(x) },
                else_branch = e () => (float[2] r) { r = my.Scale(x) }
            >
        }""",
        imports=IMPORTS,
        functions=SCALE
        + """
        <domain: "my", opset_import: ["" : 18, "my" : 1]>
        Twice (x) => (y) { a = my.Scale<alpha = 0.25>(x) y = my.Scale(a) }
        """,
    )
    after = run(before, "inline-functions", "dead-code")
    assert not after.model.functions
    assert "my." not in "".join(show(after.model))
    assert "unknown" not in fates(after).values()
    assert_same_results(before.model, after.model, random_feeds(before.model))


def test_an_absent_optional_input_stays_absent() -> None:
    before = parse(
        "(float[2] x) => (float[2] y) <float h = {0.5}> { y = my.Bound(x, , h) }",
        imports=IMPORTS,
        functions="""
        <domain: "my", opset_import: ["" : 18]>
        Bound (x, low, high) => (y) { y = Clip(x, low, high) }
        """,
    )
    after = run(before, "inline-functions")
    assert show(after.model) == ["y = Clip(x, , h)"]


def test_a_body_that_passes_its_input_on() -> None:
    before = parse(
        "(float[2] x) => (float[2] y) { a = my.Same(x) y = Neg(a) }",
        imports=IMPORTS,
        functions="""
        <domain: "my", opset_import: ["" : 18]>
        Same (x) => (y) { y = Identity(x) }
        """,
    )
    after = run(before, "inline-functions", "eliminate-identity")
    assert show(after.model) == ["y = Neg(x)"]
    assert fates(after)["a"] == "alias x"


def test_bodies_with_branches_keep_scopes_apart() -> None:
    before = parse(
        "(float[2] x, bool c) => (float[2] y) { t = my.Pick(x, c) y = my.Pick(t, c) }",
        imports=IMPORTS,
        functions="""
        <domain: "my", opset_import: ["" : 18]>
        Pick (x, c) => (y) {
            t = Neg(x)
            y = If (c) <
                then_branch = a () => (p) { p = Exp(t) },
                else_branch = b () => (q) { s = Neg(t) q = Tanh(s) }
            >
        }
        """,
    )
    after = run(before, "inline-functions")
    assert len(after.model.graph) == 4
    assert_same_results(before.model, after.model, random_feeds(before.model))


def test_a_registered_operator_stays() -> None:
    before = parse(
        "(float[2, 4] x, float[4] g) => (y) { y, r = npu.NPURmsNorm(x, g) }",
        imports=', "npu" : 1',
        functions="""
        <domain: "npu", opset_import: ["" : 18]>
        NPURmsNorm (x, g) => (y, r) { y = Mul(x, g) r = Relu(x) }
        """,
    )
    after = run(before, "inline-functions")
    assert show(after.model) == show(before.model)
    assert len(after.model.functions) == 1


def test_a_body_of_another_opset_is_refused_with_the_reason() -> None:
    before = parse(
        "(float[2] x) => (float[2] y) { y = my.F(x) }",
        imports=IMPORTS,
        functions="""
        <domain: "my", opset_import: ["" : 13]>
        F (x) => (y) { y = Relu(x) }
        """,
    )
    after = run(before, "inline-functions")
    assert show(after.model) == show(before.model)
    (refusal,) = after.log[-1].refusals
    assert "opset 13" in refusal
    assert "18" in refusal
