"""Einsum written with Transpose, Reshape, MatMul, Mul and ReduceSum; the device has no kernel.

Before:  Einsum<"bhid,bhjd->bhij">(q, k)
After:   MatMul(q, Transpose(k))

One operand after the other is multiplied to the product so far. Of two operands, labels are

- *batch*: in both, and needed later      - *inner*: in both, needed no more: summed by MatMul
- *rows*, *columns*: in the left or the right one only

and ``[batch, rows, inner] x [batch, inner, columns]`` is a MatMul once the labels of each part are
merged by a Reshape. Without inner labels it is a Mul of operands with axes of size 1. Labels of
one operand that nothing needs are summed first; repeated ones (``ii``) are taken from the diagonal.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import onnx_ir as ir

from cannc.compiler.core.shapes import rank
from cannc.passes.base import Numerics, PassContext
from cannc.passes.legalize.base import Cure
from cannc.passes.opset.edit import Edit

Labels = tuple[str, ...]


class _UnsayableError(Exception):
    """The sizes that a Reshape needs are not known."""


@dataclass
class _Term:
    """A value and the label of each of its axes."""

    value: ir.Value
    labels: Labels


class DecomposeEinsum(Cure):
    """See the module."""

    name = "decompose-einsum"
    summary = "Einsum -> Transpose, Reshape, MatMul, Mul, ReduceSum"
    numerics = Numerics.REASSOCIATED
    op_types = frozenset({"Einsum"})

    def cure(self, ctx: PassContext, node: ir.Node) -> None:
        """Multiply one operand after the other; ranks, and sizes to merge, must be known."""
        if any(value is None or rank(value) is None for value in node.inputs):
            ctx.refuse(node, "the rank of an operand is unknown")
            return
        edit = Edit(ctx, node)
        plan = _Plan(edit)
        try:
            plan.run()
        except _UnsayableError as error:
            ctx.rewriter.discard(plan.nodes)
            ctx.refuse(node, str(error))
        else:
            edit.put(plan.nodes)


class _Plan:
    """The nodes that stand for one Einsum."""

    def __init__(self, edit: Edit) -> None:
        self._edit = edit
        self.nodes: list[ir.Node] = []
        self._sizes: dict[str, int | None] = {}

    def run(self) -> None:
        """Make the nodes; the last one computes the result."""
        terms, result = _parse(self._edit)
        for term in terms:
            self._learn(term)
        product = self._without_repeats(terms[0])
        for index, term in enumerate(terms[1:], start=1):
            later = {label for t in terms[index + 1 :] for label in t.labels} | set(result)
            product = self._multiply(product, self._without_repeats(term), later)
        product = self._reduce(product, set(result))
        product = self._transpose(product, result)
        if not self.nodes:
            self._add("Identity", product, product.labels)

    def _learn(self, term: _Term) -> None:
        for label, dim in zip(term.labels, term.value.shape or (), strict=True):
            size = dim if isinstance(dim, int) else None
            known = self._sizes.get(label, 1)
            if size is not None and known is not None and 1 not in (size, known) and size != known:
                msg = f"label '{label}' stands for sizes {known} and {size}"
                raise _UnsayableError(msg)
            if known == 1 or (known is None and size not in (None, 1)):
                self._sizes[label] = size

    def _add(
        self, op_type: str, term: _Term, labels: Labels, *more: ir.Value, **attributes: object
    ) -> _Term:
        node = self._edit.make(op_type, term.value, *more, attributes=attributes)
        self.nodes.append(node)
        return _Term(node.outputs[0], labels)

    def _without_repeats(self, term: _Term) -> _Term:
        """``ii`` -> the diagonal: merge the two axes and take every (n + 1)-th element."""
        for label in dict.fromkeys(term.labels):
            while term.labels.count(label) > 1:
                size = self._size([label])
                at = [i for i, other in enumerate(term.labels) if other == label][:2]
                rest = [i for i in range(len(term.labels)) if i not in at]
                order = [*rest, *at]
                labels = tuple(term.labels[i] for i in rest)
                term = self._add("Transpose", term, (), perm=order)
                shape = self._edit.constant([0] * len(rest) + [size * size])
                term = self._add("Reshape", term, (), shape)
                numbers = (0, size * size, len(rest), size + 1)
                bounds = [self._edit.constant([number]) for number in numbers]
                term = self._add("Slice", term, (*labels, label), *bounds)
        return term

    def _multiply(self, left: _Term, right: _Term, later: set[str]) -> _Term:
        left = self._reduce(left, later | set(right.labels))
        right = self._reduce(right, later | set(left.labels))
        shared = [label for label in left.labels if label in right.labels]
        inner = [label for label in shared if label not in later]
        batch = [label for label in shared if label in later]
        rows = [label for label in left.labels if label not in shared]
        columns = [label for label in right.labels if label not in shared]
        if not inner:
            order = (*left.labels, *columns)
            one, two = self._spread(left, order), self._spread(right, order)
            return self._add("Mul", one, order, two.value)
        one = self._merge(self._transpose(left, (*batch, *rows, *inner)), batch, rows, inner)
        two = self._merge(self._transpose(right, (*batch, *inner, *columns)), batch, inner, columns)
        product = self._add("MatMul", one, (), two.value)
        if len(rows) == len(columns) == 1:
            return _Term(product.value, (*batch, *rows, *columns))
        sizes = self._open([*rows, *columns])
        shape = self._edit.constant([0] * len(batch) + sizes)
        return self._add("Reshape", product, (*batch, *rows, *columns), shape)

    def _merge(
        self, term: _Term, batch: Sequence[str], first: Sequence[str], second: Sequence[str]
    ) -> _Term:
        """Make one axis of each of two groups that follow the batch axes."""
        if len(first) == len(second) == 1:
            return term
        groups = [self._product(first), self._product(second)]
        if None in groups and groups[0] is groups[1]:
            msg = f"the sizes of labels {', '.join([*first, *second])} are not known"
            raise _UnsayableError(msg)
        sizes = [-1 if size is None else size for size in groups]
        return self._add("Reshape", term, (), self._edit.constant([0] * len(batch) + sizes))

    def _reduce(self, term: _Term, needed: set[str]) -> _Term:
        axes = [i for i, label in enumerate(term.labels) if label not in needed]
        if not axes:
            return term
        labels = tuple(label for label in term.labels if label in needed)
        return self._add("ReduceSum", term, labels, self._edit.constant(axes), keepdims=0)

    def _transpose(self, term: _Term, order: Sequence[str]) -> _Term:
        if tuple(order) == term.labels:
            return term
        perm = [term.labels.index(label) for label in order]
        return self._add("Transpose", term, tuple(order), perm=perm)

    def _spread(self, term: _Term, order: Labels) -> _Term:
        """Bring to an order with axes of size 1 for labels that the term lacks."""
        term = self._transpose(term, [label for label in order if label in term.labels])
        axes = [i for i, label in enumerate(order) if label not in term.labels]
        return self._add("Unsqueeze", term, order, self._edit.constant(axes)) if axes else term

    def _product(self, labels: Sequence[str]) -> int | None:
        total = 1
        for label in labels:
            size = self._sizes[label]
            if size is None:
                return None
            total *= size
        return total

    def _size(self, labels: Sequence[str]) -> int:
        size = self._product(labels)
        if size is None:
            msg = f"the size of label {labels[0]} is not known"
            raise _UnsayableError(msg)
        return size

    def _open(self, labels: Sequence[str]) -> list[int]:
        """Return sizes for a Reshape, in which a single one may be open."""
        sizes = [self._sizes[label] for label in labels]
        if sizes.count(None) > 1:
            msg = f"more than one size of labels {', '.join(labels)} is not known"
            raise _UnsayableError(msg)
        return [-1 if size is None else size for size in sizes]


def _parse(edit: Edit) -> tuple[list[_Term], Labels]:
    """Return operands and result with one label per axis; ``...`` becomes labels of its own."""
    equation = edit.node.attributes["equation"].as_string().replace(" ", "")
    left, arrow, right = equation.partition("->")
    texts = left.split(",")
    terms, longest = [], 0
    for text, value in zip(texts, edit.node.inputs, strict=True):
        assert value is not None
        hidden = (rank(value) or 0) - len(text.replace("...", ""))
        longest = max(longest, hidden)
        terms.append(_Term(value, _expand(text, hidden)))
    if arrow:
        return terms, _expand(right, longest)
    counts = left.replace("...", "").replace(",", "")
    once = sorted(label for label in set(counts) if counts.count(label) == 1)
    return terms, (*_expand("..." if "..." in left else "", longest), *once)


def _expand(text: str, hidden: int) -> Labels:
    before, dots, after = text.partition("...")
    inside = tuple(f"...{index}" for index in range(hidden, 0, -1)) if dots else ()
    return (*before, *inside, *after)
