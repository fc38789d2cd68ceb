"""The pass protocol: what a pass is, what it gets, and what it reports."""

from __future__ import annotations

import abc
import enum
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import ClassVar, TypeAlias

import onnx_ir as ir

from cannc.compiler.core.provenance import Provenance
from cannc.compiler.core.runner import Runner
from cannc.compiler.core.target import Target
from cannc.passes.rewrite import Rewriter

MayUseKernel: TypeAlias = "Callable[[str, ir.DataType | None], str | None]"


class Numerics(enum.Enum):
    """How far a pass may move numbers; sets the tolerance of its equality test."""

    EXACT = "exact"
    """Bit for bit."""
    REASSOCIATED = "reassociated"
    """The same real-number formula, rounded in another order."""
    LOSSY = "lossy"
    """Numbers change on purpose (precision, quantization)."""


@dataclass(frozen=True)
class Refusal:
    """A place that looked like a match but was left alone.

    Attributes:
        node: Name of the node where the pattern ends.
        reason: Why it was refused, in the reader's terms.
    """

    node: str
    reason: str

    def __str__(self) -> str:
        return f"{self.node}: {self.reason}"


@dataclass
class PassContext:
    """What a pass may use besides the graph.

    Attributes:
        model: The model being rewritten.
        rewriter: The only way to change the graph (see `cannc.passes.rewrite`).
        target: SoC and CANN release that the result is for.
        runner: Runs graphs, for constant folding; see D1 for its numerics.
        may_use_kernel: Asks the operator tables whether a fused op ``(op_type, dtype)`` has a
            kernel on the target; returns the reason when it has not, None when it has.
        refusals: Near misses; append with `refuse`.
        notes: Findings that the user should see; append with `note`.
        explain: Passes should refuse what came near a match, too; costs time.
    """

    model: ir.Model
    rewriter: Rewriter
    target: Target
    runner: Runner
    may_use_kernel: MayUseKernel
    refusals: list[Refusal] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    explain: bool = False

    @property
    def provenance(self) -> Provenance:
        """The record that the rewriter keeps."""
        return self.rewriter.provenance

    def refuse(self, node: ir.Node, reason: str) -> None:
        """Record a near miss."""
        refusal = Refusal(node.name or node.op_type, reason)
        if refusal not in self.refusals:
            self.refusals.append(refusal)

    def note(self, text: str) -> None:
        """Record a finding for the user."""
        self.notes.append(text)


class Pass(abc.ABC):
    """One named rewrite. Stateless between runs; options are constructor arguments.

    Attributes:
        name: Kebab-case, as the command line and the log show it.
        summary: One line for listings.
        numerics: What it may do to numbers.
        op_types: Operators of the default domain without which it has nothing to do; None when it
            looks at all nodes. The manager does not start a pass in vain.
    """

    name: ClassVar[str]
    summary: ClassVar[str]
    numerics: ClassVar[Numerics]
    ours: ClassVar[bool] = True
    op_types: ClassVar[frozenset[str] | None] = None

    @abc.abstractmethod
    def run(self, ctx: PassContext) -> None:
        """Rewrite ``ctx.model`` through ``ctx.rewriter`` until nothing matches any more."""
