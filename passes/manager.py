"""Runs passes in order: checks the graph after each one, takes the time, writes the history."""

from __future__ import annotations

import logging
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace

import onnx_ir as ir

from cannc.compiler.core.errors import PassError, UsageError, add_note
from cannc.compiler.core.graphs import all_graphs
from cannc.compiler.core.runner import Runner
from cannc.compiler.core.target import Target
from cannc.compiler.core.unit import CompileUnit, Stage
from cannc.passes.base import MayUseKernel, Pass, PassContext
from cannc.passes.guard import Guard, describe
from cannc.passes.invariants import Before, check_after
from cannc.passes.registry import load_pass
from cannc.passes.rewrite import Rewriter

log = logging.getLogger(__name__)

MAX_ROUNDS = 12


@dataclass(frozen=True)
class Services:
    """What passes get besides the model; see `PassContext`.

    Attributes:
        runner: Runs graphs for passes that need numbers.
        may_use_kernel: Asks the operator tables for a fused operator's kernel.
        guard: Undoes passes that change numbers; None trusts them.
        explain: Look for the nearest miss where no pattern matches.
    """

    runner: Runner
    may_use_kernel: MayUseKernel
    guard: Guard | None = None
    explain: bool = False


def run_passes(
    unit: CompileUnit,
    names: Sequence[str | Pass],
    *,
    runner: Runner,
    may_use_kernel: MayUseKernel,
    fixpoint: bool = False,
    guard: Guard | None = None,
    explain: bool = False,
) -> None:
    """Run passes on `unit`, in place; each one that did something leaves a row in ``unit.log``.

    Args:
        unit: A private copy; changed.
        names: Passes, by name or ready made, in order.
        runner: See `Services`.
        may_use_kernel: See `Services`.
        fixpoint: Repeat the sequence until a whole round changes nothing. After `MAX_ROUNDS` it
            ends anyway, with a note in the history.
        guard: See `Services`.
        explain: See `Services`.

    Raises:
        PassError: ``PASS010`` a pass broke an invariant.
        UsageError: ``PASS001`` no such pass.
        GoldenMismatchError: ``OPT003``, see `Guard.roll_back`.
    """
    broken = guard.broken if guard is not None else set()
    loaded = [load_pass(entry) if isinstance(entry, str) else entry for entry in names]
    passes = [current for current in loaded if current.name not in broken]
    run = _Run(unit, Services(runner, may_use_kernel, guard, explain))
    unchanged = 0
    for index, current in enumerate(passes * (MAX_ROUNDS if fixpoint else 1)):
        if fixpoint and unchanged == len(passes):
            return
        if current.name in broken:
            unchanged += 1
            continue
        stage = run.one(current)
        unchanged = 0 if stage.applied else unchanged + 1
        if index < len(passes) or stage.applied or stage.rolled_back:
            unit.log.append(stage)
    if fixpoint and passes and unchanged < len(passes):
        _report_endless(unit, [current.name for current in passes])


def count_nodes(model: ir.Model) -> int:
    """Return the number of nodes of the main graph and all graphs nested in it."""
    return sum(graph.num_nodes() for _, graph in all_graphs(model.graph))


class _Run:
    """One call of `run_passes`; keeps what it knows of the graph while that does not change."""

    def __init__(self, unit: CompileUnit, services: Services) -> None:
        self._unit = unit
        self._services = services
        self._look(Before.of(unit.model))

    def _look(self, before: Before) -> None:
        self._before = before
        kinds = [node.op_type for node in self._unit.model.graph.all_nodes()]
        self._nodes, self._op_types = len(kinds), frozenset(kinds)
        self._rewriter = Rewriter(self._unit.model, self._unit.provenance, "")

    def one(self, current: Pass) -> Stage:
        """Run one pass and check what it left behind."""
        started = time.perf_counter()
        unit, rewriter, services = self._unit, self._rewriter, self._services
        nodes_before = self._nodes
        rewriter.pass_name = current.name
        ctx = PassContext(
            unit.model,
            rewriter,
            unit.target or Target(),
            services.runner,
            services.may_use_kernel,
            explain=services.explain,
        )
        problem = ""
        if current.op_types is None or current.op_types & self._op_types:
            problem = self._guarded(current, ctx)
        stage = Stage(
            name=current.name,
            applied=0 if problem else rewriter.applied,
            nodes_before=nodes_before,
            nodes_after=self._nodes,
            seconds=time.perf_counter() - started,
            refusals=tuple(str(refusal) for refusal in ctx.refusals),
            notes=() if problem else tuple(ctx.notes),
            rolled_back=problem,
            rewrites=() if problem else tuple(rewriter.rewrites),
        )
        log.debug("%s: %d applied, %.3f s", stage.name, stage.applied, stage.seconds)
        return stage

    def _guarded(self, current: Pass, ctx: PassContext) -> str:
        """Run a pass; return why it was undone, or ``""``."""
        guard = self._services.guard
        if guard is None:
            try:
                self._apply(current, ctx)
            except PassError as error:
                if current.ours:
                    raise
                raise _broken_rule(current, error) from error
            return ""
        guard.save(self._unit)
        try:
            self._apply(current, ctx)
            problem = guard.accept(self._unit, current) if ctx.rewriter.applied else None
        except UsageError:
            raise  # a rule of the user that raises is theirs to correct
        except Exception as error:
            # Whatever a pass does, the model that it got is still there; the history tells.
            log.debug("pass '%s' failed", current.name, exc_info=True)
            problem = describe(error)
        if problem is None:
            return ""
        guard.roll_back(self._unit, current, problem)
        self._look(Before.of(self._unit.model))
        return problem

    def _apply(self, current: Pass, ctx: PassContext) -> None:
        try:
            current.run(ctx)
            if ctx.rewriter.unordered:
                self._unit.model.graph.sort()
            if ctx.rewriter.applied:
                self._look(check_after(current.name, self._unit, self._before))
        except Exception as error:
            add_note(error, f"while running pass '{current.name}'")
            raise


def _broken_rule(current: Pass, error: PassError) -> UsageError:
    what = f"rule '{current.name}' broke the graph"
    fix = "correct the rule; with --verify each it is undone"
    return UsageError("RULE003", what, where=error.where or error.what, fix=fix)


def _report_endless(unit: CompileUnit, names: Sequence[str]) -> None:
    text = f"{', '.join(names)} still changed the graph after {MAX_ROUNDS} rounds"
    log.warning("%s", text)
    last = unit.log[-1]
    unit.log[-1] = replace(last, notes=(*last.notes, text))
