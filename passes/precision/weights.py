"""Weights in half: clipped to its range, and what was lost is told."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import onnx_ir as ir

from cannc.compiler.core.runner import Array
from cannc.compiler.core.tensors import DerivedTensor, cast_to, released
from cannc.passes.precision.islands import HALF_MAX, HALF_TINY
from cannc.passes.precision.slots import HALF


@dataclass(frozen=True)
class Loss:
    """What a tensor loses in half.

    Attributes:
        clipped: Finite numbers beyond +-65504, set to that bound.
        flushed: Numbers other than zero that become zero.
        size: Number of elements.
    """

    clipped: int
    flushed: int
    size: int


def to_half(tensor: ir.TensorProtocol) -> tuple[ir.TensorProtocol, Loss]:
    """Return the tensor as float16, computed when read, and what it loses.

    Finite numbers are clipped to +-65504 (a mask of -3.4e38 must not become -inf: a row of -inf is
    0/0 in Softmax); infinities stay. The result remembers its float32 source (D11).
    """
    with released(tensor) as array:
        loss = _loss(array)
    if loss.clipped:
        return DerivedTensor(tensor, _clipped, HALF), loss
    return cast_to(tensor, HALF), loss


def _loss(array: Array) -> Loss:
    # Two reductions decide for nearly all weights, without a copy of them.
    if array.size == 0:
        return Loss(0, 0, 0)
    with np.errstate(invalid="ignore"):
        highest = max(float(array.max()), -float(array.min()))
    magnitude = np.abs(array) if not highest <= HALF_MAX or array.size == 1 else None
    if magnitude is None:
        return Loss(0, 0, array.size)
    clipped = np.isfinite(array) & (magnitude > HALF_MAX)
    flushed = (magnitude > 0) & (magnitude <= HALF_TINY)
    return Loss(int(clipped.sum()), int(flushed.sum()), array.size)


def _clipped(array: Array) -> Array:
    with np.errstate(over="ignore"):
        inside = np.clip(array, -HALF_MAX, HALF_MAX)
        return np.where(np.isinf(array), array, inside).astype(np.float16)
