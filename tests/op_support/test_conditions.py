"""Silently wrong only where the value makes a difference: for each condition a hit and a miss."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from onnx import TensorProto as T
from tests.support.ops import check_node, codes, texts

from cannc.compiler.core.target import Target
from cannc.op_support.report import Severity
from cannc.op_support.rules.conditions import CONDITIONS
from cannc.op_support.table import operators

IMAGE = (T.FLOAT, (1, 2, 9, 9))
LOOSE = (T.FLOAT, ("n", "c", "h", "w"))
ROW = (T.FLOAT, (3, 4))
RNN = [(T.FLOAT, (5, 2, 3)), (T.FLOAT, (1, 8, 3)), (T.FLOAT, (1, 8, 2))]
SEQUENCE = [(T.FLOAT, (5, 2, 3)), (T.FLOAT, (1, 6, 3)), (T.FLOAT, (1, 6, 2))]
ROI = [(T.FLOAT, (1, 2, 8, 8)), (T.FLOAT, (3, 4)), (T.INT64, (3,))]
NPU = {"domain": "npu"}
HALF = [(T.FLOAT16, (2, 8)), (T.FLOAT16, (8,))]

# operator, inputs, arguments that hit, arguments that miss
CASES: list[tuple[str, list[Any], dict[str, Any], dict[str, Any]]] = [
    ("AveragePool", [IMAGE], {"kernel_shape": [2, 2], "auto_pad": "SAME_LOWER"},
     {"kernel_shape": [3, 3], "auto_pad": "SAME_LOWER"}),
    ("AveragePool", [(T.FLOAT, (1, 2, 4, 4, 4))],
     {"kernel_shape": [2, 2, 2], "auto_pad": "SAME_UPPER"}, {"kernel_shape": [2, 2, 2]}),
    ("BatchNormalization", [IMAGE, *[(T.FLOAT, (2,))] * 4], {"spatial": 0, "opset": 8},
     {"spatial": 1, "opset": 8}),
    ("EyeLike", [(T.INT32, (3, 3))], {}, {"dtype": T.INT32}),
    ("GRU", SEQUENCE, {"hidden_size": 2, "activations": ["Relu", "Tanh"]},
     {"hidden_size": 2, "activations": ["Sigmoid", "Tanh"]}),
    ("GRU", SEQUENCE, {"hidden_size": 2, "clip": 1.0}, {"hidden_size": 2}),
    ("GRU", SEQUENCE, {"hidden_size": 2, "layout": 1}, {"hidden_size": 2, "layout": 0}),
    ("LSTM", RNN, {"hidden_size": 2, "activations": ["Sigmoid", "Tanh", "Relu"]},
     {"hidden_size": 2, "activations": ["sigmoid", "tanh", "tanh"] * 2}),
    ("LSTM", RNN, {"hidden_size": 2, "clip": 3.0}, {"hidden_size": 2}),
    ("LSTM", RNN, {"hidden_size": 2, "input_forget": 1}, {"hidden_size": 2, "input_forget": 0}),
    ("LSTM", RNN, {"hidden_size": 2, "layout": 1}, {"hidden_size": 2}),
    ("Gemm", [ROW, (T.FLOAT, (4, 5))], {"alpha": 0.5}, {"alpha": 1.0}),
    ("Gemm", [ROW, (T.FLOAT, (4, 5))], {"alpha": 0.5}, {"beta": 0.5}),
    ("Hardmax", [ROW], {"opset": 11, "axis": 0}, {"opset": 11, "axis": 1}),
    ("Hardmax", [(T.FLOAT, (2, 3, 4))], {"opset": 12}, {"opset": 13}),
    ("LogSoftmax", [ROW], {"opset": 9, "axis": 0}, {"opset": 9, "axis": -1}),
    ("LpPool", [IMAGE], {"kernel_shape": [3, 3], "ceil_mode": 1}, {"kernel_shape": [3, 3]}),
    ("LpPool", [IMAGE], {"kernel_shape": [3, 3], "dilations": [2, 1]},
     {"kernel_shape": [3, 3], "dilations": [1, 1]}),
    ("LpPool", [IMAGE], {"kernel_shape": [16, 16], "auto_pad": "SAME_UPPER"},
     {"kernel_shape": [3, 3], "auto_pad": "SAME_UPPER"}),
    ("MaxPool", [IMAGE], {"kernel_shape": [3, 3], "dilations": [2, 2]}, {"kernel_shape": [3, 3]}),
    ("MaxPool", [(T.FLOAT, (1, 2, 5))], {"kernel_shape": [2], "dilations": [2]},
     {"kernel_shape": [2]}),
    ("MaxPool", [IMAGE], {"kernel_shape": [16, 16], "ceil_mode": 1},
     {"kernel_shape": [3, 3], "ceil_mode": 1}),
    ("MaxPool", [IMAGE], {"kernel_shape": [2, 2], "strides": [64, 1], "auto_pad": "SAME_UPPER"},
     {"kernel_shape": [2, 2], "strides": [1, 1], "auto_pad": "SAME_UPPER"}),
    ("MaxPool", [IMAGE], {"kernel_shape": [2, 2], "auto_pad": "SAME_LOWER"},
     {"kernel_shape": [3, 3], "auto_pad": "SAME_LOWER"}),
    ("Mod", [(T.INT32, (3,)), (T.INT32, (3,))], {}, {"fmod": 1}),
    ("Multinomial", [ROW], {"sample_size": 2}, {"sample_size": 1}),
    ("Multinomial", [ROW], {"dtype": T.INT64}, {"dtype": T.INT32}),
    ("NPURmsNorm", HALF, {**NPU, "epsilon": 1e-5}, {**NPU, "epsilon": 1e-6}),
    ("NPURmsNorm", HALF, {**NPU, "epsilon": 1e-5}, NPU),
    ("NPURmsNorm", HALF, {"epsilon": 1e-5}, {"epsilon": 1e-6}),
    ("NPUAddRmsNorm", [HALF[0], *HALF], {**NPU, "epsilon": 1e-5}, NPU),
    ("NPUGeglu", HALF[:1], {**NPU, "dim": 0}, {**NPU, "dim": 1}),
    ("NPUGeglu", HALF[:1], {**NPU, "approximate": 0}, {**NPU, "approximate": 1}),
    ("NPUGru", HALF[:1], {**NPU, "batch_first": 1}, {**NPU, "batch_first": 0}),
    ("NPUGru", HALF[:1], {**NPU, "bidirectional": 1}, {**NPU, "bidirectional": 0}),
    ("NPUGru", HALF[:1], {**NPU, "num_layers": 2}, {**NPU, "num_layers": 1}),
    ("RoiAlign", ROI, {"mode": "max"}, {"mode": "avg"}),
    ("Shape", [ROW], {"start": 1}, {"start": 0}),
    ("Shape", [ROW], {"start": 1}, {"start": -2}),
    ("Shape", [ROW], {"end": 1}, {"end": 2}),
    ("Shape", [ROW], {"end": -1}, {}),
    ("Unique", [ROW], {"axis": 0}, {}),
    ("Unique", [ROW], {"axis": 0, "opset": 11}, {"opset": 11}),
]  # fmt: skip


@pytest.mark.parametrize(("op_type", "inputs", "hit", "miss"), CASES)
def test_only_the_value_that_matters_is_silently_wrong(
    op_type: str, inputs: list[Any], hit: dict[str, Any], miss: dict[str, Any]
) -> None:
    report = check_node(op_type, inputs, **hit)
    assert "OP030" in codes(report.wrong), report.findings
    assert report.exit_code == 1
    assert check_node(op_type, inputs, **miss).wrong == []


def test_every_effect_of_the_data_has_a_condition() -> None:
    missing = [
        (key, name)
        for key, row in operators().items()
        for name, effect in row.effects.items()
        if effect.effect != "harmless" and (key.split("::")[1], name) not in CONDITIONS
    ]
    assert missing == []


def test_every_condition_belongs_to_an_effect_of_the_data() -> None:
    known = {(key.split("::")[1], name) for key, row in operators().items() for name in row.effects}
    assert set(CONDITIONS) <= known


def test_every_certain_effect_is_tried_here() -> None:
    certain = {
        (key.split("::")[1], name)
        for key, row in operators().items()
        for name, effect in row.effects.items()
        if (effect.effect, effect.confidence) == ("silently_wrong", "high")
    }
    tried = {(op, name) for op, _, hit, _ in CASES for name in hit}
    tried |= {("EyeLike", "dtype"), ("Hardmax", "axis"), ("Mod", "fmod")}
    resize = {pair for pair in certain if pair[0] == "Resize"}  # test_resize_rules.py
    assert certain - resize - tried == set()


@pytest.mark.parametrize(
    ("op_type", "inputs", "arguments"),
    [
        ("AveragePool", [LOOSE], {"kernel_shape": [2, 2], "auto_pad": "SAME_LOWER"}),
        ("EyeLike", [(T.FLOAT, (2, 2)), ], {}),
        ("Shape", [(T.FLOAT, None)], {"end": 2}),
        ("Unique", [(T.FLOAT, None)], {"axis": 0}),
        ("Hardmax", [(T.FLOAT, None)], {"opset": 11}),
        ("NPULstm", [(T.FLOAT16, (2, 8))], {"domain": "npu", "batch_first": 1}),
        ("NPUGeglu", [(T.FLOAT16, (2, 8))], {"domain": "npu", "activate_left": 1}),
        ("ScatterND", [ROW, (T.INT64, (1, 1)), (T.FLOAT, (1, 4))], {"reduction": "add"}),
        ("ScatterElements", [ROW, (T.INT64, (1, 1)), (T.FLOAT, (1, 1))], {"reduction": "max"}),
        ("Softmax", [ROW], {"opset": 11, "axis": 0}),
        ("Upsample", [IMAGE, (T.FLOAT, (4,))], {"opset": 9, "mode": "linear"}),
    ],
)  # fmt: skip
def test_what_is_not_certain_is_never_silently_wrong(
    op_type: str, inputs: list[Any], arguments: dict[str, Any]
) -> None:
    report = check_node(op_type, inputs, **arguments)
    assert report.wrong == []
    if op_type != "EyeLike":
        assert "OP031" in codes(report.risks)


def test_unknown_effects_are_said_as_unknown() -> None:
    report = check_node("GRU", SEQUENCE, hidden_size=2)
    assert any("linear_before_reset" in why for why in texts(report, Severity.UNKNOWN))
    assert report.exit_code == 0


def test_large_windows_are_fine_on_950() -> None:
    arguments = {"kernel_shape": [16, 16], "ceil_mode": 1}
    on_950 = check_node("MaxPool", [IMAGE], target=Target("Ascend950PR_957b"), **arguments)
    assert on_950.wrong == []


@pytest.mark.parametrize(
    ("left", "right"),
    [
        ((T.UINT8, (3,)), (T.UINT8, (3,))),
        (np.array([4], np.int32), np.array([3], np.int32)),
    ],
)
def test_mod_of_values_that_cannot_be_negative_is_fine(left: Any, right: Any) -> None:
    assert check_node("Mod", [left, right]).wrong == []


def test_mod_with_a_negative_constant_is_wrong() -> None:
    left, right = np.array([4], np.int32), np.array([-3], np.int32)
    assert check_node("Mod", [left, right]).wrong != []


def test_unread_attributes_of_fused_operators_are_risks() -> None:
    inputs = [(T.FLOAT16, (1, 4, 2, 8))] * 3
    interleaved = check_node("NPURotaryMul", inputs, domain="npu", rotary_mode="interleave")
    assert any("rotary_mode" in why for why in texts(interleaved, Severity.RISK))
    half = check_node("NPURotaryMul", inputs, domain="npu", rotary_mode="half")
    assert half.findings == ()
    unnamed = check_node("NPUFastGelu", [(T.FLOAT16, (2, 8))], domain="npu", speed=3)
    assert any("it is lost" in why for why in texts(unnamed, Severity.RISK))
