"""Types and shapes of values; inferred only when a rule asks for one that the file lacks."""

from __future__ import annotations

from functools import cached_property

import onnx_ir as ir

from cannc.compiler.core.graphs import walk
from cannc.compiler.core.shapes import infer_shapes

Shape = tuple["int | None", ...]


class Values:
    """Answers for one model. The model must not change while this is in use."""

    def __init__(self, model: ir.Model) -> None:
        self._model = model

    def dtype(self, value: ir.Value) -> ir.DataType | None:
        """Return a tensor's dtype; None when unknown or not a tensor."""
        kind = value.type if value.type is not None else self._inferred_type(value)
        return kind.dtype if isinstance(kind, ir.TensorType) else None

    def shape(self, value: ir.Value) -> Shape | None:
        """Return a tensor's shape, None for dims that are not static; None when unknown."""
        shape = value.shape
        if shape is None and value.const_value is not None:
            shape = value.const_value.shape
        if shape is None:
            twin = self._inferred.get(id(value))
            shape = None if twin is None else twin.shape
        if shape is None:
            return None
        return tuple(dim if isinstance(dim, int) else None for dim in shape)

    def _inferred_type(self, value: ir.Value) -> ir.TypeProtocol | None:
        twin = self._inferred.get(id(value))
        return None if twin is None else twin.type

    @cached_property
    def _inferred(self) -> dict[int, ir.Value]:
        """Identity of a value -> the same value in a copy of the model with inferred shapes."""
        twin = self._model.clone()
        infer_shapes(twin)
        pairs = zip(walk(self._model.graph), walk(twin.graph), strict=True)
        return {
            id(value): other
            for here, there in pairs
            for value, other in zip(here.node.outputs, there.node.outputs, strict=True)
        }
