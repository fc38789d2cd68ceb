"""What stands in the place of one operator: a small graph, built as one writes a formula."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import onnx_ir as ir

from cannc.compiler.core.runner import Array
from cannc.compiler.core.shapes import rank
from cannc.passes.base import PassContext
from cannc.passes.legalize.base import opset_of
from cannc.passes.legalize.contrib.types import infer_outputs

_AXES_INPUT = {"ReduceSum": 13}
_AXES_INPUT_DEFAULT = 18
_SPLIT_INPUT = _UNSQUEEZE_INPUT = 13


class ObstacleError(Exception):
    """An operator cannot be written out; the text says why. Becomes a refusal of the pass."""


class Body:
    """Collects the nodes that replace `node`, in order; nothing is changed before `put`.

    Every value made here has its dtype and, where it can be inferred, its shape.
    """

    def __init__(self, ctx: PassContext, node: ir.Node) -> None:
        """Args: the pass's context and the operator to write out."""
        self.ctx = ctx
        self.node = node
        self.opset = opset_of(ctx.model)
        self._nodes: list[ir.Node] = []
        self._constants: list[ir.Value] = []

    # -- what is given -------------------------------------------------------------------------

    def given(self, index: int) -> ir.Value | None:
        """Return an input; None when it is absent."""
        return self.node.inputs[index] if index < len(self.node.inputs) else None

    def need(self, index: int) -> ir.Value:
        """Return an input that must be there.

        Raises:
            ObstacleError: It is absent.
        """
        value = self.given(index)
        if value is None:
            raise ObstacleError(f"input {index} is missing")
        return value

    def wants(self, index: int) -> bool:
        """Return whether somebody reads that output."""
        if index >= len(self.node.outputs):
            return False
        value = self.node.outputs[index]
        return bool(value.uses()) or value.is_graph_output()

    def integer(self, name: str, default: int = 0) -> int:
        """Return an integer attribute."""
        return self.node.attributes.get_int(name, default)

    def number(self, name: str, default: float) -> float:
        """Return a float attribute."""
        return self.node.attributes.get_float(name, default)

    def forbid(self, **attributes: object) -> None:
        """Raise `ObstacleError` if an attribute has another value than this or one of these."""
        for name, allowed in attributes.items():
            found = self.node.attributes.get(name)
            choices = allowed if isinstance(allowed, tuple) else (allowed,)
            if found is not None and found.value not in choices:
                raise ObstacleError(f"{name} = {found.value} has no counterpart")

    # -- constants -----------------------------------------------------------------------------

    def constant(self, array: Array | ir.TensorProtocol) -> ir.Value:
        """Return a new constant."""
        value = self.ctx.rewriter.constant(self.node.outputs[0], array)
        self._constants.append(value)
        return value

    def ints(self, *numbers: int) -> ir.Value:
        """Return a new vector of int64."""
        return self.constant(np.array(numbers, np.int64))

    def index(self, number: int) -> ir.Value:
        """Return a new scalar of int64."""
        return self.constant(np.array(number, np.int64))

    def scalar(self, number: float, like: ir.Value) -> ir.Value:
        """Return a new scalar of the dtype of `like`."""
        return self.constant(np.array(number, dtype_of(like).numpy()))

    # -- nodes ---------------------------------------------------------------------------------

    def op(self, op_type: str, *inputs: ir.Value | None, **attributes: Any) -> ir.Value:
        """Add a node and return its output."""
        return self._add(op_type, inputs, attributes, 1)[0]

    def _add(
        self,
        op_type: str,
        inputs: Sequence[ir.Value | None],
        attributes: Mapping[str, Any],
        outputs: int,
    ) -> list[ir.Value]:
        node = self.ctx.rewriter.node(op_type, inputs, attributes, num_outputs=outputs)
        self._nodes.append(node)
        infer_outputs(node, self.ctx.model.opset_imports)
        return list(node.outputs)

    def cast(self, x: ir.Value, dtype: ir.DataType) -> ir.Value:
        """Return `x` in another dtype; itself when it has it already."""
        return x if x.dtype == dtype else self.op("Cast", x, to=int(dtype))

    def reshape(self, x: ir.Value, *dims: int) -> ir.Value:
        """Return `x` with these dims; 0 keeps that of the same axis, -1 is what remains."""
        return self.op("Reshape", x, self.ints(*dims))

    def transpose(self, x: ir.Value, *perm: int) -> ir.Value:
        """Return `x` with its axes in this order."""
        return self.op("Transpose", x, perm=perm)

    def slice(self, x: ir.Value, axis: int, start: int, end: int) -> ir.Value:
        """Return a range of one axis."""
        return self.op("Slice", x, self.ints(start), self.ints(end), self.ints(axis))

    def split(self, x: ir.Value, axis: int, *sizes: int) -> list[ir.Value]:
        """Return the parts of `x` along an axis."""
        by_input = self.opset >= _SPLIT_INPUT
        inputs = [x, self.ints(*sizes)] if by_input else [x]
        attributes = {"axis": axis} if by_input else {"axis": axis, "split": sizes}
        return self._add("Split", inputs, attributes, len(sizes))

    def unsqueeze(self, x: ir.Value, *axes: int) -> ir.Value:
        """Return `x` with new axes of size 1."""
        if self.opset < _UNSQUEEZE_INPUT:
            return self.op("Unsqueeze", x, axes=axes)
        return self.op("Unsqueeze", x, self.ints(*axes))

    def reduce(self, op_type: str, x: ir.Value, axes: Sequence[int], keepdims: int = 1) -> ir.Value:
        """Return a reduction over some axes; over all when there are none."""
        if not axes:
            return self.op(op_type, x, keepdims=keepdims)
        if self.opset < _AXES_INPUT.get(op_type, _AXES_INPUT_DEFAULT):
            return self.op(op_type, x, axes=axes, keepdims=keepdims)
        return self.op(op_type, x, self.ints(*axes), keepdims=keepdims)

    def dim(self, x: ir.Value, axis: int) -> ir.Value:
        """Return a dimension as a vector of one int64: a constant if it is known."""
        size = x.shape[axis] if x.shape is not None else None
        if isinstance(size, int):
            return self.ints(size)
        return self.op("Gather", self.op("Shape", x), self.ints(axis), axis=0)

    def arange(self, count: ir.Value) -> ir.Value:
        """Return 0, 1, ... as int64; `count` is a vector of one int64."""
        end = self.op("Reshape", count, self.constant(np.empty(0, np.int64)))
        return self.op("Range", self.index(0), end, self.index(1))

    # -- the end -------------------------------------------------------------------------------

    def put(self, *results: ir.Value | None, instead: Sequence[ir.Node] = ()) -> None:
        """Replace the operator; `results` stand for its outputs, in order.

        A result that is a value from outside gets an Identity of its own.

        Args:
            results: Values, None for an output that nobody reads.
            instead: The operator and what follows it, when more than it is replaced; the results
                stand for the outputs of the last one.
        """
        replaced = list(instead) or [self.node]
        made = {value for node in self._nodes for value in node.outputs}
        values: dict[ir.Value, ir.Value] = {}
        for old, result in zip(replaced[-1].outputs, results, strict=False):
            if result is None:
                continue
            own = result in made and result not in values.values()
            values[old] = new = result if own else self.op("Identity", result)
            if old.is_graph_output():
                new.type, new.shape = old.type, old.shape  # the interface stays as it is declared
        given = [value for value in self.node.inputs if value is not None]
        self.ctx.rewriter.replace(replaced, self._nodes, values)
        for value in dict.fromkeys(given):
            interface = value.is_graph_input() or value.is_graph_output()
            if value.is_initializer() and not value.uses() and not interface:
                self.ctx.rewriter.drop_initializer(value)

    def abandon(self) -> None:
        """Take back the constants of a body that will not be put."""
        for value in self._constants:
            del self.ctx.model.graph.initializers[value.name or ""]
        for node in self._nodes:
            for index in range(len(node.inputs)):
                node.replace_input_with(index, None)


def dtype_of(value: ir.Value) -> ir.DataType:
    """Return the dtype of a value.

    Raises:
        ObstacleError: It is unknown.
    """
    if value.dtype is None:
        raise ObstacleError(f"the dtype of {value.name} is unknown")
    return value.dtype


def rank_of(value: ir.Value) -> int:
    """Return the number of dimensions.

    Raises:
        ObstacleError: It is unknown.
    """
    size = rank(value)
    if size is None:
        raise ObstacleError(f"the rank of {value.name} is unknown")
    return size


def width_of(value: ir.Value, axis: int = -1) -> int:
    """Return the size of an axis.

    Raises:
        ObstacleError: It is not fixed.
    """
    size = value.shape[axis] if value.shape else None
    if not isinstance(size, int):
        raise ObstacleError(f"the size of axis {axis} of {value.name} is not fixed")
    return size
