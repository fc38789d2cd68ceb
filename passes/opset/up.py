"""From older opsets up to 18: what changed in each operator since opset 7.

Most changes move an attribute to an input::

    y = Clip<min=0.0, max=6.0>(x)     ->  y = Clip(x, 0.0, 6.0)
    y = Unsqueeze<axes=[0]>(x)        ->  y = Unsqueeze(x, [0])

Softmax, Upsample and Resize changed meaning; see `softmax` and `resize`.
"""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from cannc.passes.opset.edit import Adapter, Edit, needs_dtype
from cannc.passes.opset.resize import resize, resize_obstacle, upsample, upsample_obstacle
from cannc.passes.opset.softmax import softmax


def _ints(edit: Edit, name: str) -> ir.Value | None:
    """Return an attribute of integers as a constant, or None when the node has none."""
    attribute = edit.node.attributes.get(name)
    return None if attribute is None else edit.constant(list(attribute.as_ints()))


def _moves_axes(edit: Edit) -> None:
    """Move attribute axes to the second input (Squeeze, Unsqueeze, Reduce*)."""
    if "axes" in edit.node.attributes:
        axes = _ints(edit, "axes")
        edit.swap(edit.node.op_type, [edit.data(), axes], edit.without("axes"))


def _clip(edit: Edit) -> None:
    attributes = edit.node.attributes
    bounds = [
        edit.scalar(attributes[name].as_float()) if name in attributes else None
        for name in ("min", "max")
    ]
    edit.swap("Clip", [edit.data(), *bounds], {})


def _dropout(edit: Edit) -> None:
    """Inference only: the ratio changes nothing, but stays readable."""
    ratio = edit.node.attributes.get("ratio")
    given = edit.constant(ratio.as_float() if ratio else 0.5, np.float32)
    mask = edit.node.outputs[1:]
    edit.swap("Dropout", [edit.data(), given], {}, outputs=1 + len(mask))


def _dropout_obstacle(edit: Edit) -> str | None:
    mask = edit.node.outputs[1:]
    if mask and mask[0].uses() and mask[0].dtype != ir.DataType.BOOL:
        return "its mask is read as numbers, which opset 10 turned into booleans"
    return None


def _pad(edit: Edit) -> None:
    value = edit.node.attributes.get("value")
    number = value.as_float() if value else 0.0
    fill = edit.scalar(number) if number else None
    inputs = [edit.data(), _ints(edit, "pads"), fill]
    edit.swap("Pad", inputs, edit.without("pads", "value"))


def _slice(edit: Edit) -> None:
    inputs = [edit.data(), *(_ints(edit, name) for name in ("starts", "ends", "axes"))]
    edit.swap("Slice", inputs, {})


def _top_k(edit: Edit) -> None:
    k = edit.constant([edit.node.attributes["k"].as_int()])
    edit.swap("TopK", [edit.data(), k], edit.without("k"))


def _split(edit: Edit) -> None:
    """Sizes become an input (13); without sizes the number of parts is said (18)."""
    sizes = edit.input(1) or _ints(edit, "split")
    attributes = edit.without("split")
    if sizes is None:
        attributes["num_outputs"] = ir.AttrInt64("num_outputs", len(edit.node.outputs))
    edit.swap("Split", [edit.data(), sizes], attributes)


def _scatter(edit: Edit) -> None:
    edit.swap("ScatterElements", edit.node.inputs, edit.node.attributes)


def _batch_norm(edit: Edit) -> None:
    edit.swap("BatchNormalization", edit.node.inputs, edit.without("spatial"), outputs=1)


def _batch_norm_obstacle(edit: Edit) -> str | None:
    if any(value.uses() or value.is_graph_output() for value in edit.node.outputs[1:]):
        return "its training outputs are read; opset 14 removed two of them"
    spatial = edit.node.attributes.get("spatial")
    if spatial is not None and spatial.as_int() == 0:
        return "spatial=0 (statistics per element) was removed in opset 9"
    return None


def _roi_align(edit: Edit) -> None:
    """The former meaning has a name now, and is not the default any more."""
    mode = ir.AttrString("coordinate_transformation_mode", "output_half_pixel")
    attributes = {**edit.node.attributes, mode.name: mode}
    edit.swap("RoiAlign", edit.node.inputs, attributes)


def _removed(reason: str) -> Adapter:
    """An operator that has no form at opset 18."""

    def stay(edit: Edit) -> None:
        raise AssertionError(reason)

    return Adapter(9, stay, lambda edit: reason)


_AXES_18 = (
    "ReduceL1",
    "ReduceL2",
    "ReduceLogSum",
    "ReduceLogSumExp",
    "ReduceMax",
    "ReduceMean",
    "ReduceMin",
    "ReduceProd",
    "ReduceSumSquare",
)

UP: dict[str, Adapter] = {
    "BatchNormalization": Adapter(14, _batch_norm, _batch_norm_obstacle),
    "Clip": Adapter(11, _clip, needs_dtype),
    "Dropout": Adapter(12, _dropout, _dropout_obstacle),
    "Hardmax": Adapter(13, softmax),
    "LogSoftmax": Adapter(13, softmax),
    "Pad": Adapter(11, _pad, needs_dtype),
    "ReduceSum": Adapter(13, _moves_axes),
    "Resize": Adapter(13, resize, resize_obstacle),
    "RoiAlign": Adapter(16, _roi_align),
    "Scan": _removed("Scan with a batch axis (opset 8) has no later form"),
    "Scatter": Adapter(11, _scatter),
    "Slice": Adapter(10, _slice),
    "Softmax": Adapter(13, softmax),
    "Split": Adapter(18, _split),
    "Squeeze": Adapter(13, _moves_axes),
    "TopK": Adapter(10, _top_k),
    "Unsqueeze": Adapter(13, _moves_axes),
    "Upsample": Adapter(10, upsample, upsample_obstacle),
    **{name: Adapter(18, _moves_axes) for name in _AXES_18},
}
"""Operator -> its change of form, for models older than `since`; the result is that of opset 18."""


def up_adapter(node: ir.Node, opset: int) -> Adapter | None:
    """Return how to bring a node of `opset` up, or None when its form did not change."""
    adapter = UP.get(node.op_type)
    return adapter if adapter is not None and opset < adapter.since else None
