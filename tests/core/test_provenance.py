from __future__ import annotations

import onnx_ir as ir
from tests.support.models import parse

from cannc.compiler.core.graphs import walk
from cannc.compiler.core.provenance import Alias, Provenance, digest, origins, set_origin
from cannc.compiler.core.unit import CompileUnit, load

TEXT = """g (float[2, 3] x) => (float[2, 3] y) {
    a = Transpose(x) b = Neg(a) c = Transpose(b) y = Relu(c)
}"""


def _unit() -> CompileUnit:
    return load(parse(TEXT))


def _fate(unit: CompileUnit, value: str) -> tuple[str, str, tuple[int, ...] | None]:
    (found,) = [fate for fate in unit.fates() if fate.value == value]
    return found.kind, found.target, found.perm


def test_a_new_model_is_its_own_original() -> None:
    unit = _unit()
    assert [fate.kind for fate in unit.fates()] == ["same"] * 4
    assert [origins(s.node) for s in walk(unit.model.graph)] == [
        ["Transpose_0"], ["Neg_1"], ["Transpose_2"], ["Relu_3"]
    ]  # fmt: skip
    assert unit.provenance.inputs == ("x",)
    assert unit.provenance.lost(unit.model) == []


def test_aliases_compose_their_permutations() -> None:
    unit = load(
        parse("g (float[2, 3, 4] x) => (y) { a = Neg(x) b = Neg(x) c = Neg(x) y = Relu(x) }")
    )
    for node in [*unit.model.graph][:3]:
        unit.model.graph.remove(node, safe=True)
    unit.provenance.aliases = {
        "a": Alias("b", (2, 0, 1)),
        "b": Alias("c"),
        "c": Alias("y", (1, 0, 2)),
    }
    # a = transpose(b, (2, 0, 1)) and b = transpose(y, (1, 0, 2)).
    assert _fate(unit, "a") == ("alias", "y", (2, 1, 0))
    assert _fate(unit, "b") == ("alias", "y", (1, 0, 2))


def test_a_circle_of_aliases_ends() -> None:
    unit = _unit()
    unit.provenance.aliases = {"a": Alias("b"), "b": Alias("a")}
    assert _fate(unit, "a")[0] in {"same", "alias"}


def test_a_value_without_a_trace_is_unknown_and_lost() -> None:
    unit = _unit()
    unit.model.graph[1].outputs[0].name = "renamed"
    set_origin(unit.model.graph[1], [])
    assert _fate(unit, "b")[0] == "unknown"
    assert unit.provenance.lost(unit.model) == ["b"]


def test_lost_agrees_with_the_fates_of_all_values() -> None:
    unit = _unit()
    unit.model.graph[0].outputs[0].name = "renamed"
    unit.provenance.aliases["a"] = Alias("renamed", (1, 0))
    assert unit.provenance.lost(unit.model) == []
    assert _fate(unit, "a") == ("alias", "renamed", (1, 0))


def test_the_record_survives_json_and_files(tmp_path) -> None:
    unit = _unit()
    unit.provenance.aliases["a"] = Alias("x", (1, 0))
    unit.provenance.folded.add("b")
    unit.provenance.dead.add("c")
    assert Provenance.from_json(unit.provenance.to_json()) == unit.provenance
    again = load(unit.save(tmp_path / "m.onnx"))
    assert again.provenance == unit.provenance
    assert (tmp_path / "m.provenance.json").read_text() == unit.provenance.to_json()
    assert again.fates() == unit.fates()


def test_values_of_branches_are_told_apart() -> None:
    unit = load(
        parse(
            """g (float[2] x, bool c) => (float[2] y) {
                y = If (c) <
                    then_branch = t () => (float[2] p) { p = Neg(x) },
                    else_branch = e () => (float[2] p) { p = Tanh(x) }
                >
            }"""
        )
    )
    assert [fate.value for fate in unit.fates()] == [
        "y", "If_0.then_branch/p", "If_0.else_branch/p"
    ]  # fmt: skip


def test_the_digest_sees_edges_and_not_weights() -> None:
    text = "g (float[1] x) => (y) <float[1] w = {NUMBER}> { a = Neg(x) y = OP(a, w) }"

    def of(number: str, op: str) -> str:
        return digest(load(parse(text.replace("NUMBER", number).replace("OP", op))).model)

    assert of("1.0", "Add") == of("2.0", "Add")
    assert of("1.0", "Add") != of("1.0", "Mul")


def test_inserted_nodes_stand_for_nothing_and_names_are_listed_once() -> None:
    node = ir.Node("", "Relu", [])
    assert origins(node) == []
    set_origin(node, ["b", "a", "b"])
    assert origins(node) == ["b", "a"]
