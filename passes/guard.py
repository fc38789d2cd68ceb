"""Undoes passes that change what a model computes.

After each pass that changed something the model is run (`Verifier`). A pass that breaks its
tolerance, or the graph, or itself, is undone and not tried again; the history names it. A model is
copied only before a pass that follows a change.
"""

from __future__ import annotations

import logging
from typing import Protocol

import onnx_ir as ir

from cannc.compiler.core.errors import CanncError, GoldenMismatchError, PassError
from cannc.compiler.core.unit import CompileUnit
from cannc.passes.base import Numerics, Pass

log = logging.getLogger(__name__)


class Verifier(Protocol):
    """Runs a model and compares."""

    def problem(self, model: ir.Model, numerics: Numerics) -> str | None:
        """Return what a pass with these `numerics` changed that it may not, or None.

        A model without a problem is what the next one is compared with.
        """
        ...


class Guard:
    """Watches over the passes of one optimization.

    Attributes:
        broken: Names of the passes that were undone.
    """

    def __init__(self, verifier: Verifier, *, strict: bool = False) -> None:
        """Args: what compares, and whether a broken pass is an error instead."""
        self.broken: set[str] = set()
        self._verifier, self._strict = verifier, strict
        self._saved: CompileUnit | None = None

    def save(self, unit: CompileUnit) -> None:
        """Remember the model as it is, unless that is known already."""
        if self._saved is None:
            self._saved = unit.copy()

    def accept(self, unit: CompileUnit, current: Pass) -> str | None:
        """Judge what a pass made of the model; return what is wrong with it, if anything."""
        problem = self._verifier.problem(unit.model, current.numerics)
        if problem is None:
            self._saved = None
        return problem

    def roll_back(self, unit: CompileUnit, current: Pass, problem: str) -> None:
        """Put back the model that was saved; the pass will not be tried again.

        Raises:
            GoldenMismatchError: ``OPT003`` when broken passes are errors.
        """
        if self._strict:
            raise GoldenMismatchError(
                "OPT003",
                f"pass '{current.name}' changes what the model computes",
                why=problem,
                fix=f"{_cure(current)}; without --strict it is undone",
            )
        assert self._saved is not None
        unit.model, unit.provenance = self._saved.model, self._saved.provenance
        self._saved = None
        self.broken.add(current.name)
        log.warning("pass '%s' is undone: %s", current.name, problem)


def _cure(current: Pass) -> str:
    return f"leave it out with --passes=-{current.name}" if current.ours else "correct the rule"


def describe(error: Exception) -> str:
    """Return why a pass that raised is undone, in one line."""
    if isinstance(error, PassError):
        return f"it broke the graph: {error.where or error.what}"
    if isinstance(error, CanncError):
        return f"{error.code}: {error.what}" + (f" ({error.why})" if error.why else "")
    return f"it raised {type(error).__name__}: {error}"
