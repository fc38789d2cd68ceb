"""Forms that a plugin refuses, crashes on, or only may get wrong: each with its near miss."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from onnx import TensorProto as T
from onnx import helper as h
from tests.support.ops import check_node, codes

from cannc.op_support.rules.fused import REJECTS
from cannc.op_support.rules.plugin import CRASHES, REFUSALS

X = (T.FLOAT, (1, 2, 4, 4))
ROW = (T.FLOAT, (4,))
W = (T.FLOAT, (2, 2, 3, 3))
IDS = (T.INT64, (1, 2))
KERNEL = {"kernel_shape": [3, 3]}
F16 = T.FLOAT16

# operator, (inputs, arguments) refused, (inputs, arguments) accepted
REFUSED: list[tuple[str, tuple[list[Any], dict[str, Any]], tuple[list[Any], dict[str, Any]]]] = [
    ("AdaptiveAvgPool2d", ([X], {"output_size": [1], "opset": 13}),
     ([X], {"output_size": [1, 1], "opset": 13})),
    ("ArgMax", ([X], {"select_last_index": 1}), ([X], {"select_last_index": 0})),
    ("ArgMin", ([X], {"select_last_index": 1}), ([X], {})),
    ("AveragePool", ([X], {"kernel_shape": [2, 2, 2, 2]}), ([X], KERNEL)),
    ("AveragePool", ([X], {**KERNEL, "pads": [1, 1, 1]}), ([X], {**KERNEL, "pads": [1] * 4})),
    ("Clip", ([X, None, None], {}), ([X, None, np.array(1.0, np.float32)], {})),
    ("Clip", ([X], {}), ([X], {"opset": 10})),
    ("Conv", ([X, W], {}), ([X, W], {"strides": [1, 1]})),
    ("Conv", ([X, W], {"kernel_shape": [3, 3, 3], "auto_pad": "SAME_UPPER"}),
     ([X, W], {**KERNEL, "auto_pad": "SAME_UPPER"})),
    ("ConvTranspose", ([X, W], {"strides": [2, 2]}), ([X, W], KERNEL)),
    ("DepthToSpace", ([X], {"blocksize": 1}), ([X], {"blocksize": 2})),
    ("Einsum", ([ROW, ROW], {}), ([ROW, ROW], {"equation": "i,i->"})),
    ("GatherND", ([X, IDS], {"batch_dims": 1}), ([X, IDS], {"batch_dims": 0})),
    ("IsInf", ([X], {"detect_negative": 0}), ([X], {"detect_negative": 1})),
    ("LRN", ([X], {}), ([X], {"size": 3})),
    ("LpPool", ([X], {}), ([X], KERNEL)),
    ("MaxPool", ([X], {**KERNEL, "outputs": 2}), ([X], KERNEL)),
    ("MaxPool", ([X], {**KERNEL, "storage_order": 1}), ([X], {**KERNEL, "storage_order": 0})),
    ("MaxUnpool", ([X, (T.INT64, (1, 2, 4, 4))], {}), ([X, (T.INT64, (1, 2, 4, 4))], KERNEL)),
    ("RandomNormalLike", ([X], {"dtype": T.INT32}), ([X], {"dtype": T.FLOAT16})),
    ("RandomUniform", ([], {"dtype": T.INT64, "shape": [2]}), ([], {"dtype": 1, "shape": [2]})),
    ("Resize", ([X, None], {"mode": "linear"}), ([X, None, np.ones(4, np.float32)], {})),
    ("Resize", ([X, None, np.ones(4, np.float32)], {"mode": "area"}),
     ([X, None, np.ones(4, np.float32)], {"mode": "cubic"})),
    ("ScatterND", ([X, IDS, (T.FLOAT, (1, 4, 4))], {"reduction": "mul"}),
     ([X, IDS, (T.FLOAT, (1, 4, 4))], {"reduction": "none"})),
    ("Selu", ([X], {"alpha": 2.0}), ([X], {"alpha": 1.6732632})),
    ("Slice", ([X], {"opset": 9}), ([X], {"opset": 9, "starts": [0], "ends": [1]})),
    ("Split", ([(T.FLOAT, (7,))], {"num_outputs": 2, "outputs": 2}),
     ([(T.FLOAT, (8,))], {"num_outputs": 2, "outputs": 2})),
    ("Split", ([(T.FLOAT, ("n",))], {"num_outputs": 2, "outputs": 2}),
     ([(T.FLOAT, ("n",)), np.array([1, 1])], {"outputs": 2})),
    ("Split", ([(T.FLOAT, (7,))], {"split": [7], "outputs": 2, "opset": 11}),
     ([(T.FLOAT, (7,))], {"split": [3, 4], "outputs": 2, "opset": 11})),
    ("TopK", ([X], {"opset": 9, "outputs": 2}), ([X], {"opset": 9, "outputs": 2, "k": 1})),
    ("Transpose", ([X], {}), ([X], {"perm": [0, 1, 2, 3]})),
    ("Upsample", ([X, ROW], {"opset": 9, "mode": "cubic"}), ([X, ROW], {"opset": 9})),
    ("BatchNormalization", ([X, *[(T.FLOAT, (2,))] * 5], {}), ([X, *[(T.FLOAT, (2,))] * 4], {})),
    ("Col2Im", ([(T.FLOAT, (1, 5, 5)), np.array([5, 5]), np.array([1, 5])], {}),
     ([(T.FLOAT, (1, 5, 5)), np.array([5, 5]), np.array([1, 5])],
      {"dilations": [1, 1], "pads": [0, 0], "strides": [1, 1]})),
]  # fmt: skip


@pytest.mark.parametrize(("op_type", "bad", "good"), REFUSED)
def test_plugin_refusals(op_type: str, bad: Any, good: Any) -> None:
    report = check_node(op_type, bad[0], **bad[1])
    assert "OP020" in codes(report.refused), report.findings
    assert all(f.atc_code for f in report.refused if f.code == "OP020")
    assert check_node(op_type, good[0], **good[1]).refused == []


def test_every_refusal_is_tried() -> None:
    tried = {f"ai.onnx::{op}" for op, *_ in REFUSED}
    assert set(REFUSALS) - tried == {"ai.onnx::AdaptiveMaxPool2d"}


def test_crashes() -> None:
    assert set(CRASHES) == {"ai.onnx::Bernoulli", "ai.onnx::Int8Conv", "ai.onnx::Split"}
    seeded = check_node("Bernoulli", [X], seed=1.0, dtype=1)
    assert codes(seeded.refused) == {"OP021"}
    assert seeded.refused[0].atc_code == ""
    assert check_node("Bernoulli", [X], dtype=1).refused == []
    inputs = [(T.INT8, (1, 2, 4, 4)), (T.INT8, (2, 2, 3, 3))]
    assert "OP021" in codes(check_node("Int8Conv", inputs, opset=13).refused)
    assert "OP021" not in codes(check_node("Int8Conv", inputs, opset=13, order=1).refused)


def test_nms_needs_all_five_inputs() -> None:
    boxes, scores = (T.FLOAT, (1, 6, 4)), (T.FLOAT, (1, 1, 6))
    rest = [np.array([3]), np.array([0.5], np.float32), np.array([0.1], np.float32)]
    four = check_node("NonMaxSuppression", [boxes, scores, *rest[:2]])
    assert codes(four.refused) == {"OP022"}
    assert four.refused[0].stage == "shape"
    assert check_node("NonMaxSuppression", [boxes, scores, *rest]).refused == []


@pytest.mark.parametrize(
    ("op_type", "inputs", "arguments"),
    [
        ("BatchNormalization", [X, *[(T.FLOAT, (2,))] * 4], {"training_mode": 1, "outputs": 3}),
        ("GlobalMaxPool", [(T.FLOAT, (1, 2, 3, 3, 3))], {}),
        ("GridSample", [X, (T.FLOAT, (1, 2, 2, 2))], {"mode": "bilinear"}),
        ("LRN", [X], {"size": 4}),
        ("LayerNormalization", [(F16, (2, 4)), (F16, (4,))], {}),
        ("ReduceLogSum", [X], {"opset": 11}),
        ("Reshape", [X, np.array([2, 16])], {"allowzero": 1}),
        ("Resize", [X, np.ones(4, np.float32)], {"opset": 10, "mode": "linear"}),
        ("Resize", [(T.FLOAT, (1, 2, 4)), None, np.array([1, 1, 2], np.float32)], {}),
        ("Split", [(T.FLOAT, (8,))], {"num_outputs": 2, "outputs": 2, "axis": -1}),
        ("Unique", [ROW], {"outputs": 2}),
        ("Upsample", [X], {"opset": 8, "scales": [1.0, 1.0, 2.0, 2.0]}),
    ],
)
def test_doubtful_forms_are_risks_only(
    op_type: str, inputs: list[Any], arguments: dict[str, Any]
) -> None:
    report = check_node(op_type, inputs, **arguments)
    assert "OP033" in codes(report.risks), report.findings


@pytest.mark.parametrize(
    ("op_type", "inputs", "arguments"),
    [
        ("GridSample", [X, (T.FLOAT, (1, 2, 2, 2))], {"mode": "bilinear", "padding_mode": "zeros"}),
        ("LayerNormalization", [(F16, (2, 4)), (F16, (4,)), (F16, (4,))], {}),
        ("LayerNormalization", [(T.FLOAT, (2, 4)), (T.FLOAT, (4,))], {}),
        ("LRN", [X], {"size": 5}),
        ("GlobalMaxPool", [X], {}),
    ],
)
def test_sound_forms_have_no_findings(
    op_type: str, inputs: list[Any], arguments: dict[str, Any]
) -> None:
    assert check_node(op_type, inputs, **arguments).findings == ()


@pytest.mark.parametrize(
    "attribute",
    [{"value_int": 1}, {"value_ints": [1, 2]}, {"value_float": 1.0}, {"value_string": "a"}],
)
def test_constants_without_a_tensor_arrive_empty(attribute: dict[str, Any]) -> None:
    assert codes(check_node("Constant", [], **attribute).wrong) == {"OP032"}
    tensor = h.make_tensor("t", T.FLOAT, [1], [1.0])
    assert check_node("Constant", [], value=tensor).findings == ()


FUSED: list[tuple[str, list[Any], dict[str, Any], list[Any], dict[str, Any]]] = [
    ("NPURmsNorm", [(F16, (2, 8)), (F16, (4,))], {}, [(F16, (2, 8)), (F16, (8,))], {}),
    ("NPUAddRmsNorm", [(F16, (2, 8)), (F16, (1, 8)), (F16, (8,))], {},
     [(F16, (2, 8)), (F16, ("n", 8)), (F16, (8,))], {}),
    ("NPURotaryMul", [(F16, (2, 8))] * 3, {}, [(F16, (1, 2, 2, 8))] * 3, {}),
    ("NPURotaryMul", [(F16, (1, 2, 2, 7))] * 3, {}, [(F16, (1, 2, "n", 8))] * 3, {}),
    ("NPUGeglu", [(F16, (2, 7))], {}, [(F16, (2, 8))], {}),
    ("NPUGroupNormSilu", [(F16, (1, 6, 4, 4))], {}, [(F16, (1, 6, 4, 4))], {"num_groups": 3}),
    ("NPUGroupNormSilu", [(F16, (1, 6, 4, 4))], {"group": 4}, [(F16, (1, 6, 4, 4))], {"group": 2}),
    ("NPUQuantize", [(F16, (2, 8)), (T.FLOAT, (1,))], {},
     [(F16, (2, 8)), (T.FLOAT, (1,))], {"dtype": 2}),
    ("WeightQuantBatchMatmulV2", [(F16, (1, 2, 64)), (T.INT8, (64, 8)), (F16, (8,))], {},
     [(F16, (2, 64)), (T.INT8, (64, 8)), (F16, (8,))], {}),
    ("WeightQuantBatchMatmulV2", [(F16, (2, 64)), (T.INT8, (64, 8)), (F16, (2, 8))],
     {"antiquant_group_size": 64}, [(F16, (2, 64)), (T.INT8, (64, 8)), (F16, (2, 8))],
     {"antiquant_group_size": 32}),
    ("WeightQuantBatchMatmulV2", [(F16, (2, 64)), (T.INT8, (64, 8)), (F16, (8,)), (F16, (1,))],
     {}, [(F16, (2, 64)), (T.INT8, (64, 8)), (F16, (8,)), (F16, (8,))], {}),
    ("NPUGroupQuant", [(F16, (4, 8)), (F16, (2, 8)), (T.INT32, (2,))], {"dst_type": 3},
     [(F16, (4, 8)), (F16, (2, 8)), (T.INT32, (2,))], {"dst_type": 2}),
]  # fmt: skip


@pytest.mark.parametrize(("op_type", "bad", "bad_with", "good", "good_with"), FUSED)
def test_fused_operators_that_the_kernel_rejects(
    op_type: str, bad: Any, bad_with: Any, good: Any, good_with: Any
) -> None:
    report = check_node(op_type, bad, domain="npu", **bad_with)
    assert codes(report.refused) == {"OP022"}, report.findings
    assert check_node(op_type, good, domain="npu", **good_with).refused == []


def test_every_fused_predicate_is_tried() -> None:
    tried = {op.removeprefix("NPU") for op, *_ in FUSED}
    assert set(REJECTS) - tried == {"FusedAddRmsNorm"}
