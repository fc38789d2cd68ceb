"""What will be done to each weight, decided before anything changes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Generic, Protocol, TypeVar

import numpy as np
import onnx_ir as ir

from cannc.compiler.core.errors import ModelError
from cannc.compiler.core.runner import Array
from cannc.compiler.core.tensors import released
from cannc.quant.algorithms import Algorithm
from cannc.quant.collect import Skip, WeightUse
from cannc.quant.forms import Choice, Form, FormRules
from cannc.quant.packing import PER_WORD, pack_int4
from cannc.quant.scales import (
    Bounds,
    Closeness,
    Floats,
    Params,
    closeness,
    decode,
    encode,
    ranges,
    widened,
)
from cannc.quant.scheme import Scheme
from cannc.quant.statistics import Moments

_OWN_SHAPE = (Form.DEQUANT, Form.QDQ)
"""Forms that store levels in the shape of the weight."""


class Emittable(Protocol):
    """What the graph needs to know about a quantized weight."""

    @property
    def first(self) -> WeightUse:
        """The use that it was made for; others may share it."""
        ...

    @property
    def choice(self) -> Choice:
        """Form and scheme."""
        ...

    def levels(self) -> ir.TensorProtocol:
        """Return the integers."""
        ...

    def scale(self) -> Array:
        """Return the scales."""
        ...

    def offset(self) -> Array | None:
        """Return the offsets, or None where none are needed."""
        ...


Weighted = TypeVar("Weighted", bound=Emittable, covariant=True)


@dataclass(frozen=True)
class Stored:
    """One weight as it will be stored, shared by all uses that read it the same way.

    Attributes:
        first: The use that it was planned for.
        choice: Form and scheme.
        params: Its scales.
        factor: Number that the weight is multiplied by (alpha of a Gemm whose kernel has none).
        closeness: Error of the dequantized weight.
        output_error: Relative L2 error of the layer's output on calibration data; None without.
        note: What was or was not done with the activations; may be empty.
    """

    first: WeightUse
    choice: Choice
    params: Params
    factor: float
    closeness: Closeness
    output_error: float | None = None
    note: str = ""

    def levels(self) -> ir.TensorProtocol:
        """Return the integers, computed from the source when they are written.

        Shape (k, n), packed (k, n/8), or the weight's own shape for `Form.DEQUANT`.
        """
        layout, scheme = self.first.layout, self.choice.scheme

        def integers(weight: Array) -> Array:
            levels = encode(_matrix(self.first, weight, self.factor), self.params, scheme)
            if self.choice.form in _OWN_SHAPE:
                return layout.from_matrix(levels)
            return pack_int4(levels) if self.packed else levels

        if self.choice.form in _OWN_SHAPE:
            return self.first.weight.derive(integers, ir.DataType.INT8, layout.shape)
        if self.packed:
            shape = (layout.k, layout.n // PER_WORD)
            return self.first.weight.derive(integers, ir.DataType.INT32, shape)
        return self.first.weight.derive(integers, ir.DataType.INT8, (layout.k, layout.n))

    def scale(self) -> Array:
        """Return the scales in the shape in which the form takes them."""
        return self._shaped(self.params.scale)

    def offset(self) -> Array | None:
        """Return the offsets like `scale`; zeros where a kernel's body always needs them (D7).

        For `Form.QDQ` the zero points, int8, which are subtracted.
        """
        if self.choice.form is Form.QDQ:
            zero = self.params.offset
            return None if zero is None else self._shaped(np.negative(zero).astype(np.int8))
        if self.params.offset is not None:
            return self._shaped(self.params.offset.astype(self.params.scale.dtype))
        return None if self.choice.form is Form.DEQUANT else np.zeros_like(self.scale())

    @property
    def packed(self) -> bool:
        """Eight levels share one INT32."""
        return self.choice.form is Form.FUSED and self.choice.scheme.bits == 4

    @property
    def nbytes(self) -> int:
        """Bytes of integers, scales and offsets together."""
        offset = self.offset()
        extra = 0 if offset is None else offset.nbytes
        return self.levels().nbytes + self.scale().nbytes + extra

    def _shaped(self, table: Array) -> Array:
        if self.choice.form is Form.DEQUANT:
            return self.first.layout.spread(table)
        return table[0] if table.shape[0] == 1 else table


@dataclass(frozen=True)
class Plan(Generic[Weighted]):
    """One node and the weight that it will read."""

    use: WeightUse
    stored: Weighted


def make_plans(
    uses: Sequence[WeightUse],
    scheme: Scheme,
    algorithm: Algorithm,
    rules: FormRules,
    moments_of: Callable[[WeightUse], Moments | str],
) -> tuple[list[Plan[Stored]], list[Skip]]:
    """Choose form and scales of every weight.

    Args:
        uses: The weights.
        scheme: What was asked for.
        algorithm: Chooses scales.
        rules: Choose forms.
        moments_of: Activations in front of a weight, or why there are none.

    Returns:
        The plans, and the uses that would gain nothing.

    Raises:
        ModelError: ``QUANT010`` a weight holds NaN or infinity.
    """
    known: dict[object, Stored | str] = {}
    plans: list[Plan[Stored]] = []
    skips: list[Skip] = []
    for use in uses:
        choice = rules.choose(use, scheme)
        factor = _factor(use, choice.form)
        key = (use.key, choice, factor)
        if key not in known:
            known[key] = _solve(use, choice, factor, algorithm, moments_of(use))
        solved = known[key]
        if isinstance(solved, Stored):
            plans.append(Plan(use, solved))
        else:
            weight = use.weight
            nbytes = weight.tensor.nbytes
            skips.append(Skip(use.node, weight.name, solved, shape=weight.shape, nbytes=nbytes))
    return plans, skips


def _solve(
    use: WeightUse, choice: Choice, factor: float, algorithm: Algorithm, found: Moments | str
) -> Stored | str:
    """Return the stored weight, or why it is better left alone."""
    weight = use.weight
    in_float = choice.form in (Form.ANTIQUANT, Form.QDQ)
    held = ir.DataType.FLOAT if in_float else weight.dtype
    with released(weight.tensor) as array:
        matrix = _matrix(use, weight.as_read(array), factor)
        moments = None if isinstance(found, str) else found
        if moments is not None:  # what looks at activations multiplies whole matrices
            matrix = widened(matrix)
        bounds = ranges(matrix, choice.scheme.group)
        peak = _peak(use, matrix, bounds)
        params = algorithm.solve(matrix, choice.scheme, held.numpy(), moments, bounds)
        if not np.isfinite(params.scale.astype(np.float64)).all():
            return f"its scales exceed the range of {held.name}"
        error = closeness(matrix, params, choice.scheme, peak)
        output = None if moments is None else _output_error(matrix, params, choice.scheme, moments)
    note = found if isinstance(found, str) else ""
    stored = Stored(use, choice, params, factor, error, output, note)
    before = use.layout.k * use.layout.n * weight.dtype.itemsize
    if stored.nbytes >= before:
        return f"integers and scales need {stored.nbytes} bytes, the weight {before:.0f}"
    return stored


def _output_error(matrix: Array, params: Params, scheme: Scheme, moments: Moments) -> float:
    wide = widened(matrix)
    difference = decode(encode(wide, params, scheme), params) - wide
    return moments.output_error(wide, difference)


def _matrix(use: WeightUse, weight: Array, factor: float) -> Array:
    """Return the weight as matrix (k, n), in its own dtype, or multiplied by `factor`."""
    matrix = use.layout.to_matrix(weight)
    return matrix if factor == 1.0 else matrix.astype(np.float32) * np.float32(factor)


def _factor(use: WeightUse, form: Form) -> float:
    alpha = use.node.attributes.get("alpha") if use.node.op_type == "Gemm" else None
    return alpha.as_float() if alpha is not None and form is Form.FUSED else 1.0


def _peak(use: WeightUse, matrix: Array, bounds: Bounds) -> Floats:
    """Return the largest absolute weight of each column; refuse NaN and infinity."""
    low, high = bounds
    peak: Floats = np.maximum(-low, high).max(axis=0).astype(np.float32)
    if np.isfinite(peak).all():
        return peak
    bad = int(matrix.size - np.count_nonzero(np.isfinite(matrix)))
    raise ModelError(
        "QUANT010",
        f"weight '{use.weight.name}' holds {bad} NaN or infinite values of {matrix.size}",
        where=f"node '{use.node.name}' ({use.node.op_type})",
        why="no scale can represent them; the checkpoint is damaged or training diverged",
        fix=f"repair the checkpoint, or leave the layer in float: --keep {use.node.name}",
    )
