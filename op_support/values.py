"""Types and shapes of values; worked out only when a rule asks for one that the file lacks."""

from __future__ import annotations

from functools import cached_property

import onnx_ir as ir

from cannc.compiler.core.graphs import walk
from cannc.compiler.core.shapes import infer_shapes
from cannc.op_support.dtype_flow import flow

Shape = tuple["int | None", ...]


class Values:
    """Answers for one model. The model must not change while this is in use."""

    def __init__(self, model: ir.Model) -> None:
        self._model = model

    def dtype(self, value: ir.Value) -> ir.DataType | None:
        """Return a tensor's dtype; None when unknown or not a tensor."""
        if value.type is not None:
            return value.dtype if isinstance(value.type, ir.TensorType) else None
        if value.const_value is not None:
            return value.const_value.dtype
        return self._dtypes.get(id(value))

    def shape(self, value: ir.Value) -> Shape | None:
        """Return a tensor's shape, None for dims that are not static; None when unknown."""
        shape: ir.ShapeProtocol | None = value.shape
        if shape is None and value.const_value is not None:
            shape = value.const_value.shape
        if shape is None:
            shape = self._shapes.get(id(value))
        if shape is None:
            return None
        return tuple(dim if isinstance(dim, int) else None for dim in shape)

    @cached_property
    def _dtypes(self) -> dict[int, ir.DataType]:
        return flow(self._model)

    @cached_property
    def _shapes(self) -> dict[int, ir.Shape | None]:
        """Identity of a value -> its shape in a copy of the model with inferred shapes."""
        twin = self._model.clone()
        infer_shapes(twin)
        pairs = zip(walk(self._model.graph), walk(twin.graph), strict=True)
        return {
            id(value): other.shape
            for here, there in pairs
            for value, other in zip(here.node.outputs, there.node.outputs, strict=True)
        }
