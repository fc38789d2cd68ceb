"""Samples stored as arrays: .npz files, folders of .npy and .bin, and Python iterables."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import onnx_ir as ir

from cannc.compiler.core.arrays import read_npz
from cannc.compiler.core.errors import UsageError
from cannc.compiler.core.runner import Array
from cannc.quant.calibration.samples import Feeds, Sample

_ROWS_AT_ONCE = 8
"""Rows of a file that run together where the model's batch is dynamic."""

SUFFIXES = (".npz", ".npy", ".bin")


def from_npz(path: Path, inputs: Sequence[ir.Value], limit: int) -> list[Sample]:
    """Return the rows of one archive, in batches that the model takes.

    The last batch may be smaller; where the model's batch is fixed it is filled up with its own
    rows again. Arrays whose first axes are no common batch are one sample; no rows are none.
    """
    feeds = read_npz(path)
    size = _batch(inputs)
    lengths = {array.shape[0] if array.ndim else 0 for array in feeds.values()}
    if size is None or len(lengths) != 1:
        return [Sample(str(path), lambda: feeds)]
    fixed, count = size > 0, min(*lengths, limit)
    step = size if fixed else _ROWS_AT_ONCE
    found = []
    for start in range(0, count, step):
        stop = min(start + step, count)
        index = np.arange(start, stop)
        if fixed and len(index) < step:
            index = np.resize(index, step)
        where = f"{path} rows {start}..{stop - 1}"
        found.append(Sample(where, partial(_rows, feeds, index)))
    return found


def from_folder(folder: Path, inputs: Sequence[ir.Value], limit: int) -> list[Sample]:
    """Return the files of a folder, in natural order (``x2`` before ``x10``).

    Either .npz files with all inputs; or .npy and .bin files of the one input; or one folder per
    input, named like it, whose files belong together in order.

    Raises:
        UsageError: ``CAL002`` empty, ``CAL003`` folders that do not fit the model's inputs.
    """
    archives = natural(folder.glob("*.npz"))[:limit]
    if archives:
        return [Sample(str(path), partial(read_npz, path)) for path in archives]
    names = [value.name or "" for value in inputs]
    single = _array_files(folder)
    if len(names) == 1 and single:
        columns = {names[0]: single}
    else:
        columns = {name: _array_files(folder / name) for name in names}
    counts = {name: len(files) for name, files in columns.items()}
    if not any(counts.values()) and not single:
        raise UsageError(
            "CAL002",
            "the folder holds no calibration samples",
            where=str(folder),
            why=f"no {', '.join(SUFFIXES)} files",
            fix=f"put NAME.npz files there, or a folder of .npy files for each of {names}",
        )
    if len(set(counts.values())) != 1 or not all(counts.values()):
        raise UsageError(
            "CAL003",
            "the folder does not hold the same number of files for every input",
            where=str(folder),
            why=", ".join(f"{name}: {count}" for name, count in counts.items()),
            fix="make one folder per input, named like it, with one file per sample",
        )
    by_name = {value.name or "": value for value in inputs}
    rows = zip(*columns.values(), strict=True)
    found = []
    for files in islice(rows, limit):
        pairs = dict(zip(columns, files, strict=True))
        load = partial(_read_files, {by_name[n]: path for n, path in pairs.items()})
        found.append(Sample(str(files[0]), load))
    return found


def from_iterable(items: Iterable[Any], inputs: Sequence[ir.Value], limit: int) -> list[Sample]:
    """Return the first items: mappings of inputs, sequences in input order, or single arrays."""
    names = [value.name or "" for value in inputs]
    return [
        Sample(f"sample {index}", partial(_as_feeds, item, names))
        for index, item in enumerate(islice(items, limit))
    ]


def natural(paths: Iterable[Path]) -> list[Path]:
    """Sort by name with numbers in it compared as numbers."""
    return sorted(paths, key=_natural_key)


def _natural_key(path: Path) -> list[tuple[int, int, str]]:
    parts = re.split(r"(\d+)", path.name)
    return [(0, int(p), "") if p.isdigit() else (1, 0, p) for p in parts]


def _batch(inputs: Sequence[ir.Value]) -> int | None:
    """Return the fixed batch, 0 for a dynamic one that all inputs share, None for neither."""
    firsts: set[object] = set()
    for value in inputs:
        if value.shape is None or len(value.shape) < 2:
            return None
        dim = value.shape[0]
        firsts.add(dim if isinstance(dim, int) else dim.value)
    if len(firsts) != 1:
        return None
    first = firsts.pop()
    return first if isinstance(first, int) else 0


def _rows(feeds: Mapping[str, Array], index: Array) -> Feeds:
    return {name: array[index] for name, array in feeds.items()}


def _array_files(folder: Path) -> list[Path]:
    if not folder.is_dir():
        return []
    return natural(p for p in folder.iterdir() if p.suffix in (".npy", ".bin"))


def _read_files(files: Mapping[ir.Value, Path]) -> Feeds:
    return {value.name or "": _read_array(value, path) for value, path in files.items()}


def _read_array(value: ir.Value, path: Path) -> Array:
    if path.suffix == ".npy":
        (array,) = read_npz(path).values()
        return array
    assert value.dtype is not None
    flat = np.fromfile(path, np.uint8)
    shape = [d if isinstance(d, int) else -1 for d in value.shape or [None]]
    known = int(np.prod([dim for dim in shape if dim >= 0], dtype=np.int64))
    unit = known * value.dtype.numpy().itemsize
    fits = unit and flat.size and flat.size % unit == 0 and shape.count(-1) <= 1
    if not fits or (-1 not in shape and flat.size != unit):
        raise UsageError(
            "CAL009",
            f"{flat.size} bytes do not fill input '{value.name}' {value.dtype.name}{value.shape}",
            where=str(path),
            why="a .bin file holds plain numbers; at most one dimension can follow from its size",
            fix="save it as .npy, which holds dtype and shape",
        )
    return flat.view(value.dtype.numpy()).reshape(shape)


def _as_feeds(item: Any, names: Sequence[str]) -> Feeds:
    if isinstance(item, Mapping):
        return item
    if isinstance(item, (tuple, list)) and len(item) == len(names):
        return dict(zip(names, item, strict=True))
    if len(names) == 1 and not isinstance(item, (tuple, list)):
        return {names[0]: item}
    raise UsageError(
        "CAL003",
        f"a calibration sample of type {type(item).__name__} does not fit the inputs {names}",
        where="calib",
        fix="yield dictionaries: input name -> array",
    )
