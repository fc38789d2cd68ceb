"""Matching: a pattern is written as the expression that it looks for.

    x, gamma = var("x"), const("gamma")
    square = op("Mul", x, x)
    norm = op("Mul", op("Div", x, op("Sqrt", op("ReduceMean", square))), gamma)
    for match in norm.find(node): ...

A variable that stands at two places must be the same value at both. Commutative operators are
tried both ways round. `find` yields every way to match, so a pass can look for one whose side
conditions hold and report the reason of the nearest miss otherwise.
"""

from __future__ import annotations

import abc
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import onnx_ir as ir

from cannc.compiler.core.runner import Array

COMMUTATIVE = frozenset({"Add", "Mul", "And", "Or", "Xor", "Equal", "Max", "Min", "Sum"})


@dataclass(frozen=True)
class Match:
    """One way to match.

    Attributes:
        values: Variable name -> value.
        nodes: Matched nodes, the inputs' side first, the root last.
        named: Name given to an operator -> its node.
    """

    values: dict[str, ir.Value] = field(default_factory=dict)
    nodes: tuple[ir.Node, ...] = ()
    named: dict[str, ir.Node] = field(default_factory=dict)

    def __getitem__(self, name: str) -> ir.Value:
        return self.values[name]

    @property
    def root(self) -> ir.Node:
        """The node where the pattern ends."""
        return self.nodes[-1]

    def leak(self) -> ir.Value | None:
        """Return an inner value that something outside the match reads, or None.

        Such a match must not be replaced: its inner value would vanish.
        """
        inside = set(self.nodes)
        for node in self.nodes[:-1]:
            for value in node.outputs:
                if value.is_graph_output() or any(user not in inside for user, _ in value.uses()):
                    return value
        return None


class Pattern(abc.ABC):
    """Something that a value can match."""

    @abc.abstractmethod
    def match(self, value: ir.Value | None, so_far: Match) -> Iterator[Match]:
        """Yield every extension of `so_far` under which `value` matches."""


@dataclass(frozen=True)
class Variable(Pattern):
    """Any value; the same one wherever the name stands. `constant` admits only constants."""

    name: str
    constant: bool = False

    def match(self, value: ir.Value | None, so_far: Match) -> Iterator[Match]:
        """See `Pattern.match`."""
        if value is None or (self.constant and constant_of(value) is None):
            return
        bound = so_far.values.get(self.name)
        if bound is None:
            yield replace(so_far, values={**so_far.values, self.name: value})
        elif bound is value:
            yield so_far


@dataclass(frozen=True)
class Scalar(Pattern):
    """A constant with one element, near `number` when that is given; bound to `name`."""

    number: float | None = None
    name: str = ""
    tolerance: float = 1e-3

    def match(self, value: ir.Value | None, so_far: Match) -> Iterator[Match]:
        """See `Pattern.match`."""
        found = scalar_of(value)
        if found is None or value is None:
            return
        if self.number is not None and not np.isclose(found, self.number, rtol=self.tolerance):
            return
        yield replace(so_far, values={**so_far.values, self.name: value}) if self.name else so_far


@dataclass(frozen=True)
class Op(Pattern):
    """The first output of a node with this operator and these inputs.

    Attributes:
        op_type: Operator name.
        inputs: Patterns of the inputs. Further inputs of the node must be absent, unless `rest`.
        name: Name under which `Match.named` offers the node.
        rest: More inputs may follow (axes given as an input, for instance).
        domain: Operator domain.
        attributes: Attributes that the node must have, with these values.
    """

    op_type: str
    inputs: tuple[Pattern, ...]
    name: str = ""
    rest: bool = False
    domain: str = ""
    attributes: tuple[tuple[str, Any], ...] = ()

    def match(self, value: ir.Value | None, so_far: Match) -> Iterator[Match]:
        """See `Pattern.match`."""
        node = value.producer() if value is not None else None
        if node is None or value is not node.outputs[0]:
            return
        yield from self._match_node(node, so_far)

    def find(self, root: ir.Node) -> Iterator[Match]:
        """Yield every match that ends in `root`."""
        yield from self._match_node(root, Match())

    def _match_node(self, node: ir.Node, so_far: Match) -> Iterator[Match]:
        if node.op_type != self.op_type or not _same_domain(node.domain, self.domain):
            return
        if not all(_has(node, name, value) for name, value in self.attributes):
            return
        given = list(node.inputs)
        if len(given) < len(self.inputs) or (len(given) > len(self.inputs) and not self.rest):
            return
        orders: list[Sequence[Pattern]] = [self.inputs]
        if self.op_type in COMMUTATIVE and len(self.inputs) == 2:
            orders.append(self.inputs[::-1])
        for order in orders:
            for found in _match_all(order, given, so_far):
                named = {**found.named, self.name: node} if self.name else found.named
                nodes = found.nodes if node in found.nodes else (*found.nodes, node)
                yield replace(found, nodes=nodes, named=named)


