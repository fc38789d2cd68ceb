"""Types and shapes of all values; symbolic dimension names are kept."""

from __future__ import annotations

import logging

import onnx_ir as ir
from onnx_ir.passes.common import ShapeInferencePass

log = logging.getLogger(__name__)


def infer_shapes(model: ir.Model) -> None:
    """Fill in types and shapes, in place. What cannot be inferred stays unknown.

    Weights are not copied. Shapes that the file declares for inner values are dropped first: after
    an edit they may be stale, and inference would trust them.
    """
    interface = {*model.graph.inputs, *model.graph.outputs, *model.graph.initializers.values()}
    for node in model.graph:
        for value in node.outputs:
            if value not in interface:
                value.shape = None
    ShapeInferencePass(check_type=False, strict_mode=False, data_prop=True)(model)


def static_shape(value: ir.Value | None) -> tuple[int, ...] | None:
    """Return the shape as integers, or None when it is unknown or has symbolic dims."""
    if value is None or value.shape is None or not value.shape.is_static():
        return None
    return tuple(int(dim) for dim in value.shape.numpy())


def rank(value: ir.Value | None) -> int | None:
    """Return the number of dimensions, or None when unknown."""
    return None if value is None or value.shape is None else len(value.shape)
