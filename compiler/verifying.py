"""Verification of an optimization: what to feed, and how far a pass may move the outputs.

The input model is run once. The model after a pass is compared with the one before it, within what
such a pass may do to numbers, and with the input model, within what `compare` allows (D5); so
neither one large step passes, nor many small ones that add up.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import onnx_ir as ir

from cannc.compiler.core.errors import CanncError, UsageError
from cannc.compiler.core.unit import CompileUnit
from cannc.compiler.runtime.host_session import HostSession
from cannc.compiler.runtime.ports import Port, input_ports, output_ports
from cannc.compiler.runtime.random_feeds import random_feeds
from cannc.golden.grades import grades
from cannc.golden.metrics import measure
from cannc.golden.sources import Inputs, Samples, choose_inputs
from cannc.golden.verdict import Grade, Thresholds, judge
from cannc.passes.base import Numerics

Feeds = Mapping[str, Any]

_STEP: dict[Numerics, dict[Grade, float]] = {
    Numerics.EXACT: {Grade.FLOAT32: 1e-5, Grade.FLOAT16: 1e-3, Grade.INT8: 1e-2},
    Numerics.REASSOCIATED: {Grade.FLOAT32: 1e-4, Grade.FLOAT16: 1e-2, Grade.INT8: 5e-2},
    Numerics.LOSSY: {grade: grade.tolerance for grade in Grade},
}
"""Relative L2 that one pass may add. Not zero for exact passes: onnxruntime fuses other nodes then,
and in float16 other values are rounded."""

_SIZES = (2, 3)
_LENGTHS = ((8, 12), (16, 32), (64, 96), (224, 256), (1, 2))
"""What is tried for dynamic first axes, and for all others; two sizes each, so that a size which a
pass froze is found out."""


class OutputVerifier:
    """Compares graph outputs pass by pass; see `cannc.passes.guard.Verifier`."""

    def __init__(self, model: ir.Model, samples: Sequence[Feeds]) -> None:
        """Run the input model.

        Raises:
            CanncError: it cannot be run on these samples.
        """
        self._samples = samples
        self._golden = self._run(model)
        self._before = self._golden

    def problem(self, model: ir.Model, numerics: Numerics) -> str | None:
        """See `Verifier.problem`."""
        try:
            after = self._run(model)
        except CanncError as error:
            return f"the model cannot be run any more: {error.what} {error.why}".rstrip()
        found = grades(model)
        rows = zip(self._golden, self._before, after, strict=True)
        for golden, before, now in rows:
            for name in golden:
                grade = found.get(name, Grade.FLOAT32)
                step = Thresholds(rel_l2=_STEP[numerics][grade])
                why = _difference(before[name], now[name], grade, step)
                if why is not None:
                    return f"output '{name}': {why}"
                why = _difference(golden[name], now[name], grade, Thresholds())
                if why is not None:
                    return f"output '{name}', with the passes before it: {why}"
        self._before = after
        return None

    def _run(self, model: ir.Model) -> list[dict[str, Any]]:
        session = HostSession(model)
        names = [port.name for port in output_ports(model)]
        results = (session.run(feeds) for feeds in self._samples)
        return [{name: result[name] for name in names} for result in results]


def samples_for(unit: CompileUnit, inputs: Inputs) -> Samples:
    """Return what to feed: what is given, the model's examples, else seeded random numbers.

    Dynamic axes without examples get two sizes, the first ones on which the model runs.

    Raises:
        UsageError: ``CMP003`` no sizes were found on which it runs.
    """
    try:
        return choose_inputs(inputs, [unit], seed=0)
    except UsageError as error:
        if error.code != "CMP003":
            raise
        feeds = list(_guesses(unit.model))
        if not feeds:
            raise
        return Samples(feeds, "random, seed 0; sizes of dynamic axes guessed")


def _guesses(model: ir.Model) -> Iterator[Feeds]:
    """Yield two samples of different sizes with which the model runs, or as many as there are."""
    ports = input_ports(model)
    session = HostSession(model)
    found = 0
    for lengths in _LENGTHS:
        for size, length in zip(_SIZES, lengths, strict=True):
            feeds = random_feeds([_sized(port, size, length) for port in ports], seed=0)
            try:
                session.run(feeds)
            except CanncError:
                continue  # sizes that do not go together; the next ones may
            yield feeds
            found += 1
        if found:
            return


def _sized(port: Port, size: int, length: int) -> Port:
    if port.shape is None:
        return port
    dims = [d if isinstance(d, int) else length if i else size for i, d in enumerate(port.shape)]
    return Port(port.name, port.type, tuple(dims))


def _difference(golden: Any, candidate: Any, grade: Grade, bounds: Thresholds) -> str | None:
    """Return how two outputs differ; sequences are compared element by element."""
    if golden is None or candidate is None:
        return None if golden is candidate else "it is absent on one side"
    if isinstance(golden, list):
        if len(golden) != len(candidate):
            return f"{len(candidate)} elements instead of {len(golden)}"
        pairs = zip(golden, candidate, strict=True)
        found = (_difference(g, c, grade, bounds) for g, c in pairs)
        return next((why for why in found if why is not None), None)
    old, new = np.asarray(golden), np.asarray(candidate)
    if old.shape != new.shape:
        return f"shape {list(new.shape)} instead of {list(old.shape)}"
    judgement = judge(measure(old, new, half=grade > Grade.FLOAT32), grade, bounds)
    return None if judgement.passed else "; ".join(judgement.reasons)
