"""The cases from users' reports that concern simplification and cures, at O1."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnx_ir as ir
import pytest
from tests.support.ops import B4
from tests.support.runner import PlainRunner, run_plain

from cannc.compiler.core.errors import ModelError
from cannc.compiler.core.graphs import walk
from cannc.compiler.core.shapes import static_shape
from cannc.compiler.core.target import Target
from cannc.compiler.core.unit import CompileUnit, load
from cannc.op_support.checker import check
from cannc.passes.optimize import optimize

SHARED = Path(__file__).parents[2].parent / "shared" / "cases"
pytestmark = pytest.mark.skipif(not SHARED.is_dir(), reason="the cases lie beside the repository")

KINDS = ("sim", "op", "ops", "dyn")


def _cases() -> list[dict[str, Any]]:
    if not SHARED.is_dir():
        return []
    cases: list[dict[str, Any]] = json.loads((SHARED / "cases.json").read_text())["cases"]
    return cases


def _of(*kinds: str, expect: str) -> list[Any]:
    return [
        pytest.param(case, id=case["id"])
        for case in _cases()
        if case["id"].split("-")[0] in kinds and case["expect"].startswith(expect)
    ]


def _optimized(case: dict[str, Any]) -> CompileUnit:
    unit = load(SHARED / case["model"])
    return optimize(
        unit,
        level="O1",
        precision="keep",
        target=Target(),
        runner=PlainRunner(),
        may_use_kernel=lambda op_type, dtype: None,
    )


@pytest.mark.parametrize("case", _of(*KINDS, expect="equal"))
def test_gives_the_expected_values(case: dict[str, Any]) -> None:
    unit = _optimized(case)
    wanted = {value.name for value in unit.model.graph.inputs}
    feeds = {k: v for k, v in np.load(SHARED / case["inputs"]).items() if k in wanted}
    expected = dict(np.load(SHARED / case["outputs"]))
    results = run_plain(unit.model, feeds)
    for name in case.get("compare_outputs", expected):
        np.testing.assert_allclose(
            results[name], expected[name], rtol=case.get("rtol", 1e-4), atol=case.get("atol", 1e-5)
        )
    assert not [fate for fate in unit.fates() if fate.kind == "unknown"]


@pytest.mark.parametrize("case", _of(*KINDS, expect="equal"))
def test_keeps_the_interface(case: dict[str, Any]) -> None:
    if case["expect"] == "equal-or-error:stale-shapes":
        pytest.skip("what the file declares is wrong; see test_corrects_stale_shapes")
    before = onnx.load(SHARED / case["model"])
    after = ir.to_proto(_optimized(case).model)
    weights = {tensor.name for tensor in before.graph.initializer}
    assert list(after.graph.input) == [v for v in before.graph.input if v.name not in weights]
    assert [(o.name, o.type) for o in after.graph.output] == [
        (o.name, o.type) for o in before.graph.output
    ]


@pytest.mark.parametrize(
    "case", [p for p in _of(*KINDS, expect="equal") if "checks" in p.values[0]]
)
def test_meets_the_conditions(case: dict[str, Any]) -> None:
    model = _optimized(case).model
    for condition, wanted in case["checks"].items():
        _CONDITIONS[condition](model, wanted)


@pytest.mark.parametrize("case", _of("op", "ops", "sim", "dyn", expect="equal"))
def test_is_supported(case: dict[str, Any]) -> None:
    report = check(_optimized(case), B4)
    assert report.refused == report.wrong == []


@pytest.mark.parametrize("case", _of("op", expect="reject-op:Loop"))
def test_a_loop_on_data_is_refused_with_the_reason(case: dict[str, Any]) -> None:
    unit = _optimized(case)
    assert [finding.op_type for finding in check(unit, B4).refused] == ["Loop"]
    refusals = [text for stage in unit.log for text in stage.refusals]
    assert any("its trip count depends on data" in text for text in refusals)


@pytest.mark.parametrize("case", _of("dyn", expect="equal-or-error:stale-shapes"))
def test_corrects_stale_shapes(case: dict[str, Any]) -> None:
    model = _optimized(case).model
    expected = dict(np.load(SHARED / case["outputs"]))
    for value in model.graph.outputs:
        assert static_shape(value) == expected[value.name or ""].shape


@pytest.mark.parametrize("case", _of("sim", expect="error:external-data"))
def test_reports_missing_external_data(case: dict[str, Any]) -> None:
    with pytest.raises(ModelError, match="ONNX002"):
        _optimized(case)


def _ops(model: ir.Model) -> Counter[str]:
    return Counter(scoped.node.op_type for scoped in walk(model.graph))


def _no_ops(model: ir.Model, wanted: list[str]) -> None:
    assert not set(wanted) & set(_ops(model))


def _keep_ops(model: ir.Model, wanted: dict[str, int]) -> None:
    assert {op: _ops(model)[op] for op in wanted} == wanted


def _only_domains(model: ir.Model, wanted: list[str]) -> None:
    assert set(model.opset_imports) == set(wanted)


def _no_functions(model: ir.Model, wanted: bool) -> None:
    assert (not model.functions) is wanted


def _max_bytes(model: ir.Model, wanted: int) -> None:
    assert ir.to_proto(model).ByteSize() <= wanted


def _unique_names(model: ir.Model, wanted: bool) -> None:
    names = [scoped.node.name for scoped in walk(model.graph)]
    assert all(names) is wanted
    assert (len(set(names)) == len(names)) is wanted


def _no_empty_outputs(model: ir.Model, wanted: bool) -> None:
    outputs = [value.name for scoped in walk(model.graph) for value in scoped.node.outputs]
    assert all(outputs) is wanted


def _min_inputs(model: ir.Model, wanted: dict[str, int]) -> None:
    nodes = [scoped.node for scoped in walk(model.graph) if scoped.node.op_type in wanted]
    assert nodes
    assert all(
        len([v for v in node.inputs if v is not None]) >= wanted[node.op_type] for node in nodes
    )


def _explicit_attrs(model: ir.Model, wanted: dict[str, list[str]]) -> None:
    nodes = [scoped.node for scoped in walk(model.graph) if scoped.node.op_type in wanted]
    assert nodes
    assert all(set(wanted[node.op_type]) <= set(node.attributes) for node in nodes)


def _max_opset(model: ir.Model, wanted: int) -> None:
    assert model.opset_imports[""] <= wanted


def _outputs(model: ir.Model, wanted: list[str]) -> None:
    assert [value.name for value in model.graph.outputs] == wanted


def _inputs(model: ir.Model, wanted: list[str]) -> None:
    assert [value.name for value in model.graph.inputs] == wanted


_CONDITIONS = {
    "explicit_attrs": _explicit_attrs,
    "max_opset": _max_opset,
    "min_inputs": _min_inputs,
    "no_ops": _no_ops,
    "keep_ops": _keep_ops,
    "only_domains": _only_domains,
    "max_bytes": _max_bytes,
    "no_functions": _no_functions,
    "unique_names": _unique_names,
    "no_empty_outputs": _no_empty_outputs,
    "outputs": _outputs,
    "inputs": _inputs,
}
