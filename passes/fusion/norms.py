"""Parts that the written-out LayerNorm and RMSNorm share."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import onnx_ir as ir

from cannc.compiler.core.runner import Array
from cannc.compiler.core.tensors import DerivedTensor
from cannc.passes.base import PassContext
from cannc.passes.fusion.base import dtype_of, maybe_cast, near
from cannc.passes.pattern import Op, Pattern, constant_of, one_of, op, var


def over_root(x: Pattern, v: Pattern) -> tuple[Op, ...]:
    """Return patterns of x / sqrt(v)."""
    root = one_of(op("Sqrt", v), op("Pow", v, near(0.5)))
    inverse = one_of(op("Reciprocal", root), op("Div", near(1), root), op("Pow", v, near(-0.5)))
    return (op("Div", x, root), op("Mul", x, inverse))


def weighted(unit: tuple[Op, ...]) -> tuple[Op, ...]:
    """Return patterns of unit * gamma, in whatever dtype."""
    return (op("Mul", maybe_cast(one_of(*unit)), maybe_cast(var("gamma"))),)


def and_cast(forms: tuple[Op, ...]) -> tuple[Op, ...]:
    """Return the patterns with a Cast of the result behind them, and without."""
    return (*(op("Cast", form) for form in forms), *forms)


@dataclass(frozen=True)
class Tail:
    """The trailing dims that a norm runs over.

    Attributes:
        dims: Their sizes.
        dtype: dtype of the normalized tensor.
    """

    dims: tuple[int, ...]
    dtype: ir.DataType

    @classmethod
    def of(cls, x: ir.Value, count: int) -> Tail | str:
        """Return the last `count` dims of `x`, or why they cannot be told."""
        dtype = dtype_of(x)
        if x.shape is None or dtype is None:
            return f"the shape of {x.name} is not known"
        dims = tuple(x.shape)[len(x.shape) - count :]
        sizes = [dim for dim in dims if isinstance(dim, int)]
        if len(sizes) < count or 0 in sizes:
            return f"the normalized dims of {x.name} are not fixed: {list(map(str, dims))}"
        return cls(tuple(sizes), dtype)

    def weight_problem(self, weight: ir.Value | None) -> str | None:
        """Return why `weight` cannot be gamma or beta over these dims, or None."""
        if weight is None:
            return None
        shape = weight.shape
        if shape is None or not shape.is_static():
            return f"the shape of {weight.name} is not known"
        sizes = tuple(int(dim) for dim in shape.numpy())
        if constant_of(weight) is None:
            fits = sizes == self.dims
        else:
            outer, inner = sizes[: -len(self.dims)], sizes[-len(self.dims) :]
            pairs = zip(inner[::-1], self.dims[::-1], strict=False)
            fits = all(n == 1 for n in outer) and all(a in (1, b) for a, b in pairs)
        if fits:
            return None
        return f"{weight.name} of shape {list(sizes)} is no weight over the dims {list(self.dims)}"

    def fit(
        self, ctx: PassContext, weight: ir.Value | None, like: ir.Value, fill: float
    ) -> tuple[list[ir.Node], ir.Value]:
        """Return gamma or beta in exactly these dims and this dtype, and the nodes it takes.

        Args:
            ctx: The pass context.
            weight: What the graph has; None for none.
            like: Value that new ones are named after.
            fill: Stands in for an absent weight.
        """
        if weight is None:
            return [], ctx.rewriter.constant(like, np.full(self.dims, fill, self.dtype.numpy()))
        tensor = constant_of(weight)
        if tensor is None:
            if dtype_of(weight) == self.dtype:
                return [], weight
            cast = ctx.rewriter.node("Cast", [weight], {"to": int(self.dtype)})
            cast.outputs[0].type, cast.outputs[0].shape = ir.TensorType(self.dtype), weight.shape
            return [cast], cast.outputs[0]
        if tuple(tensor.shape) == self.dims and tensor.dtype == self.dtype:
            return [], weight
        shape = ir.Shape(self.dims)
        return [], ctx.rewriter.constant(
            like, DerivedTensor(tensor, self._spread, self.dtype, shape)
        )

    def _spread(self, array: Array) -> Array:
        inner = array.reshape(array.shape[max(array.ndim - len(self.dims), 0) :])
        return np.broadcast_to(inner, self.dims).astype(self.dtype.numpy())
