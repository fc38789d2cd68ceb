"""Folds layout changes and casts of large weights without reading their numbers."""

from __future__ import annotations

import onnx_ir as ir

from cannc.compiler.core.shapes import static_shape
from cannc.compiler.core.tensors import DerivedTensor, cast_to
from cannc.passes.pattern import constant_of

LARGE_BYTES = 2**20
_RESHAPES = frozenset({"Reshape", "Squeeze", "Unsqueeze", "Flatten"})


def lazy_result(node: ir.Node) -> ir.TensorProtocol | None:
    """Return the result of a layout change or cast of a large weight that nothing else uses.

    None for any other node: constants of usual size are evaluated together (`fold_constants`).
    """
    tensor = _own_large_weight(node)
    if tensor is None:
        return None
    if node.op_type == "Transpose":
        return _transposed(tensor, node)
    if node.op_type == "Cast":
        return _cast(tensor, node)
    return _reshaped(tensor, node) if node.op_type in _RESHAPES else None


def _own_large_weight(node: ir.Node) -> ir.TensorProtocol | None:
    if node.domain not in ("", "ai.onnx") or not node.inputs:
        return None
    weight, *rest = node.inputs
    if weight is None or len(weight.uses()) != 1 or node.outputs[0].is_graph_output():
        return None
    if weight.is_graph_input() or weight.is_graph_output():
        return None
    if any(value is not None and constant_of(value) is None for value in rest):
        return None
    tensor = constant_of(weight)
    return tensor if tensor is not None and tensor.nbytes >= LARGE_BYTES else None


def _transposed(tensor: ir.TensorProtocol, node: ir.Node) -> ir.TensorProtocol:
    shape = tensor.shape.numpy()
    perm = tuple(node.attributes.get_ints("perm") or reversed(range(len(shape))))
    return DerivedTensor(
        tensor, lambda array: array.transpose(perm), tensor.dtype, ir.Shape(shape[i] for i in perm)
    )


def _reshaped(tensor: ir.TensorProtocol, node: ir.Node) -> ir.TensorProtocol | None:
    shape = static_shape(node.outputs[0])
    if shape is None:
        return None
    return DerivedTensor(tensor, lambda array: array.reshape(shape), tensor.dtype, ir.Shape(shape))


def _cast(tensor: ir.TensorProtocol, node: ir.Node) -> ir.TensorProtocol | None:
    dtype = ir.DataType(node.attributes.get_int("to") or 0)
    both_float = dtype.is_floating_point() and tensor.dtype.is_floating_point()
    if not both_float or dtype.bitwidth > 2 * tensor.dtype.bitwidth:
        return None
    return cast_to(tensor, dtype)
