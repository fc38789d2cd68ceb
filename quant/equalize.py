"""Input scales of weights, and the exact place in front of them where activations are divided.

``W x = (W diag(s)) (x / s)``. The division costs nothing where x comes from something that is
linear per channel: the factor of a norm, its offset, the layer before, through Relu and products.
Everything between x and that place must be read by nobody else, else the model would change.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np
import onnx_ir as ir

from cannc.compiler.core.graphs import Names, all_graphs
from cannc.compiler.core.provenance import origins, set_origin
from cannc.compiler.core.runner import Array
from cannc.compiler.core.tensors import DerivedTensor, cast_to, released
from cannc.passes.pattern import constant_of
from cannc.passes.rewrite import Rewriter
from cannc.quant.algorithms.awq import search
from cannc.quant.collect import WeightUse, flag
from cannc.quant.scales import Floats
from cannc.quant.scheme import Scheme
from cannc.quant.statistics import Moments, Statistics, activation_of
from cannc.quant.weights import Weight, weight_of

_NORM_WEIGHTS = {
    ("", "LayerNormalization"): (1, 2),
    ("", "RMSNormalization"): (1,),
    ("npu", "NPURmsNorm"): (1,),
    ("npu", "NPUAddRmsNorm"): (2,),
}
"""Norms over the last axis -> inputs that multiply or add per channel."""

_HOMOGENEOUS = frozenset({"Relu", "LeakyRelu", "Cast", "Identity"})
"""Operators with f(x / s) = f(x) / s for s > 0."""


@dataclass
class Divisible:
    """Constants to divide so that a value is divided.

    Attributes:
        constants: Node, index of its input, axis of the channels.
        values: Values that are divided on the way, the last one first.
    """

    constants: list[tuple[ir.Node, int, int]] = field(default_factory=list)
    values: list[ir.Value] = field(default_factory=list)


@dataclass
class Equalized:
    """What was scaled.

    Attributes:
        moments: Activation -> moments after scaling; None where there are no activations.
        notes: Activation -> what was done or why nothing.
        replaced: Constants that may be unused now, and what stands for each.
    """

    moments: dict[ir.Value, Moments | str] = field(default_factory=dict)
    notes: dict[ir.Value, str] = field(default_factory=dict)
    replaced: list[tuple[Weight, ir.Value]] = field(default_factory=list)


def equalize(
    rewriter: Rewriter,
    uses: Sequence[WeightUse],
    scheme_of: Callable[[WeightUse], Scheme],
    statistics: Statistics,
) -> Equalized:
    """Search and apply input scales, in place.

    Args:
        rewriter: Of the model.
        uses: All weights that could be quantized, also those that the user keeps in float.
        scheme_of: Scheme that a weight will have.
        statistics: Moments of the activations of the model as it is.
    """
    groups: dict[ir.Value, list[WeightUse]] = {}
    for use in uses:
        x = activation_of(use)
        if x is not None:
            groups.setdefault(x, []).append(use)
    result = Equalized()
    names = Names(v.name for _, g in all_graphs(rewriter.model.graph) for n in g for v in n.outputs)
    # All statistics first: they are those of the model before anything changes.
    for x, group in groups.items():
        result.moments[x] = statistics.of(group[0])
    for x, group in groups.items():
        moments = result.moments[x]
        if isinstance(moments, str):
            continue
        place = _place(x, group)
        if isinstance(place, str):
            result.notes[x] = f"no input scales: {place}"
            continue
        found = search([_matrix(use) for use in group], [scheme_of(u) for u in group], moments)
        if found.alpha == 0:
            result.notes[x] = "no input scales: they would not lower the error"
            continue
        result.notes[x] = f"input scales with exponent {found.alpha:.2f}"
        result.moments[x] = moments.divided(found.factors)
        result.replaced += _apply(rewriter, group, place, found.factors, names)
    return result


def _place(x: ir.Value, group: Sequence[WeightUse]) -> Divisible | str:
    """Return where x can be divided, or why it cannot."""
    for use in group:
        rows = len(use.layout.shape) == 2 and use.operand == 1 and not flag(use.node, "transA")
        if use.node.op_type not in ("MatMul", "Gemm") or not rows:
            return f"{use.node.op_type} '{use.node.name}' does not sum over the last axis"
    place = Divisible()
    reason = _divide(x, {use.node for use in group}, group[0].layout.k, place)
    return reason or place


def _divide(value: ir.Value, readers: set[ir.Node], k: int, place: Divisible) -> str | None:
    """Add to `place` what divides `value`; return why that is not possible, or None."""
    node = value.producer()
    if value.is_graph_output():
        return f"'{value.name}' is a graph output"
    if any(user not in readers for user, _ in value.uses()):
        return f"others read '{value.name}' too"
    if node is None:
        return f"'{value.name}' is no result of a layer"
    place.values.append(value)
    domain = "" if node.domain == "ai.onnx" else node.domain
    if (domain, node.op_type) in _NORM_WEIGHTS:
        if value is not node.outputs[0]:
            return f"'{value.name}' is not the normalized output"
        indices = _NORM_WEIGHTS[domain, node.op_type]
        return _constants(node, [i for i in indices if _given(node, i)], k, place)
    if domain:
        return f"{node.op_type} is in front of it"
    if node.op_type in ("MatMul", "Gemm"):
        return _linear(node, k, place)
    if node.op_type in ("Mul", "Add"):
        return _arithmetic(node, k, place)
    if node.op_type in _HOMOGENEOUS:
        return _inner(node.inputs[0], node, k, place)
    return f"{node.op_type} is in front of it"


def _linear(node: ir.Node, k: int, place: Divisible) -> str | None:
    """Divide the columns of the layer before, and its bias."""
    axis = 0 if flag(node, "transB") else -1
    if node.op_type == "Gemm" and _given(node, 2):
        reason = _constants(node, [2], k, place)
        if reason is not None:
            return reason
    return _constants(node, [1], k, place, axis)


def _arithmetic(node: ir.Node, k: int, place: Divisible) -> str | None:
    """Divide one factor of a product, or both terms of a sum."""
    constant = [i for i, value in enumerate(node.inputs) if constant_of(value) is not None]
    if node.op_type == "Add":
        reason = _constants(node, constant, k, place) if constant else None
        others = [value for i, value in enumerate(node.inputs) if i not in constant]
        reasons = [reason, *(_inner(value, node, k, place) for value in others)]
        return next(filter(None, reasons), None)
    if constant:
        return _constants(node, constant[:1], k, place)
    if node.inputs[0] is node.inputs[1]:
        return "it is a square"
    reasons = []
    for value in reversed(node.inputs):
        trial = Divisible()
        reason = _inner(value, node, k, trial)
        if reason is None:
            place.constants += trial.constants
            place.values += trial.values
            return None
        reasons.append(reason)
    return reasons[0]


def _inner(value: ir.Value | None, reader: ir.Node, k: int, place: Divisible) -> str | None:
    if value is None or value.shape is None or not len(value.shape) or value.shape[-1] != k:
        return f"channels of the inputs of {reader.op_type} are unknown"
    return _divide(value, {reader}, k, place)


def _constants(
    node: ir.Node, indices: Sequence[int], k: int, place: Divisible, axis: int = -1
) -> str | None:
    for index in indices:
        weight = weight_of(node.inputs[index])
        if weight is None:
            return f"input {index} of {node.op_type} '{node.name}' is no float constant"
        if len(weight.shape) == 0 or weight.shape[axis] not in (1, k):
            return f"input {index} of {node.op_type} '{node.name}' does not run along the channels"
        place.constants.append((node, index, axis))
    return None


def _given(node: ir.Node, index: int) -> bool:
    return index < len(node.inputs) and node.inputs[index] is not None


def _matrix(use: WeightUse) -> Floats:
    with released(use.weight.tensor) as array:
        return use.layout.to_matrix(use.weight.as_read(array)).astype(np.float32)


def _apply(
    rewriter: Rewriter,
    group: Sequence[WeightUse],
    place: Divisible,
    factors: Floats,
    names: Names,
) -> list[tuple[Weight, ir.Value]]:
    """Scale the weights, divide in front of them; return old and new constants."""
    replaced = []
    for use in group:
        (axis,) = use.layout.reduced
        replaced.append(_scale(rewriter, use.node, use.operand, axis, factors))
    for node, index, axis in place.constants:
        replaced.append(_scale(rewriter, node, index, axis, np.reciprocal(factors)))
    for value in reversed(place.values):
        _hide(value, names)
    return replaced


def _scale(
    rewriter: Rewriter, node: ir.Node, index: int, axis: int, factors: Floats
) -> tuple[Weight, ir.Value]:
    """Let a node read a constant multiplied along one axis; return the old and the new one.

    The numbers stay lazy, and unrounded where they were.
    """
    weight = weight_of(node.inputs[index])
    assert weight is not None
    ndim = len(weight.shape)
    spread = factors.reshape([-1 if i == axis % ndim else 1 for i in range(ndim)])
    shape = tuple(np.broadcast_shapes(weight.shape, spread.shape))

    def scaled(array: Array) -> Array:
        return weight.as_read(array).astype(np.float32) * spread

    exact = DerivedTensor(weight.tensor, scaled, ir.DataType.FLOAT, ir.Shape(shape))
    new = rewriter.constant(weight.root, cast_to(exact, weight.dtype))
    node.replace_input_with(index, new)
    return weight, new


def _hide(value: ir.Value, names: Names) -> None:
    """A divided value is not the original one: it counts as inside of the nodes that read it."""
    node = value.producer()
    assert node is not None
    for user, _ in value.uses():
        set_origin(user, [*origins(node), *origins(user)])
    set_origin(node, [])
    value.name = names.fresh(f"{value.name}__scaled")
