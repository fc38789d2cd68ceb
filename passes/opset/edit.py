"""One node's change of form between two opsets."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx_ir as ir

from cannc.compiler.core.runner import Array
from cannc.passes.base import PassContext

TARGET_OPSET = 18


@dataclass(frozen=True)
class Edit:
    """The node to change, and what is needed to do so."""

    ctx: PassContext
    node: ir.Node

    def input(self, index: int) -> ir.Value | None:
        """Return an input; None when it is absent."""
        return self.node.inputs[index] if index < len(self.node.inputs) else None

    def data(self) -> ir.Value:
        """Return the first input, which operators with data always have."""
        value = self.node.inputs[0]
        assert value is not None
        return value

    def constant(
        self, numbers: Any, dtype: type[np.generic] | np.dtype[Any] = np.int64
    ) -> ir.Value:
        """Return a new constant, named after the node's output."""
        array: Array = np.asarray(numbers, dtype)
        return self.ctx.rewriter.constant(self.node.outputs[0], array)

    def scalar(self, number: float) -> ir.Value:
        """Return a new scalar constant of the dtype of the data."""
        dtype = self.data().dtype
        assert dtype is not None
        return self.constant(number, dtype.numpy())

    def make(
        self,
        op_type: str,
        *inputs: ir.Value | None,
        attributes: Mapping[str, Any] | None = None,
        like: ir.Value | None = None,
    ) -> ir.Node:
        """Return a new node with one output, to be given to `put`."""
        node = self.ctx.rewriter.node(op_type, inputs, attributes, like=like)
        node.metadata_props.update(self.node.metadata_props)
        return node

    def swap(
        self,
        op_type: str,
        inputs: Sequence[ir.Value | None],
        attributes: Mapping[str, Any],
        outputs: int | None = None,
    ) -> None:
        """Put one node of another form in the place of the old one."""
        given = list(inputs)
        while given and given[-1] is None:
            given.pop()
        old = self.node
        count = len(old.outputs) if outputs is None else outputs
        first = old.outputs[0]
        new = self.ctx.rewriter.node(op_type, given, attributes, num_outputs=count, like=first)
        new.metadata_props.update(old.metadata_props)
        new.doc_string = old.doc_string
        values = dict(zip(old.outputs, new.outputs, strict=False))
        for before, after in values.items():
            after.type, after.shape = before.type, before.shape
        self.ctx.rewriter.replace([old], [new], values)

    def put(self, nodes: Sequence[ir.Node]) -> None:
        """Put several nodes in the place of the old one; the last one gives its first output."""
        result = nodes[-1].outputs[0]
        result.type, result.shape = self.node.outputs[0].type, self.node.outputs[0].shape
        self.ctx.rewriter.replace([self.node], nodes, {self.node.outputs[0]: result})

    def without(self, *names: str) -> dict[str, ir.Attr]:
        """Return the node's attributes except some."""
        return {name: a for name, a in self.node.attributes.items() if name not in names}


def never(edit: Edit) -> str | None:
    """The obstacle of an edit that always works."""
    return None


def needs_dtype(edit: Edit) -> str | None:
    """The obstacle of an edit that makes constants of the dtype of the data."""
    return "the dtype of its input is unknown" if edit.data().dtype is None else None


@dataclass(frozen=True)
class Adapter:
    """How to bring an operator over a border between opsets.

    Attributes:
        since: The opset that changed or introduced the operator.
        apply: Makes the change.
        obstacle: Says why it cannot be made, or None; asked before anything is changed.
    """

    since: int
    apply: Callable[[Edit], None]
    obstacle: Callable[[Edit], str | None] = never
