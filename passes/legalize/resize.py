"""Resize in a form that the device does not compute, written with constants.

Before:  Resize<mode=nearest, nearest_mode=ceil>(x, sizes)    After:  Gather(Gather(x, rows), cols)
         Resize<mode=cubic, cubic_coeff_a=-0.5>(x, sizes)             MatMul(R, MatMul(x, C))

Interpolation is linear in x and separable: along one axis it is a matrix of ``output x input``
weights, or, for the nearest pixel, a list of indices. Sizes must be static.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
import numpy.typing as npt
import onnx_ir as ir

from cannc.compiler.core.shapes import static_shape
from cannc.op_support.report import Severity
from cannc.passes.base import Numerics
from cannc.passes.legalize.base import EditCure, findings_about
from cannc.passes.opset.edit import Edit
from cannc.passes.pattern import array_of

Floats: TypeAlias = "npt.NDArray[np.float64]"
_MOST_WEIGHTS = 1 << 22
_ROI, _SCALES, _SIZES = 1, 2, 3


@dataclass(frozen=True)
class _Axis:
    """How one axis is resized."""

    axis: int
    size: int
    out: int
    scale: float
    roi: tuple[float, float]


class ResizeByConstants(EditCure):
    """See the module."""

    name = "resize-by-constants"
    summary = "Resize that the device gets wrong -> Gather or MatMul with constants"
    numerics = Numerics.REASSOCIATED
    op_types = frozenset({"Resize"})

    def needs(self, edit: Edit) -> bool:
        """Does the check say that the device would compute something else?"""
        found = findings_about(edit.ctx, edit.node)
        return any(f.severity in (Severity.WRONG, Severity.REFUSED) for f in found)

    def obstacle(self, edit: Edit) -> str | None:
        """Weights follow from static sizes."""
        if static_shape(edit.data()) is None:
            return "the shape of its input is not static"
        axes = _axes(edit)
        if axes is None:
            return "its scales or sizes are computed"
        dtype = edit.data().dtype
        nearest = edit.node.attributes.get_string("mode", "nearest") == "nearest"
        if not nearest and (dtype is None or not dtype.is_floating_point()):
            return "only floating-point images are interpolated by matrices"
        if any(a.size * a.out > _MOST_WEIGHTS for a in axes):
            return f"a matrix would have more than {_MOST_WEIGHTS} weights"
        return None

    def apply(self, edit: Edit) -> None:
        """Resize axis by axis."""
        axes = _axes(edit)
        assert axes is not None
        attributes = edit.node.attributes
        nearest = attributes.get_string("mode", "nearest") == "nearest"
        nodes: list[ir.Node] = []
        current = edit.data()
        outside: list[tuple[_Axis, npt.NDArray[np.bool_]]] = []
        for axis in axes:
            places = coordinates(edit, axis)
            if attributes.get_string("coordinate_transformation_mode") == "tf_crop_and_resize":
                outside.append((axis, (places < 0) | (places > axis.size - 1)))
            write = _gather if nearest else _matrix
            nodes += write(edit, current, axis, places)
            current = nodes[-1].outputs[0]
        if any(mask.any() for _, mask in outside):
            nodes.append(_fill(edit, current, outside))
        edit.put(nodes or [edit.make("Identity", edit.data())])


def _gather(edit: Edit, x: ir.Value, axis: _Axis, places: Floats) -> list[ir.Node]:
    rounding = edit.node.attributes.get_string("nearest_mode", "round_prefer_floor")
    indices = np.clip(_ROUNDING[rounding](places), 0, axis.size - 1).astype(np.int64)
    return [edit.make("Gather", x, edit.constant(indices), attributes={"axis": axis.axis})]


def _matrix(edit: Edit, x: ir.Value, axis: _Axis, places: Floats) -> list[ir.Node]:
    """Multiply along one axis: from the right the last one, from the left the one before it."""
    dtype, dims = edit.data().dtype, len(edit.data().shape or ())
    assert dtype is not None
    weights = _weights(edit, axis, places)
    if axis.axis == dims - 2:
        return [edit.make("MatMul", edit.constant(weights, dtype.numpy()), x)]
    turned = edit.constant(weights.T, dtype.numpy())
    if axis.axis == dims - 1:
        return [edit.make("MatMul", x, turned)]
    swap = list(range(dims))
    swap[axis.axis], swap[-1] = swap[-1], swap[axis.axis]
    there = edit.make("Transpose", x, attributes={"perm": swap})
    product = edit.make("MatMul", there.outputs[0], turned)
    return [there, product, edit.make("Transpose", product.outputs[0], attributes={"perm": swap})]


def _fill(edit: Edit, x: ir.Value, outside: list[tuple[_Axis, npt.NDArray[np.bool_]]]) -> ir.Node:
    dims = len(edit.data().shape or ())
    mask = np.zeros([1] * dims, bool)
    for axis, part in outside:
        shape = [1] * dims
        shape[axis.axis] = axis.out
        mask = mask | part.reshape(shape)
    value = edit.scalar(edit.node.attributes.get_float("extrapolation_value", 0.0))
    return edit.make("Where", edit.constant(mask, np.bool_), value, x)


def _weights(edit: Edit, axis: _Axis, places: Floats) -> Floats:
    """Return ``output x input`` weights of one axis."""
    attributes = edit.node.attributes
    stretch = min(axis.scale, 1.0) if attributes.get_int("antialias", 0) else 1.0
    kernel, radius = _triangle, 1
    if attributes.get_string("mode") == "cubic":
        a = attributes.get_float("cubic_coeff_a", -0.75)
        kernel, radius = (lambda t: _cubic(t, a)), 2
    reach = int(np.ceil(radius / stretch))
    weights = np.zeros((axis.out, axis.size))
    for row, place in enumerate(places):
        base = int(np.floor(place))
        taps = np.arange(base - reach + 1, base + reach + 1)
        parts = kernel((taps - place) * stretch)
        if attributes.get_int("exclude_outside", 0):
            parts = np.where((taps < 0) | (taps >= axis.size), 0.0, parts)
        parts = parts / parts.sum()
        np.add.at(weights[row], np.clip(taps, 0, axis.size - 1), parts)
    return weights


def _triangle(t: Floats) -> Floats:
    return np.asarray(np.clip(1 - np.abs(t), 0, 1), np.float64)


def _cubic(t: Floats, a: float) -> Floats:
    t = np.abs(t)
    near = ((a + 2) * t - (a + 3)) * t * t + 1
    far = ((a * t - 5 * a) * t + 8 * a) * t - 4 * a
    return np.asarray(np.where(t <= 1, near, np.where(t < 2, far, 0.0)), np.float64)


def coordinates(edit: Edit, axis: _Axis) -> Floats:
    """Return the place in the input of each output pixel, by ONNX's formulas."""
    position = np.arange(axis.out, dtype=np.float64)
    mode = edit.node.attributes.get_string("coordinate_transformation_mode", "half_pixel")
    if mode == "asymmetric":
        return position / axis.scale
    if mode == "align_corners":
        return position * (axis.size - 1) / (axis.out - 1) if axis.out > 1 else position * 0
    if mode == "tf_crop_and_resize":
        start, end = axis.roi
        if axis.out == 1:
            return position * 0 + 0.5 * (start + end) * (axis.size - 1)
        step = (end - start) * (axis.size - 1) / (axis.out - 1)
        return start * (axis.size - 1) + position * step
    if mode == "pytorch_half_pixel" and axis.out == 1:
        return position * 0 - 0.5
    if mode == "half_pixel_symmetric":
        adjusted = axis.out / (axis.scale * axis.size)
        return axis.size / 2 * (1 - adjusted) + (position + 0.5) / axis.scale - 0.5
    if mode == "tf_half_pixel_for_nn":
        return (position + 0.5) / axis.scale
    return (position + 0.5) / axis.scale - 0.5


