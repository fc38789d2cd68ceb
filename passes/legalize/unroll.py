"""What unrolled Loops and Scans share: copies of a body, one per round, in a row."""

from __future__ import annotations

from collections.abc import Container, Mapping, Sequence

import onnx_ir as ir

from cannc.compiler.core.graphs import walk
from cannc.compiler.core.runner import Array
from cannc.passes.base import PassContext
from cannc.passes.cleanup.fold_constants import evaluate
from cannc.passes.cleanup.purity import is_deterministic
from cannc.passes.pattern import array_of

MOST_NODES = 20_000


class TooDynamicError(Exception):
    """The loop cannot be unrolled; the text says why."""


class Rounds:
    """Copies of a body, made one after the other.

    Attributes:
        copies: Bodies that are connected already.
        open: States that are known to depend on data.
    """

    def __init__(self, node: ir.Node, body: ir.Graph) -> None:
        """Args: the node to unroll and its body."""
        self.copies: list[ir.Graph] = []
        self.open: set[ir.Value] = set()
        self._constants: list[ir.Value] = []
        self._node, self._body = node, body
        self._size = max(sum(1 for _ in walk(body)), 1)

    def expect(self, count: int) -> None:
        """Make sure that so many rounds are not too much.

        Raises:
            TooDynamicError: they are.
        """
        if count * self._size > MOST_NODES:
            msg = f"unrolled it would have more than {MOST_NODES} nodes"
            raise TooDynamicError(msg)

    def add(self, inputs: Sequence[ir.Value]) -> list[ir.Value]:
        """Append a round that reads these values; return what it gives.

        Raises:
            TooDynamicError: the graph would become too large.
        """
        self.expect(len(self.copies) + 1)
        copy = self._body.clone(allow_outer_scope_values=True)
        self.copies.append(copy)
        for formal, actual in zip([*copy.inputs], inputs, strict=True):
            for user, position in [*formal.uses()]:
                user.replace_input_with(position, actual)
            for position, output in enumerate(copy.outputs):
                if output is formal:
                    copy.outputs[position] = actual
        return list(copy.outputs)

    def constant(self, array: Array) -> ir.Value:
        """Return a constant that later rounds may read; `finish` puts it into the graph."""
        tensor = ir.Tensor(array)
        value = ir.Value(
            name=f"{self._node.name}_round",
            type=ir.TensorType(tensor.dtype),
            shape=ir.Shape(array.shape),
            const_value=tensor,
        )
        self._constants.append(value)
        return value

    def finish(
        self,
        ctx: PassContext,
        values: Mapping[ir.Value, ir.Value],
        before: Sequence[ir.Node] = (),
        after: Sequence[ir.Node] = (),
    ) -> None:
        """Put the rounds in the place of the node; see `Rewriter.unroll`."""
        for value in self._constants:
            if value.uses() or value in values.values():
                ctx.rewriter.adopt(value)
        ctx.rewriter.unroll(self._node, self.copies, values, before, after)

    def discard(self) -> None:
        """Let go of all outer values."""
        for copy in self.copies:
            for scoped in walk(copy):
                for index in range(len(scoped.node.inputs)):
                    scoped.node.replace_input_with(index, None)
        self.copies.clear()


def known(
    ctx: PassContext, value: ir.Value | None, open_values: Container[ir.Value] = frozenset()
) -> Array | None:
    """Return the number behind a value that depends on constants only, else None.

    Args:
        ctx: The pass's context.
        value: The value.
        open_values: Values that are known to depend on data; the search ends there.
    """
    array = array_of(value)
    if array is not None or value is None:
        return array
    nodes: dict[ir.Node, None] = {}
    if not _collect(value, ctx.model, nodes, open_values):
        return None
    return evaluate(ctx, list(nodes), [value.producer()])[value]  # type: ignore[list-item]


def _collect(
    value: ir.Value,
    model: ir.Model,
    nodes: dict[ir.Node, None],
    open_values: Container[ir.Value],
) -> bool:
    """Add the nodes that a value needs, in order; False when one cannot be evaluated."""
    if value.const_value is not None:
        return True
    node = value.producer()
    if node is None or value in open_values:
        return False
    if node in nodes:
        return True
    if any(a.type == ir.AttributeType.GRAPH for a in node.attributes.values()):
        return False
    if not is_deterministic(node, model) or "Sequence" in node.op_type:
        return False
    if not all(v is None or _collect(v, model, nodes, open_values) for v in node.inputs):
        return False
    nodes[node] = None
    return True
