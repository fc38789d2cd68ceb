"""Resize: the index maps, against onnxruntime's own resize and against the rule of the device."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import onnxruntime as ort
import pytest
from onnx import TensorProto as T
from tests.support.ops import check_node, codes, node_model, texts

from cannc.op_support.report import Severity
from cannc.op_support.rules.resize import device_indices, onnx_indices

GRIDS = ("asymmetric", "half_pixel", "pytorch_half_pixel", "align_corners")
ROUNDINGS = ("round_prefer_floor", "round_prefer_ceil", "floor", "ceil")
SPANS = ((4, 8), (8, 4), (5, 3), (3, 7), (6, 6), (4, 1), (1, 3))
IMAGE = (T.FLOAT, (1, 1, 4, 4))


def _ort_indices(size: int, out: int, grid: str, rounding: str) -> np.ndarray[Any, Any]:
    model = node_model(
        "Resize",
        [(T.FLOAT, (1, 1, 1, size)), None, None, np.array([1, 1, 1, out], np.int64)],
        coordinate_transformation_mode=grid,
        nearest_mode=rounding,
    )
    model.graph.output[0].CopyFrom(
        onnx.helper.make_tensor_value_info("out0", T.FLOAT, (1, 1, 1, out))
    )
    options = ort.SessionOptions()
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    session = ort.InferenceSession(
        model.SerializeToString(), options, providers=["CPUExecutionProvider"]
    )
    row = np.arange(size, dtype=np.float32).reshape(1, 1, 1, size)
    return np.asarray(session.run(None, {"in0": row})[0]).reshape(-1)


@pytest.mark.parametrize("grid", GRIDS)
@pytest.mark.parametrize("rounding", ROUNDINGS)
def test_onnx_index_map_is_the_one_of_onnxruntime(grid: str, rounding: str) -> None:
    for size, out in SPANS:
        ours = onnx_indices(size, out, out / size, grid, rounding)
        np.testing.assert_array_equal(ours, _ort_indices(size, out, grid, rounding))


@pytest.mark.parametrize(
    ("grid", "size", "out", "expected"),
    [
        ("asymmetric", 3, 6, [0, 0, 1, 1, 2, 2]),
        ("half_pixel", 4, 2, [1, 3]),
        ("align_corners", 3, 5, [0, 1, 1, 2, 2]),
        ("half_pixel", 2, 4, [0, 0, 1, 1]),
    ],
)
def test_device_index_map(grid: str, size: int, out: int, expected: list[int]) -> None:
    assert device_indices(size, out, grid).tolist() == expected


def _resize(scale: float, shape: Any = (1, 1, 4, 4), **attributes: Any) -> Any:
    scales = np.array([1, 1, scale, scale], np.float32)
    return check_node("Resize", [(T.FLOAT, shape), None, scales], **attributes)


PYTORCH = {"coordinate_transformation_mode": "asymmetric", "nearest_mode": "floor"}


def test_the_usual_pytorch_upsample_is_exact() -> None:
    assert _resize(2.0, **PYTORCH).findings == ()
    assert _resize(2.0, (1, 1, "h", "w"), **PYTORCH).findings == ()


def test_half_pixel_round_prefer_floor_differs_only_at_ties() -> None:
    assert _resize(2.0).wrong == []
    down = _resize(0.5)
    assert codes(down.wrong) == {"OP030"}
    assert "nearest_mode" in down.wrong[0].why


def test_without_sizes_the_rounding_decides() -> None:
    loose = (1, 1, "h", "w")
    assert _resize(2.0, loose).findings == ()
    assert _resize(0.5, loose).wrong == []
    assert codes(_resize(0.5, loose).risks) == {"OP031"}
    assert codes(_resize(2.0, loose, nearest_mode="ceil").wrong) == {"OP030"}
    ceil = {"coordinate_transformation_mode": "asymmetric", "nearest_mode": "ceil"}
    assert codes(_resize(2.0, loose, **ceil).wrong) == {"OP030"}
    assert _resize(2.0, loose, nearest_mode="round_prefer_ceil").findings == ()


@pytest.mark.parametrize(
    ("hit", "miss"),
    [
        ({"mode": "cubic", "cubic_coeff_a": -0.5}, {"mode": "cubic", "cubic_coeff_a": -0.75}),
        ({"mode": "cubic", "cubic_coeff_a": -0.5}, {"mode": "linear", "cubic_coeff_a": -0.5}),
        ({"mode": "cubic", "exclude_outside": 1}, {"mode": "linear", "exclude_outside": 1}),
        (
            {"coordinate_transformation_mode": "tf_crop_and_resize", "extrapolation_value": 1.0},
            {"mode": "linear", "extrapolation_value": 1.0},
        ),
        (
            {"coordinate_transformation_mode": "tf_half_pixel_for_nn", "opset": 12},
            {"coordinate_transformation_mode": "tf_half_pixel_for_nn", "mode": "linear"},
        ),
    ],
)
def test_conditions_of_the_other_attributes(hit: dict[str, Any], miss: dict[str, Any]) -> None:
    assert _resize(2.0, **hit).wrong != []
    assert _resize(2.0, **miss).wrong == []


def test_antialias_matters_only_when_scaling_down() -> None:
    assert _resize(2.0, mode="linear", antialias=1).wrong == []
    assert "antialias" in _resize(0.5, mode="linear", antialias=1).wrong[0].why


def test_aspect_ratio_matters_only_with_sizes() -> None:
    sizes = np.array([1, 1, 8, 8], np.int64)
    policy = {"keep_aspect_ratio_policy": "not_larger", "mode": "linear"}
    assert check_node("Resize", [IMAGE, None, None, sizes], **policy).wrong != []
    assert _resize(2.0, **policy).wrong == []


def test_a_subset_of_axes_is_a_risk() -> None:
    scales = np.array([2, 2], np.float32)
    report = check_node("Resize", [IMAGE, None, scales], axes=[2, 3], mode="linear")
    assert report.wrong == []
    assert any("axes" in why for why in texts(report, Severity.RISK))
