"""Upsample and the early forms of Resize."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from cannc.passes.opset.edit import Edit
from cannc.passes.pattern import array_of, constant_of


def upsample(edit: Edit) -> None:
    """``Upsample(x, s)`` -> ``Resize(x, , s)`` with asymmetric coordinates, rounded down."""
    given = edit.node.attributes.get("scales")
    scales = edit.input(1) if given is None else edit.constant(list(given.as_floats()), np.float32)
    _asymmetric(edit, scales, "floor")


def upsample_obstacle(edit: Edit) -> str | None:
    """Upsample has its scales as an attribute (7) or an input (9)."""
    if edit.input(1) is None and "scales" not in edit.node.attributes:
        return "it has no scales"
    return None


def resize(edit: Edit) -> None:
    """Name the coordinates that opset 10 implied; drop the empty inputs that opset 11 required.

    Opset 10 rounds coordinates down when it enlarges and up when it shrinks.
    """
    if len(edit.node.inputs) == 2:
        scales = edit.input(1)
        _asymmetric(edit, scales, _rounding(scales) or "floor")
        return
    inputs = [None if _is_empty(value) else value for value in edit.node.inputs]
    if len(inputs) == 4 and inputs[3] is not None:
        inputs[2] = None
    edit.swap("Resize", inputs, edit.node.attributes)


def resize_obstacle(edit: Edit) -> str | None:
    """Some forms have no counterpart."""
    mode = edit.node.attributes.get_string("coordinate_transformation_mode", "")
    if mode == "tf_half_pixel_for_nn":
        return "coordinates tf_half_pixel_for_nn were removed in opset 13"
    nearest = edit.node.attributes.get_string("mode", "nearest") == "nearest"
    if len(edit.node.inputs) == 2 and nearest and _rounding(edit.input(1)) is None:
        return "it may enlarge one axis and shrink another, which round differently in opset 10"
    return None


def _asymmetric(edit: Edit, scales: ir.Value | None, nearest: str) -> None:
    mode = edit.node.attributes.get_string("mode", "nearest")
    attributes = {
        "mode": "linear" if mode == "bilinear" else mode,
        "coordinate_transformation_mode": "asymmetric",
        "nearest_mode": nearest,
    }
    edit.swap("Resize", [edit.data(), None, scales], attributes)


def _rounding(scales: ir.Value | None) -> str | None:
    """Return the nearest_mode that opset 10 means by these scales; None when it depends.

    Scales that are computed belong to exports of upsampling layers.
    """
    if constant_of(scales) is None:
        return "floor"
    factors = array_of(scales)
    if factors is None:
        return None
    shrinks, enlarges = np.less(factors, 1).any(), np.greater(factors, 1).any()
    if shrinks:
        return None if enlarges else "ceil"
    return "floor"


def _is_empty(value: ir.Value | None) -> bool:
    tensor = constant_of(value)
    return tensor is not None and tensor.size == 0
