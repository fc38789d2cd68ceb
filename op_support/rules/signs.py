"""Can a value be negative? Only what is plain from the graph nearby is believed."""

from __future__ import annotations

import onnx_ir as ir

from cannc.op_support.values import Values

_UNSIGNED = frozenset(
    {
        ir.DataType.BOOL,
        ir.DataType.UINT4,
        ir.DataType.UINT8,
        ir.DataType.UINT16,
        ir.DataType.UINT32,
        ir.DataType.UINT64,
    }
)
_NEVER_NEGATIVE = frozenset(
    {"Shape", "Size", "Abs", "ArgMax", "ArgMin", "NonZero", "Relu", "Sigmoid", "Exp", "Sqrt"}
)
_FIRST_DECIDES = frozenset(
    {"Identity", "Gather", "Squeeze", "Unsqueeze", "Reshape", "Slice", "Expand", "Tile", "Cast",
     "Transpose", "Flatten", "ReduceMax", "ReduceMin", "ReduceProd", "ReduceSum", "Div"}
)  # fmt: skip
_ALL_DECIDE = frozenset({"Add", "Mul", "Min", "Concat", "Mod"})
_DEPTH = 8


def nonnegative(value: ir.Value | None, values: Values, depth: int = _DEPTH) -> bool:
    """Is every element of a value known to be zero or more?"""
    if value is None or depth == 0:
        return False
    if values.dtype(value) in _UNSIGNED:
        return True
    tensor = ir.convenience.get_const_tensor(value)
    if tensor is not None:
        return tensor.size <= 1 << 16 and bool((tensor.numpy() >= 0).all())
    node = value.producer()
    if node is None or node.domain not in ("", "ai.onnx"):
        return False
    if node.op_type in _NEVER_NEGATIVE:
        return True
    inputs = list(node.inputs)
    if node.op_type == "Div":
        inputs = inputs[:2]
    elif node.op_type in _FIRST_DECIDES:
        inputs = inputs[:1]
    elif node.op_type == "Range":
        inputs = [inputs[0], inputs[2]]
    elif node.op_type not in _ALL_DECIDE:
        return False
    return bool(inputs) and all(nonnegative(item, values, depth - 1) for item in inputs)
