"""Runs passes in order: checks the graph after each one, takes the time, writes the history."""

from __future__ import annotations

import logging
import time
from collections.abc import Sequence

import onnx_ir as ir

from cannc.compiler.core.errors import add_note
from cannc.compiler.core.graphs import all_graphs
from cannc.compiler.core.runner import Runner
from cannc.compiler.core.target import Target
from cannc.compiler.core.unit import CompileUnit, Stage
from cannc.passes.base import MayUseKernel, Pass, PassContext
from cannc.passes.invariants import Before, check_after
from cannc.passes.registry import load_pass
from cannc.passes.rewrite import Rewriter

log = logging.getLogger(__name__)

MAX_ROUNDS = 12


def run_passes(
    unit: CompileUnit,
    names: Sequence[str],
    *,
    runner: Runner,
    may_use_kernel: MayUseKernel,
    fixpoint: bool = False,
) -> None:
    """Run passes on `unit`, in place; each one that did something leaves a row in ``unit.log``.

    Args:
        unit: A private copy; changed.
        names: Passes by name, in order.
        runner: Runs graphs for passes that need numbers.
        may_use_kernel: See `PassContext`.
        fixpoint: Repeat the sequence until a whole round changes nothing. After `MAX_ROUNDS` it
            ends anyway, with a note in the history.

    Raises:
        PassError: ``PASS010`` a pass broke an invariant.
        UsageError: ``PASS001`` no such pass.
    """
    passes = [load_pass(name) for name in names]
    run = _Run(unit, runner, may_use_kernel)
    unchanged = 0
    for index, current in enumerate(passes * (MAX_ROUNDS if fixpoint else 1)):
        if fixpoint and unchanged == len(passes):
            return
        stage = run.one(current)
        unchanged = 0 if stage.applied else unchanged + 1
        if index < len(passes) or stage.applied:
            unit.log.append(stage)
    if fixpoint and passes and unchanged < len(passes):
        _report_endless(unit, names)


def count_nodes(model: ir.Model) -> int:
    """Return the number of nodes of the main graph and all graphs nested in it."""
    return sum(graph.num_nodes() for _, graph in all_graphs(model.graph))


class _Run:
    """One call of `run_passes`; keeps what it knows of the graph while that does not change."""

    def __init__(self, unit: CompileUnit, runner: Runner, may_use_kernel: MayUseKernel) -> None:
        self._unit = unit
        self._runner = runner
        self._may_use_kernel = may_use_kernel
        self._look(Before.of(unit.model))

    def _look(self, before: Before) -> None:
        self._before = before
        kinds = [node.op_type for node in self._unit.model.graph.all_nodes()]
        self._nodes, self._op_types = len(kinds), frozenset(kinds)
        self._rewriter = Rewriter(self._unit.model, self._unit.provenance, "")

    def one(self, current: Pass) -> Stage:
        """Run one pass and check what it left behind."""
        started = time.perf_counter()
        unit, rewriter, nodes_before = self._unit, self._rewriter, self._nodes
        rewriter.pass_name = current.name
        target = unit.target or Target()
        ctx = PassContext(unit.model, rewriter, target, self._runner, self._may_use_kernel)
        try:
            if current.op_types is None or current.op_types & self._op_types:
                current.run(ctx)
            if rewriter.unordered:
                unit.model.graph.sort()
            if rewriter.applied:
                self._look(check_after(current.name, unit, self._before))
        except Exception as error:
            add_note(error, f"while running pass '{current.name}'")
            raise
        stage = Stage(
            name=current.name,
            applied=rewriter.applied,
            nodes_before=nodes_before,
            nodes_after=self._nodes,
            seconds=time.perf_counter() - started,
            refusals=tuple(str(refusal) for refusal in ctx.refusals),
            notes=tuple(ctx.notes),
        )
        log.debug("%s: %d applied, %.3f s", stage.name, stage.applied, stage.seconds)
        return stage


def _report_endless(unit: CompileUnit, names: Sequence[str]) -> None:
    text = f"{', '.join(names)} still changed the graph after {MAX_ROUNDS} rounds"
    log.warning("%s", text)
    last = unit.log[-1]
    unit.log[-1] = Stage(**{**vars(last), "notes": (*last.notes, text)})
