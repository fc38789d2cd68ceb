"""Types and shapes inside a pass."""

from __future__ import annotations

import onnx_ir as ir

from cannc.compiler.core.graphs import walk
from cannc.compiler.core.shapes import infer_shapes


def ensure_types(model: ir.Model) -> None:
    """Infer types and shapes unless all values have a dtype already."""
    nodes = walk(model.graph)
    if any(value.dtype is None for scoped in nodes for value in scoped.node.outputs):
        refresh_types(model)


def refresh_types(model: ir.Model) -> None:
    """Infer types and shapes of inner values; what the interface declares stays as it is.

    A pass may not change the interface, not even by knowing more about it than the file says.
    """
    declared = [(value, value.type, value.shape) for value in model.graph.outputs]
    infer_shapes(model)
    for value, kind, shape in declared:
        value.type, value.shape = kind, shape