@dataclass(frozen=True)
class OneOf(Pattern):
    """Any of several patterns, the first ones preferred."""

    choices: tuple[Pattern, ...]

    def match(self, value: ir.Value | None, so_far: Match) -> Iterator[Match]:
        """See `Pattern.match`."""
        for choice in self.choices:
            yield from choice.match(value, so_far)


@dataclass(frozen=True)
class Absent(Pattern):
    """An optional input that is left out."""

    def match(self, value: ir.Value | None, so_far: Match) -> Iterator[Match]:
        """See `Pattern.match`."""
        if value is None:
            yield so_far


def var(name: str) -> Variable:
    """Any value."""
    return Variable(name)


def const(name: str) -> Variable:
    """Any constant."""
    return Variable(name, constant=True)


def scalar(number: float | None = None, name: str = "", tolerance: float = 1e-3) -> Scalar:
    """A constant with one element, near `number` when given (relative tolerance)."""
    return Scalar(number, name, tolerance)


def op(op_type: str, *inputs: Pattern, name: str = "", rest: bool = False) -> Op:
    """A node; see `Op`."""
    return Op(op_type, inputs, name, rest)


def one_of(*choices: Pattern) -> OneOf:
    """Any of several patterns."""
    return OneOf(choices)


def constant_of(value: ir.Value | None) -> ir.TensorProtocol | None:
    """Return the tensor of an initializer or of a Constant node, else None.

    An initializer that is also a graph input is a constant (D25).
    """
    if value is None:
        return None
    return ir.convenience.get_const_tensor(value)


def array_of(value: ir.Value | None, max_elements: int = 1 << 16) -> Array | None:
    """Return a small constant as an array; None when it is no constant or larger than that."""
    tensor = constant_of(value)
    if tensor is None or tensor.size > max_elements:
        return None
    return tensor.numpy()


def ints_of(value: ir.Value | None, max_elements: int = 1 << 16) -> list[int] | None:
    """Return a small integer constant of any rank as a flat list; None when it is none."""
    array = array_of(value, max_elements)
    if array is None or array.dtype.kind not in "iu":
        return None
    return [int(number) for number in array.flat]


def scalar_of(value: ir.Value | None) -> float | None:
    """Return the number of a constant with exactly one element, of any rank."""
    array = array_of(value, max_elements=1)
    if array is None or array.size != 1 or array.dtype.kind not in "fiuV":
        return None
    return float(array.astype(np.float64).reshape(()))


def _same_domain(one: str, other: str) -> bool:
    return one == other or {one, other} == {"", "ai.onnx"}


def _has(node: ir.Node, name: str, value: Any) -> bool:
    """Say whether a node has an attribute of that value; lists are compared as a whole."""
    attribute = node.attributes.get(name)
    if attribute is None or attribute.is_ref():
        return False
    found = attribute.value
    if isinstance(value, (int, float)) and isinstance(found, (int, float)):
        return bool(np.isclose(found, value, rtol=1e-6, atol=0))
    if isinstance(value, (list, tuple)) and isinstance(found, (list, tuple)):
        return list(found) == list(value)
    return bool(found == value)


def _match_all(
    patterns: Sequence[Pattern], values: Sequence[ir.Value | None], so_far: Match
) -> Iterator[Match]:
    if not patterns:
        yield so_far
        return
    for found in patterns[0].match(values[0], so_far):
        yield from _match_all(patterns[1:], values[1:], found)
