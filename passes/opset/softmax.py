"""Softmax, LogSoftmax and Hardmax before opset 13."""

from __future__ import annotations

from cannc.compiler.core.shapes import rank, static_shape
from cannc.passes.opset.edit import Edit


def softmax(edit: Edit) -> None:
    """Say the former meaning: over all axes from `axis` (default 1) on, taken as one.

    Before::

        y = Softmax<axis=1>(x)                   # x is [N, C, H, W], opset 12

    After::

        y = Reshape(Softmax<axis=-1>(Flatten<axis=1>(x)), Shape(x))

    Where one axis at most is larger than 1, Softmax over that axis is the same.
    """
    node, data = edit.node, edit.data()
    axis = node.attributes.get_int("axis", 1)
    dims = rank(data)
    if axis == -1 or (dims is not None and axis % dims == dims - 1):
        edit.swap(node.op_type, [data], {"axis": -1})
        return
    shape = static_shape(data)
    if shape is not None:
        tail = list(range(axis % len(shape), len(shape)))
        long = [index for index in tail if shape[index] != 1]
        if len(long) <= 1:
            edit.swap(node.op_type, [data], {"axis": (long or tail)[0]})
            return
    flat = edit.make("Flatten", data, attributes={"axis": axis})
    inner = edit.make(node.op_type, flat.outputs[0], attributes={"axis": -1})
    sizes = edit.make("Shape", data)
    back = edit.make("Reshape", inner.outputs[0], sizes.outputs[0], like=node.outputs[0])
    edit.put([flat, inner, sizes, back])
