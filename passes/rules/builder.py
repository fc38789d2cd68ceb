"""The ``op`` that functions of a rule get: it makes patterns, or new nodes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import onnx_ir as ir

from cannc.passes.fusion.base import dtype_of, near
from cannc.passes.pattern import Absent, Op, Pattern
from cannc.passes.rewrite import Rewriter


class PatternBuilder:
    """``op.Mul(x, 2.0)`` is a pattern of that expression."""

    def __getattr__(self, op_type: str) -> Callable[..., Op]:
        """Return what makes patterns of an operator."""

        def make(*inputs: Pattern | float | None, _domain: str = "", **attributes: Any) -> Op:
            found = tuple(map(_as_pattern, inputs))
            return Op(op_type, found, domain=_domain, attributes=tuple(attributes.items()))

        return make


@dataclass
class NodeBuilder:
    """``op.Mul(x, 2.0)`` is the output of a new node.

    Attributes:
        rewriter: Makes the nodes.
        like: The value that will be replaced; constants get its dtype where none is nearer.
        made: The nodes so far, in order.
    """

    rewriter: Rewriter
    like: ir.Value
    made: list[ir.Node] = field(default_factory=list)

    def __getattr__(self, op_type: str) -> Callable[..., Any]:
        """Return what makes nodes of an operator; with ``_outputs=n`` it returns a tuple."""

        def make(*inputs: Any, _domain: str = "", _outputs: int = 1, **attributes: Any) -> Any:
            dtypes = [dtype_of(v) for v in inputs if isinstance(v, ir.Value)]
            dtype = next(iter([d for d in (*dtypes, dtype_of(self.like)) if d is not None]), None)
            values = [self._as_value(given, dtype) for given in inputs]
            node = self.rewriter.node(
                op_type, values, attributes, domain=_domain, num_outputs=_outputs
            )
            self.made.append(node)
            return node.outputs[0] if _outputs == 1 else tuple(node.outputs)

        return make

    def _as_value(self, given: Any, dtype: ir.DataType | None) -> ir.Value | None:
        if given is None or isinstance(given, ir.Value):
            return given
        if isinstance(given, np.ndarray):
            return self.rewriter.constant(self.like, given)
        if isinstance(given, (bool, int, float)):
            array = np.array(given, (dtype or ir.DataType.FLOAT).numpy())
            return self.rewriter.constant(self.like, array)
        msg = f"an input cannot be a {type(given).__name__}"
        raise TypeError(msg)


def _as_pattern(given: Pattern | float | None) -> Pattern:
    if given is None:
        return Absent()
    if isinstance(given, Pattern):
        return given
    if isinstance(given, (int, float)):
        return near(float(given))
    msg = f"an input of a pattern cannot be a {type(given).__name__}"
    raise TypeError(msg)
