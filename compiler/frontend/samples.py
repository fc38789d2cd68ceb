"""Samples for ``run``: files and folders of .npy, .npz and raw .bin, as ais_bench takes them.

A folder holds one file per sample, taken in the order of their names; with several inputs the n-th
files belong together. A .bin file holds the bare bytes of a tensor, so the model says its dtype and
its shape.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from cannc.compiler.core.arrays import read_npz
from cannc.compiler.core.errors import UsageError, nearest
from cannc.compiler.core.runner import Array
from cannc.compiler.runtime.ports import Port

SUFFIXES = (".npy", ".bin")


@dataclass(frozen=True)
class Sample:
    """One set of inputs.

    Attributes:
        name: Stem of the file of the first input; "" when it comes from no folder.
        feeds: Input name -> array.
    """

    name: str
    feeds: Mapping[str, Array]


def read_samples(specs: Sequence[str], ports: Sequence[Port]) -> list[Sample]:
    """Read what ``--inputs`` names.

    Args:
        specs: ``FILE.npz``, ``NAME=PATH``, or paths joined by commas for the inputs in order; a
            path is a .npy or .bin file or a folder of them.
        ports: The model's inputs.

    Returns:
        The samples; empty without specs.

    Raises:
        UsageError: ``IO010`` no such path, ``INP002`` no such input, ``INP011`` another kind of
            file, ``INP012`` a .bin file does not fit the input, ``INP013`` the folders hold
            different numbers of files.
    """
    whole: dict[str, Array] = {}
    files: dict[str, list[Path]] = {}
    for spec in specs:
        if spec.endswith(".npz") and "=" not in spec:
            whole.update(read_npz(Path(spec)))
        else:
            files.update({name: _files(path) for name, path in _named(spec, ports).items()})
    if not files:
        return [Sample("", whole)] if whole else []
    counts = {name: len(paths) for name, paths in files.items()}
    if len(set(counts.values())) > 1:
        raise UsageError(
            "INP013",
            "the inputs have different numbers of samples",
            where=", ".join(f"{name}: {count}" for name, count in counts.items()),
            fix="give each input's folder one file per sample",
        )
    by_name = {port.name: port for port in ports}
    first = next(iter(files.values()))
    return [
        Sample(
            first[index].stem,
            {**whole, **{n: _read(paths[index], n, by_name) for n, paths in files.items()}},
        )
        for index in range(len(first))
    ]


def _named(spec: str, ports: Sequence[Port]) -> dict[str, Path]:
    """Return input name -> path of one argument."""
    name, equals, path = spec.partition("=")
    names = [port.name for port in ports]
    if equals:
        if name not in names:
            raise UsageError(
                "INP002",
                f"the model has no input '{name}'{nearest(name, names)}",
                fix=f"inputs are {', '.join(names)}",
            )
        return {name: Path(path)}
    paths = [Path(part) for part in spec.split(",")]
    if len(paths) > len(names):
        raise UsageError(
            "INP002",
            f"{len(paths)} paths for {len(names)} inputs",
            where=spec,
            fix=f"give one per input, in the order {', '.join(names)}",
        )
    return dict(zip(names, paths, strict=False))


def _files(path: Path) -> list[Path]:
    if path.is_dir():
        found = sorted(file for file in path.iterdir() if file.suffix in SUFFIXES)
        if not found:
            raise _unreadable(path, "it holds no .npy or .bin files")
        return found
    if not path.exists():
        raise UsageError("IO010", "no such file", where=str(path), fix="check the path")
    if path.suffix not in SUFFIXES:
        raise _unreadable(path, f"it is no {' or '.join(SUFFIXES)} file")
    return [path]


def _read(path: Path, name: str, ports: Mapping[str, Port]) -> Array:
    if path.suffix == ".npy":
        return next(iter(read_npz(path).values()))
    port = ports[name]
    data = np.fromfile(path, np.uint8)
    if port.dtype is None or port.shape is None or not port.is_tensor:
        raise _misfit(path, port, len(data), "the model does not say what the bytes mean")
    dtype = port.dtype.numpy()
    open_axes = [axis for axis, dim in enumerate(port.shape) if not isinstance(dim, int)]
    if len(open_axes) > 1:
        raise _misfit(path, port, len(data), "several sizes are open, bytes do not tell which")
    row = dtype.itemsize * math.prod(dim for dim in port.shape if isinstance(dim, int))
    if open_axes and row and len(data) % row == 0:
        dims = [dim if isinstance(dim, int) else len(data) // row for dim in port.shape]
        return data.view(dtype).reshape(dims)
    if open_axes or len(data) != row:
        raise _misfit(
            path, port, len(data), f"{row} bytes are expected{' or a multiple' * bool(open_axes)}"
        )
    return data.view(dtype).reshape([dim for dim in port.shape if isinstance(dim, int)])


def _misfit(path: Path, port: Port, size: int, why: str) -> UsageError:
    return UsageError(
        "INP012",
        f"{size} bytes do not fit input '{port.name}'",
        where=f"{path}, {port.name} is {port}",
        why=why,
        fix="write the array with its dtype and shape: numpy.save(path, array) and feed the .npy",
    )


def _unreadable(path: Path, why: str) -> UsageError:
    return UsageError(
        "INP011",
        "cannot read inputs",
        where=str(path),
        why=why,
        fix="use FILE.npz, NAME=FILE.npy, NAME=FILE.bin or a folder of .npy or .bin files",
    )
