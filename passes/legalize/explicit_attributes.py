"""Attributes that ONNX derives when they are absent, written out.

Before:  Conv(x, w)                         After:  Conv<kernel_shape=[3, 3]>(x, w)
         Transpose(x)                               Transpose<perm=[2, 1, 0]>(x)
         GridSample(x, grid)                        GridSample<mode, padding_mode, align_corners>
         EyeLike(x), x int32                        EyeLike<dtype=INT32>(x)
         Constant<value_ints=[1, 2]>                Constant<value=int64[2] {1, 2}>

ATC's plugins refuse the node, assume another value or find the constant empty.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import onnx_ir as ir

from cannc.compiler.core.shapes import rank, static_shape
from cannc.passes.base import Numerics, PassContext
from cannc.passes.legalize.base import Cure
from cannc.passes.pattern import constant_of

Found = Mapping[str, Any] | str | None
"""Attributes to write, the reason why they cannot be known, or None when nothing is missing."""


def _kernel_shape(node: ir.Node) -> Found:
    if node.attributes.get_ints("kernel_shape"):
        return None
    weight = node.inputs[1]
    tensor = constant_of(weight)
    shape = static_shape(weight) if tensor is None else tuple(tensor.shape.numpy())
    if shape is None:
        return "the shape of its weight is unknown"
    return {"kernel_shape": [int(size) for size in shape[2:]]}


def _perm(node: ir.Node) -> Found:
    if "perm" in node.attributes:
        return None
    dims = rank(node.inputs[0])
    if dims is None:
        return "the rank of its input is unknown"
    return {"perm": list(range(dims))[::-1]}


def _grid_sample(node: ir.Node) -> Found:
    defaults = {"mode": "bilinear", "padding_mode": "zeros", "align_corners": 0}
    return {name: v for name, v in defaults.items() if name not in node.attributes} or None


def _dtype(node: ir.Node) -> Found:
    source = node.inputs[0]
    if "dtype" in node.attributes:
        return None
    if source is None or source.dtype is None:
        return "the dtype of its input is unknown"
    return None if source.dtype == ir.DataType.FLOAT else {"dtype": int(source.dtype)}


def _constant(node: ir.Node) -> Found:
    for name, dtype in (
        ("value_float", np.float32),
        ("value_floats", np.float32),
        ("value_int", np.int64),
        ("value_ints", np.int64),
    ):
        attribute = node.attributes.get(name)
        if attribute is not None and not attribute.is_ref():
            return {name: None, "value": ir.Tensor(np.array(attribute.value, dtype))}
    for name in ("value_string", "value_strings"):
        attribute = node.attributes.get(name)
        if attribute is not None and not attribute.is_ref():
            given = np.array(attribute.value, dtype=object)
            texts = [str(text).encode() for text in given.flat]
            return {name: None, "value": ir.StringTensor(texts, shape=ir.Shape(given.shape))}
    return None


_FINDERS: dict[str, Callable[[ir.Node], Found]] = {
    "Constant": _constant,
    "Conv": _kernel_shape,
    "ConvTranspose": _kernel_shape,
    "EyeLike": _dtype,
    "GridSample": _grid_sample,
    "Transpose": _perm,
}


class ExplicitAttributes(Cure):
    """See the module."""

    name = "explicit-attributes"
    summary = "attributes that ONNX derives are written out"
    numerics = Numerics.EXACT
    op_types = frozenset(_FINDERS)

    def cure(self, ctx: PassContext, node: ir.Node) -> None:
        """Write what is missing."""
        found = _FINDERS[node.op_type](node)
        if isinstance(found, str):
            ctx.refuse(node, found)
        elif found is not None:
            ctx.rewriter.set_attributes(node, found)
