"""Which of many choices break a threshold: delta debugging over what was done to a model.

A choice is one thing that can be done or left alone: a pass, one layer in float16, one quantized
layer. Leaving sets of choices out and building again finds a minimal set that still fails: none of
its members can be left out.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, TypeAlias

from cannc.compiler.core.errors import CanncError, UsageError
from cannc.compiler.core.runner import Array
from cannc.compiler.core.unit import CompileUnit
from cannc.compiler.runtime.dtypes import infer_types
from cannc.compiler.runtime.host_session import HostSession
from cannc.golden.grades import grades
from cannc.golden.metrics import measure
from cannc.golden.report import Tally
from cannc.golden.verdict import Grade, Thresholds

log = logging.getLogger(__name__)

Kind = Literal["pass", "fp16", "quant"]


@dataclass(frozen=True, order=True)
class Choice:
    """One thing that was done.

    Attributes:
        kind: ``pass``: a pass ran. ``fp16``: an original node is float16. ``quant``: the weight of
            an original node is quantized.
        name: Name of the pass or of the original node.
    """

    kind: Kind
    name: str

    def __str__(self) -> str:
        return f"{self.kind}:{self.name}"


Rebuild: TypeAlias = "Callable[[frozenset[Choice]], CompileUnit]"
"""Builds the model with only these choices taken."""


@dataclass(frozen=True)
class Found:
    """What the search found.

    Attributes:
        choices: The minimal set, in order; empty when the model passes with everything done.
        trials: How many builds were judged.
        complete: False when the search ended at its limit; the set may then be larger than needed.
        unusable: Sets that could not be built or run, and why; they count as passing.
    """

    choices: tuple[Choice, ...]
    trials: int
    complete: bool = True
    unusable: tuple[str, ...] = ()


@dataclass
class Judge:
    """Tells whether a candidate misses a threshold at a graph output.

    Attributes:
        golden: The original.
        samples: What to feed.
        bounds: When a difference is too large.
    """

    golden: CompileUnit
    samples: Sequence[Mapping[str, Array]]
    bounds: Thresholds = field(default_factory=Thresholds)

    def __post_init__(self) -> None:
        session = HostSession(self.golden.model, half="widen", fuse=False)
        self._expected = [session.run(feeds) for feeds in self.samples]

    def fails(self, candidate: CompileUnit) -> bool:
        """Run a candidate on all samples."""
        infer_types(candidate.model)
        grade = grades(candidate.model)
        session = HostSession(candidate.model)
        return any(
            not self._passes(name, array, actual.get(name), grade.get(name, Grade.FLOAT32))
            for feeds, expected in zip(self.samples, self._expected, strict=True)
            for actual in [session.run(feeds)]
            for name, array in expected.items()
        )

    def _passes(self, name: str, golden: Array, actual: Array | None, grade: Grade) -> bool:
        if actual is None or actual.shape != golden.shape:
            return False
        tally = Tally(grade, self.bounds.of_layer(name))
        return tally.add(measure(golden, actual, half=grade > Grade.FLOAT32)).passed


def bisect(
    choices: Iterable[Choice],
    rebuild: Rebuild,
    fails: Callable[[CompileUnit], bool],
    *,
    max_trials: int = 300,
) -> Found:
    """Find a minimal set of choices that fails.

    Args:
        choices: All choices, in the order in which they are made.
        rebuild: Builds the model with some of them.
        fails: Judges a build, e.g. `Judge.fails`.
        max_trials: Builds after which the search ends with the smallest set so far.

    Raises:
        UsageError: ``BIS001`` the model fails with nothing done.
    """
    every = list(dict.fromkeys(choices))
    search = _Search(rebuild, fails, max_trials)
    if not search.fails(every):
        return Found((), search.trials, unusable=tuple(search.unusable))
    if search.fails([]):
        raise UsageError(
            "BIS001",
            "the threshold is missed with every choice left out",
            why="what is left is the original with what the target needs at any level",
            fix="loosen the threshold, or compare the original with itself to see what is wrong",
        )
    smallest, complete = search.minimize(every)
    return Found(tuple(smallest), search.trials, complete, tuple(search.unusable))


class _Search:
    def __init__(
        self, rebuild: Rebuild, fails: Callable[[CompileUnit], bool], max_trials: int
    ) -> None:
        self._rebuild, self._fails, self._max_trials = rebuild, fails, max_trials
        self._known: dict[frozenset[Choice], bool] = {}
        self.trials = 0
        self.unusable: list[str] = []

    def fails(self, choices: Iterable[Choice]) -> bool:
        chosen = frozenset(choices)
        if chosen not in self._known:
            self.trials += 1
            self._known[chosen] = self._try(chosen)
            log.info("trial %d: %d choices, %s", self.trials, len(chosen), self._known[chosen])
        return self._known[chosen]

    def _try(self, chosen: frozenset[Choice]) -> bool:
        try:
            return self._fails(self._rebuild(chosen))
        except CanncError as error:
            # Some sets make no model, e.g. without a cure that a later pass relies on.
            self.unusable.append(f"{len(chosen)} choices: {error.what}")
            return False

    def minimize(self, choices: list[Choice]) -> tuple[list[Choice], bool]:
        """Return a smallest set by delta debugging, and whether the search came to its end."""
        parts = 2
        while len(choices) > 1:
            smaller = self._smaller(choices, parts)
            if self.trials >= self._max_trials:
                return smaller[0] if smaller else choices, False
            if smaller is not None:
                choices, parts = smaller
            elif parts >= len(choices):
                break
            else:
                parts = min(2 * parts, len(choices))
        return choices, True

    def _smaller(self, choices: list[Choice], parts: int) -> tuple[list[Choice], int] | None:
        """Return a subset that fails, and into how many parts to cut it next."""
        chunks = [
            choices[len(choices) * i // parts : len(choices) * (i + 1) // parts]
            for i in range(parts)
        ]
        for chunk in chunks:
            if self.trials < self._max_trials and self.fails(chunk):
                return chunk, 2
        for chunk in chunks if parts > 2 else ():
            rest = [choice for choice in choices if choice not in chunk]
            if self.trials < self._max_trials and self.fails(rest):
                return rest, max(parts - 1, 2)
        return None
