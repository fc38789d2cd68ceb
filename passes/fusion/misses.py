"""The nearest miss: where a pattern that matched nowhere came closest, for ``--explain``.

A greedy walk: the pattern is laid over the graph from its root; an operator that fits counts, and
its inputs are looked at in turn. What does not fit is told. Unlike matching it never goes back, so
it may overlook a closer miss, but it costs no more than the pattern is large.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import onnx_ir as ir

from cannc.passes.pattern import COMMUTATIVE, Match, OneOf, Op, Pattern, Variable

_CLOSE = 0.8
"""Share of operators above which an operator that does not fit is worth telling."""


@dataclass(frozen=True)
class Fit:
    """How far a pattern fits.

    Attributes:
        fitting: Operators that fit.
        total: Operators that the pattern has.
        faults: What does not fit.
        values: Variable name -> value.
    """

    fitting: int
    total: int
    faults: tuple[str, ...]
    values: dict[str, ir.Value]

    @property
    def rank(self) -> tuple[float, int]:
        """Larger is closer."""
        return self.fitting / max(self.total, 1), -len(self.faults)


def nearest_miss(patterns: Sequence[Op], root: ir.Node) -> str | None:
    """Return what keeps the closest pattern from matching at `root`; None if none is close."""
    fits = [_fit(pattern, root.outputs[0], {}) for pattern in patterns]
    best = max(fits, key=lambda fit: fit.rank, default=None)
    if best is None or best.rank[0] <= _CLOSE or not 1 <= len(best.faults) <= 2:
        return None
    return "; ".join(best.faults)


def _fit(pattern: Pattern, value: ir.Value | None, values: dict[str, ir.Value]) -> Fit:
    if isinstance(pattern, OneOf):
        fits = [_fit(choice, value, values) for choice in pattern.choices]
        return max(fits, key=lambda fit: fit.rank)
    if isinstance(pattern, Op):
        return _fit_op(pattern, value, values)
    if isinstance(pattern, Variable) and not pattern.constant and value is not None:
        bound = values.get(pattern.name, value)
        fault = () if bound is value else (f"{_show(value)} stands where {_show(bound)} should",)
        return Fit(0, 0, fault, {**values, pattern.name: bound})
    if next(iter(pattern.match(value, Match(values))), None) is not None:
        return Fit(0, 0, (), values)
    wanted = getattr(pattern, "number", None)
    expected = "a constant" if wanted is None else f"the constant {wanted:g}"
    return Fit(0, 0, (f"{_show(value)} stands where {expected} should",), values)


def _fit_op(pattern: Op, value: ir.Value | None, values: dict[str, ir.Value]) -> Fit:
    node = value.producer() if value is not None else None
    if node is None or node.op_type != pattern.op_type:
        found = f"{node.op_type} ({node.name})" if node is not None else _show(value)
        return Fit(0, _size(pattern), (f"{found} stands where {pattern.op_type} should",), values)
    orders = [pattern.inputs]
    if pattern.op_type in COMMUTATIVE and len(pattern.inputs) == 2:
        orders.append(pattern.inputs[::-1])
    fits = [_fit_all(order, node, values) for order in orders]
    return max(fits, key=lambda fit: fit.rank)


def _fit_all(patterns: Sequence[Pattern], node: ir.Node, values: dict[str, ir.Value]) -> Fit:
    fitting, total = 1, 1
    faults: tuple[str, ...] = ()
    for index, pattern in enumerate(patterns):
        given = node.inputs[index] if index < len(node.inputs) else None
        fit = _fit(pattern, given, values)
        fitting, total, faults = fitting + fit.fitting, total + fit.total, (*faults, *fit.faults)
        values = fit.values
    if len(node.inputs) > len(patterns):
        faults = (*faults, f"{node.op_type} ({node.name}) has further inputs")
    return Fit(fitting, total, faults, values)


def _size(pattern: Pattern) -> int:
    """Return the number of operators of a pattern, of its smallest choices."""
    if isinstance(pattern, OneOf):
        return min(map(_size, pattern.choices))
    return 1 + sum(map(_size, pattern.inputs)) if isinstance(pattern, Op) else 0


def _show(value: ir.Value | None) -> str:
    if value is None:
        return "nothing"
    tensor = ir.convenience.get_const_tensor(value)
    if tensor is not None and tensor.size == 1:
        return f"the constant {float(tensor.numpy().reshape(())):g}"
    return value.name or "a value"
