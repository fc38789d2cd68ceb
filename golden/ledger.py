"""Collects the figures of one kind of error, row by row and sample by sample."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from cannc.compiler.core.runner import Array
from cannc.golden.align import Pair
from cannc.golden.details import Gallery
from cannc.golden.metrics import measure
from cannc.golden.report import Finding, Tally
from cannc.golden.verdict import Grade, Thresholds


class Ledger:
    """Figures of one kind of error.

    Attributes:
        notes: Row name -> why it has no figures.
        gallery: Histograms of the worst rows.
    """

    def __init__(
        self, pairs: Iterable[Pair], grades: Mapping[str, Grade], bounds: Thresholds
    ) -> None:
        """Args: rows to measure, grade of each candidate value, bounds to judge by."""
        self.gallery = Gallery()
        self._pairs: dict[str, list[Pair]] = {}
        self._tallies: dict[str, Tally] = {}
        self.notes: dict[str, str] = {}
        for pair in pairs:
            value = pair.candidate.name
            self._pairs.setdefault(value, []).append(pair)
            row = pair.row
            own = bounds.of_layer(row.name, row.node, row.module)
            self._tallies[row.name] = Tally(grades.get(value, Grade.FLOAT32), own)

    @property
    def values(self) -> list[str]:
        """Candidate values that are wanted, each once."""
        return [*self._pairs]

    def add(self, results: Iterable[tuple[str, Array]], expected: Mapping[str, Array]) -> None:
        """Add one sample.

        Args:
            results: Candidate value and its array, one at a time.
            expected: Row name -> golden's array in the original layout.
        """
        for value, array in results:
            for pair in self._pairs[value]:
                self._add(pair, expected[pair.row.name], array)

    def finding(self, row: str) -> Finding | None:
        """Return what was found for a row."""
        tally = self._tallies.get(row)
        return tally.finding() if tally else None

    def _add(self, pair: Pair, golden: Array, array: Array) -> None:
        name, perm = pair.row.name, pair.candidate.perm
        if perm is None or len(perm) == array.ndim:
            array = pair.candidate.original(array)
        if array.shape != golden.shape:
            self.notes[name] = f"shape {golden.shape} became {array.shape}"
            return
        tally = self._tallies[name]
        metrics = measure(golden, array, half=tally.grade > Grade.FLOAT32)
        judgement = tally.add(metrics)
        if pair.row.owned:
            self.gallery.offer(name, judgement.severity, golden, array)
