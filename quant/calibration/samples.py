"""Samples that a model is run on, and what is wrong with them.

All samples are read once before work starts, so that a damaged one is an error at once and not
after an hour. They are read again when they are needed: only one is in memory at a time.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import onnx_ir as ir

from cannc.compiler.core.errors import CanncError, UsageError
from cannc.compiler.core.runner import Array
from cannc.passes.pattern import constant_of

Feeds = Mapping[str, Any]
Prepare = Callable[[Feeds], dict[str, Array]]
"""Checks and casts what is fed, as a session does (D4); raises for what does not fit."""

DEFAULT_SAMPLES = 128
_FEW_SAMPLES = 32


@dataclass(frozen=True)
class Sample:
    """One set of model inputs.

    Attributes:
        where: Where it comes from, for messages: a file, a line, an index.
        load: Reads it: input name -> array.
    """

    where: str
    load: Callable[[], Feeds]


@dataclass(frozen=True)
class Calibration:
    """Samples that fit the model.

    Attributes:
        samples: In order; at least one.
        prepare: See `Prepare`.
        digests: Hash of each sample's numbers: equal data has equal ones, whatever the file.
        notes: What the user should know: few, equal or constant samples.
    """

    samples: tuple[Sample, ...]
    prepare: Prepare
    digests: tuple[str, ...] = ()
    notes: tuple[str, ...] = field(default=())

    def __iter__(self) -> Iterator[dict[str, Array]]:
        """Yield the inputs of each sample, ready for the model."""
        for sample in self.samples:
            yield self.prepare(sample.load())

    def __len__(self) -> int:
        return len(self.samples)


def examined(
    samples: Sequence[Sample], model: ir.Model, prepare: Prepare, wanted: int
) -> Calibration:
    """Read every sample once and return them with what was found.

    Args:
        samples: What the data source holds.
        model: The model that they are for.
        prepare: See `Prepare`.
        wanted: Number of samples that was asked for.

    Raises:
        UsageError: ``CAL002`` there are none, ``CAL007`` a token is outside the vocabulary, or the
            code of `prepare` for what does not fit, with the sample's place.
    """
    if not samples:
        raise UsageError(
            "CAL002", "there are no calibration samples", where="--calib", fix="see the formats"
        )
    limits = vocabulary_limits(model)
    digests: list[str] = []
    constant: set[str] = set()
    for sample in samples:
        feeds = _checked(sample, prepare)
        _refuse_unknown_tokens(sample, feeds, limits)
        digests.append(digest(feeds))
        constant |= {name for name, array in feeds.items() if _is_constant(array)}
    notes = list(_notes(digests, wanted))
    if constant:
        names = ", ".join(sorted(constant))
        notes.append(f"calibration: input {names} holds one and the same number in some samples")
    return Calibration(tuple(samples), prepare, tuple(digests), tuple(notes))


def digest(feeds: Mapping[str, Array]) -> str:
    """Return a hash of names, dtypes, shapes and numbers."""
    state = hashlib.sha256()
    for name in sorted(feeds):
        array = np.asarray(feeds[name])
        state.update(f"{name} {array.dtype.name} {array.shape}".encode())
        state.update(np.ascontiguousarray(array).tobytes())
    return state.hexdigest()[:16]


def vocabulary_limits(model: ir.Model) -> dict[str, int]:
    """Return graph input -> rows of the constant table that a Gather reads with it."""
    limits: dict[str, int] = {}
    for value in model.graph.inputs:
        for node, index in value.uses():
            axis = node.attributes.get_int("axis", 0)
            table = constant_of(node.inputs[0]) if node.op_type == "Gather" else None
            if index == 1 and table is not None and axis == 0:
                limits[value.name or ""] = int(table.shape.numpy()[0])
    return limits


def _checked(sample: Sample, prepare: Prepare) -> dict[str, Array]:
    try:
        return prepare(sample.load())
    except CanncError as error:
        where = "; ".join(filter(None, (sample.where, error.where)))
        raise type(error)(
            error.code, error.what, where=where, why=error.why, fix=error.fix
        ) from error


def _refuse_unknown_tokens(
    sample: Sample, feeds: Mapping[str, Array], limits: Mapping[str, int]
) -> None:
    for name, rows in limits.items():
        ids = np.asarray(feeds.get(name, ()))
        if ids.size and (ids.max() >= rows or ids.min() < -rows):
            raise UsageError(
                "CAL007",
                f"input '{name}' holds {ids.max()}, the model's table has {rows} rows",
                where=sample.where,
                why="the tokenizer belongs to another model",
                fix="give the tokenizer that came with this model",
            )


def _is_constant(array: Array) -> bool:
    is_float = array.dtype.kind == "f"
    return is_float and array.size > 1 and bool((array == array.flat[0]).all())


def _notes(digests: Sequence[str], wanted: int) -> Iterator[str]:
    count, few = len(digests), min(wanted, _FEW_SAMPLES)
    if count < few:
        yield f"calibration: only {count} samples; statistics are better with {few} or more"
    repeated = sum(times - 1 for times in Counter(digests).values())
    if repeated:
        yield f"calibration: {repeated} of {count} samples repeat another one"
