import numpy as np
import pytest
from tests.support.models import mlp, parse

from cannc.compiler.core.provenance import Alias
from cannc.compiler.core.unit import load
from cannc.golden.align import Place, align
from cannc.golden.compare import compare
from cannc.passes.rewrite import Rewriter

CHAIN = """m (float[1, 2, 3, 4] x) => (float[1, 2, 3, 4] y) {
    a = Neg(x)
    i = Identity(a)
    e = Exp(i)
    y = Relu(e)
}"""
IMAGE = np.random.default_rng(0).standard_normal((1, 2, 3, 4)).astype(np.float32)


def channels_last(unit):
    """Compute Exp on a transposed tensor, and say so in the provenance."""
    graph = unit.model.graph
    rewriter = Rewriter(unit.model, unit.provenance, "layout")
    exp, last = graph.node("Exp_2"), graph.node("Relu_3")
    to_last = rewriter.node("Transpose", [exp.inputs[0]], {"perm": [0, 2, 3, 1]})
    inner = rewriter.node("Exp", [to_last.outputs[0]])
    back = rewriter.node("Transpose", [inner.outputs[0]], {"perm": [0, 3, 1, 2]})
    new_last = rewriter.node("Relu", [back.outputs[0]], like=last.outputs[0])
    rewriter.replace([exp], [to_last, inner, back], {exp.outputs[0]: back.outputs[0]})
    # Nothing reads the transposed-back value under its name but the last node's input.
    back.outputs[0].name = "e__back"
    unit.provenance.aliases["e"] = Alias(inner.outputs[0].name, (0, 3, 1, 2))
    rewriter.replace([last], [new_last], {last.outputs[0]: new_last.outputs[0]})
    return inner


def test_the_same_model_aligns_with_itself():
    alignment = align(load(mlp()), load(mlp()))
    assert not alignment.by_name
    assert [row.kind for row in alignment.rows] == ["compared"] * 5
    assert all(row.owned and row.node == row.candidate_node for row in alignment.rows)


def test_transposed_aliases_are_compared_in_the_original_layout():
    unit = load(parse(CHAIN))
    inner = channels_last(unit)
    report = compare(parse(CHAIN), unit, inputs={"x": IMAGE})
    row = next(layer for layer in report.layers if layer.name == "e")
    assert (row.candidate, row.perm) == (inner.outputs[0].name, (0, 3, 1, 2))
    assert row.accumulated.max_abs == row.isolated.max_abs == 0.0
    assert row.shape == (1, 2, 3, 4)
    assert report.verdict == "pass"
    assert report.culprits == ()


def test_place_undoes_its_transposition():
    place = Place("v", (0, 3, 1, 2))
    stored = place.stored(IMAGE)
    assert stored.shape == (1, 3, 4, 2)
    np.testing.assert_array_equal(place.original(stored), IMAGE)


def test_a_removed_identity_is_charged_to_the_layer_before_it():
    unit = load(parse(CHAIN))
    rewriter = Rewriter(unit.model, unit.provenance, "test")
    identity = unit.model.graph.node("Identity_1")
    rewriter.bypass(identity, identity.inputs[0])
    rows = {row.name: row for row in align(load(parse(CHAIN)), unit).rows}
    assert (rows["i"].kind, rows["i"].candidate_node, rows["i"].owned) == (
        "compared",
        "Neg_0",
        False,
    )
    assert (rows["a"].kind, rows["a"].owned) == ("compared", True)


def test_values_in_branches_are_listed_and_the_outputs_compared():
    text = """m (float[2] x, bool c) => (float[2] y) {
        a = Neg(x)
        y = If(c)<
            then_branch = t () => (float[2] p) { p = Exp(a) },
            else_branch = e () => (float[2] q) { q = Identity(a) }>
    }"""
    feeds = {"x": np.float32([1, 2]), "c": np.array(True)}
    report = compare(parse(text), parse(text), inputs=feeds)
    kinds = {layer.name: layer.kind for layer in report.layers}
    assert kinds["a"] == kinds["y"] == "compared"
    assert sorted(kinds.values()) == ["branch", "branch", "compared", "compared"]
    assert report.verdict == "pass"


def test_sequences_are_listed():
    text = """m (float[4] x) => (float[4] y) {
        s = SplitToSequence<axis = 0>(x, two)
        y = ConcatFromSequence<axis = 0>(s)
    }"""
    model = parse(text, two=np.array(2))
    report = compare(model, model, inputs={"x": np.float32([1, 2, 3, 4])})
    assert {layer.name: layer.kind for layer in report.layers} == {"s": "sequence", "y": "compared"}
    assert report.verdict == "pass"


def test_outputs_that_are_inputs_or_constants_are_compared():
    text = "m (float[2] x) => (float[2] x, float[2] k, float[2] y) { y = Neg(x) }"
    model = parse(text, k=np.float32([1, 2]))
    other = parse(text, k=np.float32([1, 5]))
    assert compare(model, model, inputs={"x": np.float32([1, 2])}).verdict == "pass"
    report = compare(model, other, inputs={"x": np.float32([1, 2])})
    assert report.verdict == "fail"
    assert [layer.passed for layer in report.outputs] == [True, False, True]


def test_another_model_is_matched_by_name_with_a_warning():
    renamed = parse(
        CHAIN.replace("a = Neg(x)", "other = Neg(x)").replace("Identity(a)", "Identity(other)")
    )
    report = compare(parse(CHAIN), renamed, inputs={"x": IMAGE})
    kinds = {layer.name: layer.kind for layer in report.layers}
    assert kinds == {"a": "unmatched", "i": "compared", "e": "compared", "y": "compared"}
    assert "matched by name" in report.warnings[0]
    assert report.verdict == "pass"


def test_a_missing_output_fails():
    fewer = parse(CHAIN.replace("y = Relu(e)", "z = Relu(e)").replace("] y)", "] z)"))
    report = compare(parse(CHAIN), fewer, inputs={"x": IMAGE})
    assert report.verdict == "fail"
    assert any("graph output y was not compared" in text for text in report.warnings)


def test_a_value_that_was_lost_fails_the_comparison():
    unit = load(parse(CHAIN))
    unit.model.graph.node("Exp_2").outputs[0].name = "nobody_said"
    unit.model.graph.node("Exp_2").metadata_props.clear()
    report = compare(parse(CHAIN), unit, inputs={"x": IMAGE})
    assert report.counts["unknown"] == 1
    assert report.verdict == "fail"
    assert "bug of cannc" in report.warnings[0]


@pytest.mark.parametrize("level", ["a", "e"])
def test_two_stages_of_one_model_compare_with_each_other(level):
    early, late = load(parse(CHAIN)), load(parse(CHAIN))
    for unit in (early, late):
        rewriter = Rewriter(unit.model, unit.provenance, "test")
        identity = unit.model.graph.node("Identity_1")
        rewriter.bypass(identity, identity.inputs[0])
    report = compare(early, late, inputs={"x": IMAGE})
    assert level in {layer.name for layer in report.layers if layer.kind == "compared"}
    assert report.warnings == ()
    assert report.verdict == "pass"