_ROUNDING: dict[str, Callable[[Floats], Floats]] = {
    "round_prefer_floor": lambda x: np.ceil(x - 0.5),
    "round_prefer_ceil": lambda x: np.floor(x + 0.5),
    "floor": np.floor,
    "ceil": np.ceil,
}


def _axes(edit: Edit) -> list[_Axis] | None:
    """Return the axes that change, or that a region of interest cuts; None if not known."""
    shape = static_shape(edit.data())
    scales, sizes = array_of(edit.input(_SCALES)), array_of(edit.input(_SIZES))
    if shape is None or (scales is None or not scales.size) == (sizes is None or not sizes.size):
        return None
    attributes = edit.node.attributes
    chosen = [axis % len(shape) for axis in attributes.get_ints("axes") or range(len(shape))]
    if scales is not None and scales.size:
        factors = [float(scale) for scale in scales]
        outs = [int(np.floor(shape[a] * f)) for a, f in zip(chosen, factors, strict=True)]
    else:
        assert sizes is not None
        outs = [int(size) for size in sizes]
        factors = [out / shape[a] for a, out in zip(chosen, outs, strict=True)]
        policy = attributes.get_string("keep_aspect_ratio_policy", "stretch")
        if policy != "stretch":
            factor = min(factors) if policy == "not_larger" else max(factors)
            factors = [factor] * len(chosen)
            outs = [int(np.floor(factor * shape[axis] + 0.5)) for axis in chosen]
    crops = attributes.get_string("coordinate_transformation_mode") == "tf_crop_and_resize"
    roi = array_of(edit.input(_ROI)) if crops else None
    if crops and (roi is None or roi.size != 2 * len(chosen)):
        return None
    found = []
    for index, (axis, out, factor) in enumerate(zip(chosen, outs, factors, strict=True)):
        window = (0.0, 1.0)
        if roi is not None:
            window = (float(roi[index]), float(roi[index + len(chosen)]))
        if factor != 1 or window != (0.0, 1.0):
            found.append(_Axis(axis, shape[axis], out, factor, window))
    return found
