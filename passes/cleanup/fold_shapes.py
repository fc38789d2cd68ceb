"""Works out shape arithmetic as far as dims are known.

    Shape(x), x float[2, 3, N]; Gather(shape, [0, 1])             ->  [2, 3]
    Reshape(x, Concat(Gather(Shape(x), [0]), [-1], ...))          ->  Reshape(x, [0, -1, ...])

Vectors of dims are followed symbolically through Shape, Gather, Slice, Concat, Squeeze, Unsqueeze,
Reshape and Cast. One that holds numbers only becomes a constant. A Reshape target becomes one if
each of its symbolic dims is the input's dim at the same place (written 0), or if a single dim is
open and all others are positive numbers (written -1).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import onnx_ir as ir

from cannc.compiler.core.runner import Array
from cannc.passes.base import Numerics, Pass, PassContext
from cannc.passes.cleanup.dims import Dim, same_dim
from cannc.passes.pattern import array_of, ints_of
from cannc.passes.rewrite import scoped_nodes

_MAX_DIMS = 64
_OPEN = ir.SymbolicDim(None)


class FoldShapes(Pass):
    """See the module."""

    name = "fold-shapes"
    summary = "work out shape arithmetic as far as dims are known"
    numerics = Numerics.EXACT

    def run(self, ctx: PassContext) -> None:
        """See `Pass.run`."""
        vectors = _Vectors()
        for scoped in scoped_nodes(ctx.model):
            node = scoped.node
            if node.domain not in ("", "ai.onnx"):
                continue
            if node.op_type == "Reshape":
                _settle_target(ctx, node, vectors)
            dims = vectors.follow(node)
            is_done = node.op_type == "Identity"  # the form of a constant graph output
            if dims is not None and not is_done and all(isinstance(d, int) for d in dims.flat):
                dtype = node.outputs[0].dtype or ir.DataType.INT64
                ctx.rewriter.fold(node, [ir.Tensor(dims.astype(dtype.numpy()), dtype=dtype)])


class _Vectors:
    """Dims that values hold, as object arrays of ``int | SymbolicDim``, rank 0 or 1."""

    def __init__(self) -> None:
        self._known: dict[ir.Value, Array] = {}

    def of(self, value: ir.Value | None) -> Array | None:
        """Return the dims that a value holds, None if it holds anything else."""
        if value is None:
            return None
        if value in self._known:
            return self._known[value]
        array = array_of(value, max_elements=_MAX_DIMS)
        if array is None or array.ndim > 1 or array.dtype not in (np.int64, np.int32):
            return None
        return np.array(array.tolist(), dtype=object)

    def follow(self, node: ir.Node) -> Array | None:
        """Return the dims that the node computes, None if it is no shape arithmetic."""
        rule = _RULES.get(node.op_type)
        dims = rule(node, self) if rule is not None else None
        if dims is None or dims.size > _MAX_DIMS or dims.ndim > 1:
            return None
        self._known[node.outputs[0]] = dims
        return dims


def _settle_target(ctx: PassContext, node: ir.Node, vectors: _Vectors) -> None:
    """Replace a computed Reshape target by a constant where that says the same."""
    x, target = node.inputs[0], node.inputs[1] if len(node.inputs) > 1 else None
    if x is None or target is None or array_of(target) is not None:
        return
    dims = vectors.of(target)
    if dims is None or node.attributes.get_int("allowzero", 0) != 0:
        return
    literal = _literal_target(dims.tolist(), x.shape)
    if literal is None:
        return
    constant = ctx.rewriter.constant(target, np.array(literal, np.int64))
    y = node.outputs[0]
    new = ctx.rewriter.node("Reshape", [x, constant], like=y)
    ctx.rewriter.replace([node], [new], {y: new.outputs[0]})


def _literal_target(dims: list[Dim], shape: ir.Shape | None) -> list[int] | None:
    copied = [
        shape is not None and i < len(shape) and same_dim(dim, shape[i])
        for i, dim in enumerate(dims)
    ]
    symbolic = [i for i, dim in enumerate(dims) if not isinstance(dim, int)]
    if all(copied[i] for i in symbolic):
        return [dim if isinstance(dim, int) else 0 for dim in dims]
    numbers = [dim for dim in dims if isinstance(dim, int)]
    if len(symbolic) == 1 and all(number > 0 for number in numbers):
        return [dim if isinstance(dim, int) else -1 for dim in dims]
    return None


def _shape(node: ir.Node, vectors: _Vectors) -> Array | None:
    x = node.inputs[0]
    if x is None or x.shape is None or not isinstance(x.type, ir.TensorType):
        return None
    start, end = node.attributes.get_int("start", 0), node.attributes.get_int("end")
    return _vector(list(x.shape)[start:end])


def _size(node: ir.Node, vectors: _Vectors) -> Array | None:
    x = node.inputs[0]
    if x is None or x.shape is None or not x.shape.is_static():
        return None
    count = 1
    for dim in x.shape.numpy():
        count *= dim
    return np.array(count, dtype=object)


def _same(node: ir.Node, vectors: _Vectors) -> Array | None:
    return vectors.of(node.inputs[0])


def _cast(node: ir.Node, vectors: _Vectors) -> Array | None:
    is_integer = node.attributes.get_int("to") in (ir.DataType.INT64, ir.DataType.INT32)
    return vectors.of(node.inputs[0]) if is_integer else None


def _gather(node: ir.Node, vectors: _Vectors) -> Array | None:
    dims, index = vectors.of(node.inputs[0]), array_of(node.inputs[1], _MAX_DIMS)
    if dims is None or dims.ndim != 1 or index is None:
        return None
    if any(not -len(dims) <= int(i) < len(dims) for i in index.flat):
        return None
    return np.array(dims[index.astype(np.int64)], dtype=object)


def _slice(node: ir.Node, vectors: _Vectors) -> Array | None:
    dims = vectors.of(node.inputs[0])
    if dims is None or dims.ndim != 1 or len(node.inputs) < 3:
        return None
    bounds = [ints_of(value) for value in node.inputs[1:3]]
    steps: list[int] | None = [1]
    if len(node.inputs) > 4 and node.inputs[4] is not None:
        steps = ints_of(node.inputs[4])
    if steps is None or any(bound is None or len(bound) != 1 for bound in (*bounds, steps)):
        return None
    (start,), (end,) = bounds  # type: ignore[misc]
    return dims[start : end : steps[0]] if steps[0] > 0 else None


def _concat(node: ir.Node, vectors: _Vectors) -> Array | None:
    parts = [vectors.of(value) for value in node.inputs]
    if any(part is None or part.ndim != 1 for part in parts):
        return None
    return np.concatenate(parts)  # type: ignore[arg-type]


def _unsqueeze(node: ir.Node, vectors: _Vectors) -> Array | None:
    dims = vectors.of(node.inputs[0])
    return dims.reshape(1) if dims is not None and dims.ndim == 0 else None


def _squeeze(node: ir.Node, vectors: _Vectors) -> Array | None:
    dims = vectors.of(node.inputs[0])
    return dims.reshape(()) if dims is not None and dims.size == 1 else None


def _reshape(node: ir.Node, vectors: _Vectors) -> Array | None:
    dims, target = vectors.of(node.inputs[0]), vectors.of(node.inputs[1])
    if dims is None or target is None or target.shape not in ((0,), (1,)):
        return None
    if target.size == 0:
        return dims.reshape(()) if dims.size == 1 else None
    return dims.reshape(-1) if target.tolist()[0] in (-1, dims.size) else None


def _vector(dims: Sequence[Dim]) -> Array:
    vector = np.empty(len(dims), dtype=object)
    vector[:] = [dim if isinstance(dim, (int, ir.SymbolicDim)) else _OPEN for dim in dims]
    return vector


_RULES: dict[str, Callable[[ir.Node, _Vectors], Array | None]] = {
    "Shape": _shape,
    "Size": _size,
    "Identity": _same,
    "Cast": _cast,
    "Gather": _gather,
    "Slice": _slice,
    "Concat": _concat,
    "Unsqueeze": _unsqueeze,
    "Squeeze": _squeeze,
    "Reshape": _reshape,
}
