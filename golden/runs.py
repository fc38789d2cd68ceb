"""The three runs of a comparison: golden, the candidate as it is, the candidate cut apart."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import onnx_ir as ir

from cannc.compiler.core.errors import ModelError
from cannc.compiler.core.runner import Array
from cannc.golden.align import Pair
from cannc.golden.explode import Exploded, explode
from cannc.golden.grades import grades
from cannc.golden.ledger import Ledger
from cannc.golden.masks import narrowed
from cannc.golden.taps import TappedRun
from cannc.golden.verdict import Thresholds

Expected = Mapping[str, Array]
"""Row name -> golden's array in the original layout."""


class GoldenRun:
    """The original model in float32, as its file says it: nothing fused, nothing rounded."""

    def __init__(self, model: ir.Model, pairs: Sequence[Pair]) -> None:
        """Load the model.

        Raises:
            ModelError: ``CMP005`` it cannot be loaded.
        """
        self._pairs = pairs
        names = [pair.golden.name for pair in pairs]
        try:
            self._run = TappedRun(model, names, half="widen", fuse=False)
        except ModelError as error:
            raise _no_golden(error) from error

    def __call__(self, feeds: Mapping[str, Array]) -> Expected:
        """Return golden's values for one sample.

        Raises:
            ModelError: ``CMP005`` the run failed.
        """
        try:
            shown = dict(self._run(feeds))
        except ModelError as error:
            raise _no_golden(error) from error
        return {p.row.name: p.golden.original(shown[p.golden.name]) for p in self._pairs}


class Accumulated:
    """What arrives at each value when the candidate runs as it is.

    Attributes:
        ledger: The figures.
    """

    def __init__(self, model: ir.Model, pairs: Sequence[Pair], bounds: Thresholds) -> None:
        """Args: the candidate, the rows to measure, the bounds to judge by."""
        self.ledger = Ledger(pairs, grades(model), bounds)
        self._run = TappedRun(model, self.ledger.values, half="round")

    def add(self, feeds: Mapping[str, Array], expected: Expected) -> None:
        """Run one sample."""
        self.ledger.add(self._run(feeds), expected)


class Isolated:
    """What each value is when its region is fed with golden's numbers (D6).

    Attributes:
        ledger: The figures.
    """

    def __init__(
        self, model: ir.Model, pairs: Sequence[Pair], bounds: Thresholds, expected: Expected
    ) -> None:
        """Args: as `Accumulated`, and golden's values of one sample."""
        self._sources = _sources(model, pairs, expected)
        self._exploded: Exploded = explode(model, {n: a for n, a, _ in self._stored(expected)})
        cuts = self._exploded.inputs
        self.ledger = Ledger(pairs, grades(model, cuts), bounds)
        self._run = TappedRun(self._exploded.model, self.ledger.values, half="round")

    def add(self, feeds: Mapping[str, Array], expected: Expected) -> None:
        """Run one sample."""
        cuts = self._exploded.inputs
        fed = {
            cuts[name].name or "": narrowed(array, dtype.numpy())
            for name, array, dtype in self._stored(expected)
            if name in cuts
        }
        self.ledger.add(self._run({**feeds, **fed}, allow_nan=True), expected)

    def _stored(self, expected: Expected) -> Iterator[tuple[str, Array, ir.DataType]]:
        """Yield candidate value, golden's numbers in its layout, and its dtype."""
        for pair, dtype in self._sources:
            yield pair.candidate.name, pair.candidate.stored(expected[pair.row.name]), dtype


def _sources(
    model: ir.Model, pairs: Sequence[Pair], expected: Expected
) -> list[tuple[Pair, ir.DataType]]:
    """Return which row feeds each candidate value, and the dtype to feed it in.

    A value that is a float on one side only is recomputed instead: golden's numbers would not
    mean the same there.
    """
    values = ir.convenience.create_value_mapping(model.graph, include_subgraphs=False)
    chosen: dict[str, tuple[Pair, ir.DataType]] = {}
    for pair in pairs:
        dtype = values[pair.candidate.name].dtype
        if dtype is None or (pair.candidate.name in chosen and not pair.row.owned):
            continue
        reference = ir.DataType.from_numpy(expected[pair.row.name].dtype)
        if reference == dtype or _family(reference) == _family(dtype):
            chosen[pair.candidate.name] = pair, dtype
    return [*chosen.values()]


def _family(dtype: ir.DataType) -> str:
    if dtype.is_floating_point():
        return "float"
    return "integer" if dtype.is_integer() else dtype.name


def _no_golden(error: ModelError) -> ModelError:
    return ModelError(
        "CMP005",
        "no golden: the original model cannot be run",
        where=error.where,
        why=error.why or error.what,
        fix="nothing can be said about the candidate; repair the original, or compare saved arrays",
    )
