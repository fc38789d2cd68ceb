"""What can be compared: models, artifacts, and saved arrays; and what to feed models with."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

import numpy as np
import onnx_ir as ir

from cannc.compiler.core.errors import ModelError, UsageError
from cannc.compiler.core.runner import Array
from cannc.compiler.core.shapes import static_shape
from cannc.compiler.core.unit import CompileUnit, ModelLike, load
from cannc.compiler.runtime.artifact import OM_SUFFIX, load_artifact, open_host
from cannc.compiler.runtime.sizes import Sizes

Inputs: TypeAlias = "Mapping[str, Array] | Sequence[Mapping[str, Array]] | str | Path | None"
_INTEGER_LIMIT = 2


@dataclass(frozen=True)
class Saved:
    """Arrays from a file or folder, by exact name."""

    name: str
    arrays: Mapping[str, Array]


@dataclass(frozen=True)
class Samples:
    """What both models are fed with.

    Attributes:
        feeds: One mapping per sample.
        origin: Where they came from, for the report.
    """

    feeds: list[Mapping[str, Array]]
    origin: str


def open_side(source: ModelLike) -> CompileUnit | Saved:
    """Open one side of a comparison.

    Args:
        source: ``.onnx``, ``.om``, a model in memory, an ``.npz`` file or a folder of ``.npy``
            files (``sub/a.npy`` is the array ``sub/a``).

    Raises:
        ModelError: ``CMP002`` unreadable arrays, and what reading a model raises.
    """
    if not isinstance(source, (str, Path)):
        return load(source)
    path = Path(source)
    if path.is_dir() or path.suffix == ".npz":
        return Saved(path.name, read_arrays(path))
    return load_artifact(path)


def read_arrays(path: Path) -> dict[str, Array]:
    """Read an ``.npz`` file or a folder of ``.npy`` files; pickled objects are refused.

    Raises:
        ModelError: ``CMP002`` no arrays, or not readable without running code from the file.
        UsageError: ``IO010`` no such file.
    """
    if not path.exists():
        raise UsageError("IO010", "no such file", where=str(path), fix="check the path")
    try:
        if path.is_dir():
            files = sorted(path.rglob("*.npy"))
            arrays = {f.relative_to(path).with_suffix("").as_posix(): _read_array(f) for f in files}
        else:
            with np.load(path, allow_pickle=False) as archive:
                arrays = {name: archive[name] for name in archive.files}
    except (ValueError, OSError, EOFError, AttributeError) as error:
        raise ModelError(
            "CMP002",
            "not readable as arrays",
            where=str(path),
            why=str(error),
            fix="save them with numpy.savez, without Python objects",
        ) from error
    if not arrays:
        raise ModelError("CMP002", "no arrays in it", where=str(path), fix="expected .npy files")
    return arrays


def sizes_of(*sources: ModelLike) -> list[Sizes]:
    """Return what artifacts among `sources` say about the sizes of their inputs."""
    paths = [Path(s) for s in sources if isinstance(s, (str, Path))]
    return [Sizes.of(open_host(path)) for path in paths if path.suffix.lower() == OM_SUFFIX]


def choose_inputs(
    inputs: Inputs, units: Sequence[CompileUnit], seed: int, sizes: Sequence[Sizes] = ()
) -> Samples:
    """Return the samples to feed: the given ones, a model's examples, or random numbers.

    Args:
        inputs: What the caller gave.
        units: Golden, then the candidate; the first that has examples for golden's inputs is used.
        seed: Seed of random numbers.
        sizes: What the sides say about sizes. Samples must comply, examples that do not are passed
            over, and random numbers have the largest ones.

    Raises:
        UsageError: ``CMP003`` nothing given and a shape is dynamic, ``INP008`` or ``RUN015`` what
            was given has sizes that an artifact does not take.
    """
    given = _given(inputs)
    if given is not None:
        for sample in given.feeds:
            for one in sizes:
                one.check(sample)
        return given
    wanted = [v for v in units[0].model.graph.inputs if not v.is_initializer()]
    for unit in units:
        if unit.examples and all(v.name in unit.examples for v in wanted):
            feeds = {v.name or "": unit.examples[v.name or ""] for v in wanted}
            if all(one.takes(feeds) for one in sizes):
                return Samples([feeds], "examples stored with the model")
    random = np.random.default_rng(seed)
    origin = f"random, seed {seed}: normal floats, integers 0 or 1"
    largest = {k: dims for one in reversed(sizes) for k, dims in one.largest().items()}
    return Samples(
        [{v.name or "": _random(v, largest.get(v.name or ""), random) for v in wanted}], origin
    )


def _given(inputs: Inputs) -> Samples | None:
    if isinstance(inputs, (str, Path)):
        path = Path(inputs)
        return Samples([read_arrays(path)], f"file {path.name}")
    if isinstance(inputs, Mapping):
        return Samples([inputs], "given by the caller")
    if inputs is not None:
        return Samples([*inputs], f"{len(inputs)} samples given by the caller")
    return None


def _random(value: ir.Value, dims: tuple[int, ...] | None, random: np.random.Generator) -> Array:
    shape = static_shape(value) if dims is None else dims
    if shape is None or not isinstance(value.type, ir.TensorType):
        raise UsageError(
            "CMP003",
            f"no numbers for input '{value.name}'",
            where=f"shape {value.shape}",
            why="only static tensor shapes can be filled with random numbers",
            fix="give inputs, e.g. --inputs FILE.npz with one array per input",
        )
    dtype = value.type.dtype
    if dtype.is_floating_point():
        return random.standard_normal(shape).astype(dtype.numpy())
    # Indices, lengths and token ids are valid when they are 0 or 1; larger ones may not be.
    return random.integers(0, _INTEGER_LIMIT, shape).astype(dtype.numpy())


def _read_array(path: Path) -> Array:
    array: Array = np.load(path, allow_pickle=False)
    return array
