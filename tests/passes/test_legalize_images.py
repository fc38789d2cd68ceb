"""Pooling and Resize in forms that the device computes otherwise."""

from __future__ import annotations

import numpy as np
import pytest
from tests.support.fusion import fuse, normal
from tests.support.models import parse
from tests.support.ops import B4

from cannc.op_support.checker import check

IMAGE = normal(1, 2, 7, 6)


def image_model(text, **weights):
    return parse(f"g (float[1, 2, 7, 6] x) => (float[A, B, C, D] y) {{ y = {text} }}", **weights)


def supported(result) -> None:
    report = check(result.unit, B4)
    assert report.refused == report.wrong == []


class TestPads:
    @pytest.mark.parametrize("kind", ["MaxPool", "AveragePool", "LpPool"])
    @pytest.mark.parametrize("kernel", ["2, 3", "3, 2", "4, 4"])
    @pytest.mark.parametrize("strides", ["1, 1", "2, 2"])
    def test_same_lower(self, kind, kernel, strides):
        text = f"""{kind}<kernel_shape = [{kernel}], strides = [{strides}],
            auto_pad = "SAME_LOWER">(x)"""
        result = fuse(image_model(text), "explicit-pads", feeds={"x": IMAGE})
        assert "auto_pad" not in result.node(kind).attributes
        supported(result)

    def test_same_upper_stays_where_the_device_knows_it(self):
        text = 'AveragePool<kernel_shape = [2, 3], auto_pad = "SAME_UPPER">(x)'
        result = fuse(image_model(text), "explicit-pads", feeds={"x": IMAGE})
        assert "auto_pad" in result.node("AveragePool").attributes

    @pytest.mark.parametrize("kind", ["AveragePool", "MaxPool"])
    def test_three_dimensions(self, kind):
        model = parse(
            f"""g (float[1, 1, 4, 5, 6] x) => (float[A, B, C, D, E] y) {{
                y = {kind}<kernel_shape = [2, 3, 2], strides = [1, 2, 2],
                    auto_pad = "SAME_UPPER">(x) }}"""
        )
        result = fuse(model, "explicit-pads", feeds={"x": normal(1, 1, 4, 5, 6)})
        assert "auto_pad" not in result.node(kind).attributes

    @pytest.mark.parametrize("strides", ["2, 2", "3, 2", "3, 3"])
    def test_rounding_up(self, strides):
        text = f"LpPool<kernel_shape = [3, 2], strides = [{strides}], ceil_mode = 1>(x)"
        result = fuse(image_model(text), "explicit-pads", feeds={"x": IMAGE})
        assert "ceil_mode" not in result.node("LpPool").attributes

    def test_a_large_window_rounds_up(self):
        model = parse(
            """g (float[1, 1, 40, 39] x) => (float[A, B, C, D] y) { y = MaxPool<
                kernel_shape = [17, 16], strides = [5, 4], ceil_mode = 1>(x) }"""
        )
        result = fuse(model, "explicit-pads", feeds={"x": normal(1, 1, 40, 39)})
        supported(result)

    def test_an_open_size_is_refused(self):
        model = parse(
            """g (float[1, 2, H, 6] x) => (float[A, B, C, D] y) {
                y = MaxPool<kernel_shape = [2, 2], auto_pad = "SAME_LOWER">(x) }"""
        )
        result = fuse(model, "explicit-pads", feeds={"x": IMAGE})
        assert "the size of its input is not known" in result.refusals[0]


class TestDilation:
    @pytest.mark.parametrize(
        "more",
        ["", ", strides = [2, 1]", ", pads = [2, 1, 0, 1]", ", strides = [2, 2], ceil_mode = 1"],
    )
    def test_max_pool(self, more):
        text = f"MaxPool<kernel_shape = [3, 2], dilations = [2, 3]{more}>(x)"
        result = fuse(image_model(text), "dilated-pooling", feeds={"x": IMAGE}, rtol=0, atol=0)
        assert result.ops["MaxPool"] == 0
        supported(result)

    def test_integers(self):
        model = parse(
            """g (uint8[1, 1, 9] x) => (uint8[A, B, C] y) {
                y = MaxPool<kernel_shape = [2], dilations = [3], pads = [1, 1]>(x) }"""
        )
        data = np.random.default_rng(0).integers(0, 255, (1, 1, 9)).astype(np.uint8)
        assert fuse(model, "dilated-pooling", feeds={"x": data}).ops["MaxPool"] == 0

    def test_indices_that_are_read_are_refused(self):
        model = parse(
            """g (float[1, 2, 7, 6] x) => (float[A, B, C, D] y, int64[A, B, C, D] i) {
                y, i = MaxPool<kernel_shape = [3, 2], dilations = [2, 1]>(x) }"""
        )
        result = fuse(model, "dilated-pooling", feeds={"x": IMAGE})
        assert "its indices are read" in result.refusals[0]

    @pytest.mark.parametrize("power", [1, 2, 3])
    def test_lp_pool(self, power):
        text = f"""LpPool<kernel_shape = [3, 2], dilations = [2, 2], p = {power},
            strides = [1, 2]>(x)"""
        result = fuse(image_model(text), "dilated-pooling", feeds={"x": IMAGE}, atol=1e-5)
        assert result.ops["Conv"] == 1
        supported(result)


