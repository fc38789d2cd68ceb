"""A user's rule as a pass."""

from __future__ import annotations

import inspect
import traceback
from collections.abc import Callable
from typing import Any, ClassVar

import onnx_ir as ir

from cannc.compiler.core.errors import CanncError, UsageError
from cannc.passes.base import Numerics, Pass, PassContext
from cannc.passes.fusion.base import choose, dtype_of, kernel_problem
from cannc.passes.fusion.npu_ops import NPU_DOMAIN, use_npu_op
from cannc.passes.pattern import Match, Op, var
from cannc.passes.rewrite import scoped_nodes
from cannc.passes.rules.builder import NodeBuilder, PatternBuilder

Condition = Callable[..., "bool | str | None"]


class Rule(Pass):
    """One rewrite: pattern, replacement, condition. Made by `rule`.

    Attributes:
        name: ``rule-`` and the name of the variable that holds it; set by the loader.
    """

    summary: ClassVar[str] = "a rewrite rule of the user"
    ours: ClassVar[bool] = False

    def __init__(
        self,
        pattern: Op,
        parameters: tuple[str, ...],
        replacement: Callable[..., Any],
        condition: Condition | None,
        numerics: Numerics,
    ) -> None:
        self.name = "rule"  # type: ignore[misc]
        self.numerics = numerics  # type: ignore[misc]
        self._pattern, self._parameters = pattern, parameters
        self._replacement, self._condition = replacement, condition

    def run(self, ctx: PassContext) -> None:
        """See `Pass.run`. The last nodes come first, so that the longest form wins.

        Raises:
            UsageError: ``RULE002`` a function of the rule raised.
        """
        for scoped in reversed(scoped_nodes(ctx.model)):
            node = scoped.node
            if node.graph is None or node.op_type != self._pattern.op_type:
                continue
            match = choose(ctx, [self._pattern], node, self._problem)
            if match is not None:
                self._rewrite(ctx, match)

    def _problem(self, match: Match) -> str | None:
        if self._condition is None:
            return None
        found = self._call(self._condition, match)
        if isinstance(found, str):
            return found
        return None if found else "the rule's condition does not hold"

    def _rewrite(self, ctx: PassContext, match: Match) -> None:
        (result,) = match.root.outputs
        builder = NodeBuilder(ctx.rewriter, result)
        value = self._call(self._replacement, match, builder)
        if not isinstance(value, ir.Value):
            what = f"rule '{self.name}' returned a {type(value).__name__}, not a value"
            raise UsageError("RULE002", what, where=f"node {match.root.name}")
        gap = _kernel_gap(ctx, builder, match)
        if gap is not None:
            ctx.rewriter.discard(builder.made)
            ctx.refuse(match.root, gap)
            return
        ctx.rewriter.replace(match.nodes, builder.made, {result: value})
        for op_type in {node.op_type for node in builder.made if node.domain == NPU_DOMAIN}:
            use_npu_op(ctx.model, op_type)

    def _call(self, function: Callable[..., Any], match: Match, *first: Any) -> Any:
        values = {name: match.values[name] for name in self._parameters if name in match.values}
        try:
            return function(*first, **values)
        except CanncError:
            raise
        except Exception as error:
            frame = traceback.extract_tb(error.__traceback__)[-1]
            raise UsageError(
                "RULE002",
                f"rule '{self.name}' raised {type(error).__name__}: {error}",
                where=f"{frame.filename}:{frame.lineno}, at node {match.root.name}",
                fix="correct the rule; nothing was written",
            ) from error


def rule(
    pattern: Callable[..., Any],
    replacement: Callable[..., Any],
    *,
    condition: Condition | None = None,
    lossy: bool = False,
) -> Rule:
    """Return a rule; see `cannc.passes.rules`.

    Args:
        pattern: ``f(op, x, ...)`` that returns the expression to look for.
        replacement: ``f(op, x, ...)`` with the same parameters.
        condition: ``f(x, ...)`` that may refuse a match.
        lossy: The numbers may change as much as float16 changes them.

    Raises:
        TypeError: the functions do not fit together.
    """
    _, *parameters = inspect.signature(pattern).parameters
    wanted = [*inspect.signature(replacement).parameters][1:]
    if wanted != parameters:
        msg = f"the replacement takes {wanted}, the pattern {parameters}"
        raise TypeError(msg)
    found = pattern(PatternBuilder(), **{name: var(name) for name in parameters})
    if not isinstance(found, Op):
        msg = "the pattern does not end in an operator"
        raise TypeError(msg)
    numerics = Numerics.LOSSY if lossy else Numerics.REASSOCIATED
    return Rule(found, tuple(parameters), replacement, condition, numerics)


def _kernel_gap(ctx: PassContext, builder: NodeBuilder, match: Match) -> str | None:
    dtype = dtype_of(match.root.outputs[0])
    fused = [node.op_type for node in builder.made if node.domain == NPU_DOMAIN]
    gaps = (kernel_problem(ctx, op_type, dtype) for op_type in fused)
    return next((gap for gap in gaps if gap is not None), None)
