"""The constant behind a node's operand, through the layout operators that exporters leave.

A raw PyTorch export stores (out, in) and transposes on the way to MatMul; other tools reshape,
cast or squeeze. Such a chain is a change of layout, so it can be applied to the weight once.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
import onnx_ir as ir

from cannc.compiler.core.runner import Array
from cannc.compiler.core.tensors import DerivedTensor, unrounded
from cannc.passes.pattern import array_of, constant_of

FLOATS = frozenset({ir.DataType.FLOAT, ir.DataType.FLOAT16, ir.DataType.BFLOAT16})
INTEGERS = frozenset(
    {ir.DataType.INT8, ir.DataType.UINT8, ir.DataType.INT4, ir.DataType.UINT4, ir.DataType.INT32}
)

_DEQUANTIZERS = frozenset(
    {"Cast", "Add", "Sub", "Mul", "Gather", "DequantizeLinear", "NPUAntiQuant"}
)

Step = Callable[[Array], Array]


@dataclass(frozen=True)
class Weight:
    """A constant as a node reads it.

    Attributes:
        value: What the node reads.
        root: The initializer, or the output of a Constant node, where it comes from.
        tensor: Its numbers, in the precision from before any pass rounded them (D11).
        shape: Shape of `value`.
        dtype: Dtype of `value`.
        chain: Layout nodes from root to value, with what each does to the array.
    """

    value: ir.Value
    root: ir.Value
    tensor: ir.TensorProtocol
    shape: tuple[int, ...]
    dtype: ir.DataType
    chain: tuple[tuple[ir.Node, Step], ...] = field(default=(), compare=False)

    @property
    def name(self) -> str:
        """Name of the stored weight."""
        return self.root.name or ""

    def as_read(self, array: Array) -> Array:
        """Return the root's array in the layout in which the node reads it."""
        for _, step in self.chain:
            array = step(array)
        return array

    def derive(
        self, function: Step, dtype: ir.DataType, shape: tuple[int, ...]
    ) -> ir.TensorProtocol:
        """Return the lazy tensor ``function(weight as read)``."""

        def evaluate(array: Array) -> Array:
            return function(self.as_read(array))

        return DerivedTensor(self.tensor, evaluate, dtype, ir.Shape(shape))

    def prefixes(self) -> list[tuple[ir.Node, ir.TensorProtocol]]:
        """Return each layout node with the constant that it computes, the last one first."""
        tensor = constant_of(self.root)
        assert tensor is not None
        found: list[tuple[ir.Node, ir.TensorProtocol]] = []
        for node, step in self.chain:
            dtype = _cast_target(node) or tensor.dtype
            tensor = DerivedTensor(
                tensor, _then_cast(step, dtype), dtype, _shape_after(tensor, step)
            )
            found.append((node, tensor))
        return found[::-1]


def weight_of(value: ir.Value | None) -> Weight | None:
    """Return the float constant behind `value`, or None when there is none."""
    steps: list[ir.Node] = []
    root = value
    while (tensor := constant_of(root)) is None:
        node = root.producer() if root is not None else None
        if node is None or node.domain not in ("", "ai.onnx") or node.op_type not in _LAYOUT:
            return None
        steps.append(node)
        root = node.inputs[0]
    if root is None or value is None or tensor.dtype not in FLOATS:
        return None
    chain: list[tuple[ir.Node, Step]] = []
    shape, dtype = tuple(tensor.shape.numpy()), tensor.dtype
    for node in reversed(steps):
        step = _LAYOUT[node.op_type](node, shape)
        dtype = _cast_target(node) or dtype
        if step is None or dtype not in FLOATS:
            return None
        shape = _shape_after_step(shape, step)
        chain.append((node, step))
    return Weight(value, root, unrounded(tensor), shape, dtype, tuple(chain))


def stored_integers(value: ir.Value | None) -> ir.Value | None:
    """Return the integer constant that `value` is dequantized from, or None.

    Looks through gathers too: an embedding gathers integers and dequantizes what it took.
    """
    while value is not None:
        tensor = constant_of(value)
        if tensor is not None:
            return value if tensor.dtype in INTEGERS else None
        node = value.producer()
        if node is None or node.op_type not in _DEQUANTIZERS | _LAYOUT.keys():
            return None
        value = node.inputs[0]
    return None


def _shape_after_step(shape: tuple[int, ...], step: Step) -> tuple[int, ...]:
    """Return the shape of the result, found on an array without storage."""
    return step(np.broadcast_to(np.float32(0), shape)).shape


def _shape_after(tensor: ir.TensorProtocol, step: Step) -> ir.Shape:
    return ir.Shape(_shape_after_step(tuple(tensor.shape.numpy()), step))


def _then_cast(step: Step, dtype: ir.DataType) -> Step:
    def evaluate(array: Array) -> Array:
        return step(array).astype(dtype.numpy())

    return evaluate


def _cast_target(node: ir.Node) -> ir.DataType | None:
    if node.op_type != "Cast":
        return None
    return ir.DataType(node.attributes["to"].as_int())


def _unchanged(node: ir.Node, shape: tuple[int, ...]) -> Step:
    return lambda array: array


def _transpose(node: ir.Node, shape: tuple[int, ...]) -> Step:
    given = node.attributes.get("perm")
    perm = tuple(given.as_ints()) if given is not None else tuple(range(len(shape)))[::-1]
    return lambda array: array.transpose(perm)


def _reshape(node: ir.Node, shape: tuple[int, ...]) -> Step | None:
    wanted = array_of(node.inputs[1])
    if wanted is None:
        return None
    target = [int(dim) for dim in wanted]
    allow_zero = node.attributes.get("allowzero")
    if allow_zero is None or not allow_zero.as_int():
        target = [shape[i] if dim == 0 else dim for i, dim in enumerate(target)]
    return lambda array: array.reshape(target)


def _squeeze(node: ir.Node, shape: tuple[int, ...]) -> Step | None:
    axes = _axes(node)
    if axes is None:
        return None
    return lambda array: np.squeeze(array, axes or None)


def _unsqueeze(node: ir.Node, shape: tuple[int, ...]) -> Step | None:
    axes = _axes(node)
    if axes is None:
        return None
    return lambda array: np.expand_dims(array, axes)


def _flatten(node: ir.Node, shape: tuple[int, ...]) -> Step:
    given = node.attributes.get("axis")
    axis = given.as_int() if given is not None else 1
    rows = int(np.prod(shape[:axis], dtype=np.int64))
    columns = int(np.prod(shape[axis:], dtype=np.int64))
    return lambda array: array.reshape(rows, columns)


def _axes(node: ir.Node) -> tuple[int, ...] | None:
    """Return axes of Squeeze and Unsqueeze: attribute before opset 13, input from then on."""
    attribute = node.attributes.get("axes")
    if attribute is not None:
        return tuple(attribute.as_ints())
    if len(node.inputs) < 2 or node.inputs[1] is None:
        return ()
    axes = array_of(node.inputs[1])
    return None if axes is None else tuple(int(axis) for axis in axes.ravel())


_LAYOUT: dict[str, Callable[[ir.Node, tuple[int, ...]], Step | None]] = {
    "Identity": _unchanged,
    "Cast": _unchanged,
    "Transpose": _transpose,
    "Reshape": _reshape,
    "Squeeze": _squeeze,
    "Unsqueeze": _unsqueeze,
    "Flatten": _flatten,
}
