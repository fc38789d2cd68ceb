"""Faults of a file that loading mends, but that stop ATC when it is given the file."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto as T
from onnx import helper as h
from tests.support.models import mlp, parse, save
from tests.support.ops import B4, codes

from cannc.compiler.core.unit import Stage, load
from cannc.op_support.checker import check
from cannc.op_support.report import Severity, SupportReport


def _check(model: onnx.ModelProto, tmp_path: Path) -> SupportReport:
    return check(load(save(model, tmp_path / "m.onnx")), B4)


def test_a_sound_file_has_no_findings(tmp_path: Path) -> None:
    assert _check(mlp(), tmp_path).findings == ()


def test_a_name_used_twice(tmp_path: Path) -> None:
    model = mlp()
    for node in model.graph.node[:2]:
        node.name = "same"
    report = _check(model, tmp_path)
    assert {f.atc_code for f in report.refused} == {"E13009"}
    assert len(report.refused) == 2


def test_a_name_like_an_inputs(tmp_path: Path) -> None:
    model = mlp()
    model.graph.node[0].name = "x"
    assert codes(_check(model, tmp_path).refused) == {"OP064"}


def test_once_something_worked_on_the_model_the_file_no_longer_counts(tmp_path: Path) -> None:
    model = mlp()
    for node in model.graph.node[:2]:
        node.name = "same"
    unit = load(save(model, tmp_path / "m.onnx"))
    assert check(unit, B4, on_disk_too=False).findings == ()
    unit.log.append(Stage("some-pass", 1, 5, 5))
    assert check(unit, B4).findings == ()


def test_an_empty_output_beside_an_empty_input(tmp_path: Path) -> None:
    model = parse(
        """g (float[4, 2, 3] x, float[1, 8, 3] w, float[1, 8, 2] r, float hi)
        => (float[1, 2, 2] h, float[4, 2, 3] c) {
            , h = LSTM <hidden_size: int = 2> (x, w, r)
            c = Clip(x, , hi)
        }"""
    )
    report = _check(model, tmp_path)
    assert [(f.code, f.op_type) for f in report.wrong] == [("OP065", "LSTM")]
    model.graph.node[1].input[1] = "hi"
    assert _check(model, tmp_path).wrong == []


def _external(tmp_path: Path, *entries: tuple[str, str]) -> onnx.ModelProto:
    model = mlp()
    weight = model.graph.initializer[0]
    (tmp_path / "w.bin").write_bytes(weight.raw_data)
    size = str(len(weight.raw_data))
    weight.ClearField("raw_data")
    weight.data_location = T.EXTERNAL
    for key, value in (("location", "w.bin"), ("offset", "0"), ("length", size), *entries):
        weight.external_data.add(key=key, value=value)
    return model


@pytest.mark.parametrize(
    ("entries", "severity", "atc_code"),
    [
        ((), None, ""),
        ((("checksum", "a1b2"),), Severity.REFUSED, "E10001"),
        ((("basepath", "weights"),), Severity.REFUSED, "E10001"),
        ((("checksum", "12ab"),), Severity.WRONG, ""),
    ],
)
def test_external_data_keys(
    tmp_path: Path, entries: tuple[tuple[str, str], ...], severity: Severity | None, atc_code: str
) -> None:
    report = _check(_external(tmp_path, *entries), tmp_path)
    found = [(f.severity, f.atc_code) for f in report.findings if f.code == "OP069"]
    assert found == ([] if severity is None else [(severity, atc_code)])


def test_a_checksum_before_the_length_is_harmless(tmp_path: Path) -> None:
    model = _external(tmp_path)
    entries = model.graph.initializer[0].external_data
    kept = [(entry.key, entry.value) for entry in entries]
    del entries[:]
    for key, value in (("checksum", "12ab"), *kept):
        entries.add(key=key, value=value)
    assert _check(model, tmp_path).findings == ()


def test_four_bit_weights_in_int32_data(tmp_path: Path) -> None:
    packed = h.make_tensor("w", T.INT4, [4], [1, 2, 3, 4])
    assert packed.int32_data
    graph = h.make_graph(
        [h.make_node("Cast", ["w"], ["y"], to=T.FLOAT), h.make_node("Relu", ["x"], ["z"])],
        "g",
        [h.make_tensor_value_info("x", T.FLOAT, [1])],
        [h.make_tensor_value_info("y", T.FLOAT, [4]), h.make_tensor_value_info("z", T.FLOAT, [1])],
        [packed],
    )
    model = h.make_model(graph, opset_imports=[h.make_opsetid("", 18)], ir_version=10)
    assert "OP071" in codes(_check(model, tmp_path).wrong)
    packed = model.graph.initializer[0]
    packed.ClearField("int32_data")
    packed.raw_data = np.array([0x21, 0x43], np.uint8).tobytes()
    assert "OP071" not in codes(_check(model, tmp_path).wrong)


def test_the_default_domain_imported_twice(tmp_path: Path) -> None:
    model = mlp()
    model.opset_import.add(domain="ai.onnx", version=17)
    assert "OP060" in codes(_check(model, tmp_path).risks)