class TestResize:
    @pytest.mark.parametrize(
        "rounding", ["round_prefer_floor", "round_prefer_ceil", "floor", "ceil"]
    )
    @pytest.mark.parametrize("grid", ["asymmetric", "half_pixel", "align_corners"])
    def test_nearest(self, rounding, grid):
        text = f"""Resize<mode = "nearest", nearest_mode = "{rounding}",
            coordinate_transformation_mode = "{grid}">(x, , , sizes)"""
        model = image_model(text, sizes=np.array([1, 2, 5, 9], np.int64))
        result = fuse(model, "resize-by-constants", feeds={"x": IMAGE}, rtol=0, atol=0)
        assert set(result.ops) <= {"Gather", "Resize"}
        supported(result)

    @pytest.mark.parametrize("outside", [0, 1])
    @pytest.mark.parametrize("coefficient", [-0.75, -0.5])
    @pytest.mark.parametrize("sizes", [(7, 5), (3, 9), (14, 12)])
    def test_cubic(self, outside, coefficient, sizes):
        text = f"""Resize<mode = "cubic", cubic_coeff_a = {coefficient},
            exclude_outside = {outside}>(x, , , sizes)"""
        model = image_model(text, sizes=np.array([1, 2, *sizes], np.int64))
        result = fuse(model, "resize-by-constants", feeds={"x": IMAGE}, rtol=1e-4, atol=1e-5)
        supported(result)

    @pytest.mark.parametrize("mode", ["linear", "cubic"])
    @pytest.mark.parametrize("outside", [0, 1])
    def test_antialias(self, mode, outside):
        text = (
            f"""Resize<mode = "{mode}", antialias = 1, exclude_outside = {outside}>(x, , scales)"""
        )
        model = image_model(text, scales=np.array([1, 1, 0.6, 0.6], np.float32))
        result = fuse(model, "resize-by-constants", feeds={"x": IMAGE}, rtol=1e-4, atol=1e-5)
        assert set(result.ops) == {"MatMul"}

    @pytest.mark.parametrize("policy", ["not_larger", "not_smaller"])
    def test_aspect_ratio(self, policy):
        text = f"""Resize<mode = "linear", keep_aspect_ratio_policy = "{policy}", axes = [2, 3]>
            (x, , , sizes)"""
        model = image_model(text, sizes=np.array([5, 9], np.int64))
        result = fuse(model, "resize-by-constants", feeds={"x": IMAGE}, rtol=1e-4, atol=1e-5)
        supported(result)

    @pytest.mark.parametrize("value", [0.0, 10.0])
    def test_crops(self, value):
        text = f"""Resize<mode = "linear", extrapolation_value = {value},
            coordinate_transformation_mode = "tf_crop_and_resize">(x, roi, , sizes)"""
        model = image_model(
            text,
            sizes=np.array([1, 2, 4, 4], np.int64),
            roi=np.array([0, 0, 0.4, 0.6, 1, 1, 1.2, 1.7], np.float32),
        )
        result = fuse(model, "resize-by-constants", feeds={"x": IMAGE}, rtol=1e-4, atol=1e-5)
        supported(result)

    def test_what_the_device_knows_stays(self):
        text = 'Resize<mode = "linear">(x, , scales)'
        model = image_model(text, scales=np.array([1, 1, 2, 2], np.float32))
        assert fuse(model, "resize-by-constants", feeds={"x": IMAGE}).ops == {"Resize": 1}

    def test_open_sizes_are_refused(self):
        model = parse(
            """g (float[1, 2, H, 6] x) => (float[A, B, C, D] y) {
                y = Resize<mode = "cubic", exclude_outside = 1>(x, , scales) }""",
            scales=np.array([1, 1, 2, 2], np.float32),
        )
        result = fuse(model, "resize-by-constants", feeds={"x": IMAGE})
        assert "the shape of its input is not static" in result.refusals[0]
