"""Operators that ATC's parser does not know at opset 18, written out in ones that it knows."""

from __future__ import annotations

import math

import numpy as np
import onnx_ir as ir

from cannc.compiler.core.shapes import rank
from cannc.compiler.core.tensors import read
from cannc.passes.opset.edit import Adapter, Edit, needs_dtype
from cannc.passes.pattern import constant_of

_NARROW = frozenset({ir.DataType.FLOAT16, ir.DataType.BFLOAT16})


def _gelu(edit: Edit) -> None:
    """``x * (1 + erf(x / sqrt 2)) * 0.5``, or the approximation by tanh."""
    x = edit.data()
    if edit.node.attributes.get_string("approximate", "none") == "tanh":
        cube = edit.make("Pow", x, edit.scalar(3))
        inner = edit.make("Mul", cube.outputs[0], edit.scalar(0.044715))
        total = edit.make("Add", x, inner.outputs[0])
        scaled = edit.make("Mul", total.outputs[0], edit.scalar(math.sqrt(2 / math.pi)))
        curve = [cube, inner, total, scaled, edit.make("Tanh", scaled.outputs[0])]
    else:
        scaled = edit.make("Div", x, edit.scalar(math.sqrt(2)))
        curve = [scaled, edit.make("Erf", scaled.outputs[0])]
    raised = edit.make("Add", curve[-1].outputs[0], edit.scalar(1))
    product = edit.make("Mul", x, raised.outputs[0])
    half = edit.make("Mul", product.outputs[0], edit.scalar(0.5))
    edit.put([*curve, raised, product, half])


def _swish(edit: Edit) -> None:
    """``x * sigmoid(alpha * x)``."""
    x = edit.data()
    alpha = edit.node.attributes.get_float("alpha", 1.0)
    nodes = [] if alpha == 1 else [edit.make("Mul", x, edit.scalar(alpha))]
    gate = edit.make("Sigmoid", nodes[-1].outputs[0] if nodes else x)
    edit.put([*nodes, gate, edit.make("Mul", x, gate.outputs[0])])


def _rms_norm(edit: Edit) -> None:
    """``x / sqrt(mean(x^2) + eps) * scale``, the norm in float32 unless `stash_type` says else."""
    x, scale = edit.data(), edit.input(1)
    attributes, narrow = edit.node.attributes, x.dtype
    widen = narrow in _NARROW and attributes.get_int("stash_type", 1) == 1
    nodes: list[ir.Node] = []
    base = x
    if widen:
        nodes.append(edit.make("Cast", x, attributes={"to": int(ir.DataType.FLOAT)}))
        base = nodes[0].outputs[0]
    dims = rank(x) or 0
    axis = attributes.get_int("axis", -1)
    axes = edit.constant(list(range(axis, 0) if axis < 0 else range(axis - dims, 0)))
    wide = np.dtype(np.float32) if widen else x.dtype.numpy()  # type: ignore[union-attr]
    square = edit.make("Mul", base, base)
    mean = edit.make("ReduceMean", square.outputs[0], axes, attributes={"keepdims": 1})
    epsilon = edit.constant(attributes.get_float("epsilon", 1e-5), wide)
    shifted = edit.make("Add", mean.outputs[0], epsilon)
    root = edit.make("Sqrt", shifted.outputs[0])
    norm = edit.make("Div", base, root.outputs[0])
    nodes += [square, mean, shifted, root, norm]
    if widen and narrow is not None:
        nodes.append(edit.make("Cast", norm.outputs[0], attributes={"to": int(narrow)}))
    edit.put([*nodes, edit.make("Mul", nodes[-1].outputs[0], scale)])


def _rms_norm_obstacle(edit: Edit) -> str | None:
    if edit.node.attributes.get_int("axis", -1) >= 0 and rank(edit.data()) is None:
        return "the rank of its input is unknown"
    return needs_dtype(edit)


def _group_norm(edit: Edit) -> None:
    """Groups as instances: ``Reshape -> InstanceNormalization -> Reshape``, then the affine part.

    Opset 18 has one scale per group, which InstanceNormalization can hold; opset 21 has one per
    channel, which follows as Mul and Add.
    """
    x, scale, bias = edit.node.inputs
    groups = edit.node.attributes["num_groups"].as_int()
    epsilon = edit.node.attributes.get_float("epsilon", 1e-5)
    grouped = edit.make("Reshape", x, edit.constant([0, groups, -1]))
    sizes = edit.make("Shape", x)
    per_group = edit.ctx.model.opset_imports[""] < 21
    ones, zeros = (
        (scale, bias) if per_group else (_filled(edit, groups, 1), _filled(edit, groups, 0))
    )
    norm = edit.make(
        "InstanceNormalization", grouped.outputs[0], ones, zeros, attributes={"epsilon": epsilon}
    )
    back = edit.make("Reshape", norm.outputs[0], sizes.outputs[0])
    nodes = [grouped, norm, sizes, back]
    if not per_group:
        for op_type, factor in (("Mul", scale), ("Add", bias)):
            shaped, extra = _per_channel(edit, factor)
            nodes += [*extra, edit.make(op_type, nodes[-1].outputs[0], shaped)]
    edit.put(nodes)


def _group_norm_obstacle(edit: Edit) -> str | None:
    return "the rank of its input is unknown" if rank(edit.data()) is None else needs_dtype(edit)


def _filled(edit: Edit, count: int, number: float) -> ir.Value:
    dtype = edit.data().dtype
    assert dtype is not None
    return edit.constant(np.full(count, number), dtype.numpy())


def _per_channel(edit: Edit, factor: ir.Value | None) -> tuple[ir.Value, list[ir.Node]]:
    """Return a vector over channels shaped to multiply [N, C, ...], and the nodes that do so."""
    assert factor is not None
    spatial = (rank(edit.data()) or 2) - 2
    tensor = constant_of(factor)
    if tensor is not None:
        array = read(tensor)
        return edit.ctx.rewriter.constant(factor, array.reshape(-1, *[1] * spatial)), []
    axes = edit.constant(list(range(1, spatial + 1)))
    node = edit.make("Unsqueeze", factor, axes)
    return node.outputs[0], [node]


def _cast_like(edit: Edit) -> None:
    """``CastLike(x, t)`` -> ``Cast<to=dtype of t>(x)``."""
    target = edit.input(1)
    dtype = target.dtype if target is not None else None
    assert dtype is not None
    edit.swap("Cast", [edit.data()], {**edit.node.attributes, "to": int(dtype)})


def _cast_like_obstacle(edit: Edit) -> str | None:
    target = edit.input(1)
    return "the dtype to cast to is unknown" if target is None or target.dtype is None else None


EXPANSIONS: dict[str, Adapter] = {
    "CastLike": Adapter(15, _cast_like, _cast_like_obstacle),
    "Gelu": Adapter(20, _gelu, needs_dtype),
    "GroupNormalization": Adapter(18, _group_norm, _group_norm_obstacle),
    "RMSNormalization": Adapter(23, _rms_norm, _rms_norm_obstacle),
    "Swish": Adapter(24, _swish, needs_dtype),
}
"""Operator -> how it is written out; `since` is the opset that introduced it. The result is valid
from opset 18 on (that of CastLike everywhere), so it does not wait for the rest of the model."""
