"""A folder of dumps: runs of one model, and the files of each."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from cannc.compiler.core.errors import ModelError, UsageError
from cannc.golden.dumps.file import DumpFile
from cannc.golden.dumps.names import DumpName

_TABLES = frozenset({".csv", ".txt", ".json", ".npy"})


@dataclass(frozen=True)
class DumpRun:
    """The dumps of one execution.

    Attributes:
        folder: Where they are.
        files: File name taken apart -> header; an op that ran several times is there once, with
            what it wrote last.
        notes: Files that were left out, and why.
    """

    folder: Path
    files: tuple[tuple[DumpName, DumpFile], ...]
    notes: tuple[str, ...] = ()


def open_runs(root: Path) -> list[DumpRun]:
    """Return the runs below a folder, in the order of execution.

    Folders are ``{time}/{device}/{model}/{model id}/{data index}`` on the device; any folder that
    holds dump files is a run.

    Raises:
        UsageError: ``IO010`` no such folder, ``CMP012`` dumps of several models.
        ModelError: ``CMP010`` no dumps in it, ``CMP011`` one is damaged.
    """
    if not root.is_dir():
        raise UsageError("IO010", "no such folder", where=str(root), fix="check the path")
    found = {folder: files for folder in _folders(root) if (files := _dumps_in(folder))}
    if not found:
        raise _no_dumps(root)
    models = {folder.parent for folder in found if folder != root}
    if len(models) > 1:
        names = ", ".join(sorted(str(model.relative_to(root)) for model in models)[:4])
        raise UsageError(
            "CMP012",
            "dumps of several models or sessions",
            where=str(root),
            why=f"there are {names}",
            fix="name the folder of one model",
        )
    return [_run(folder, found[folder]) for folder in sorted(found, key=_execution)]


def _folders(root: Path) -> Iterator[Path]:
    yield root
    yield from (path for path in root.rglob("*") if path.is_dir())


def _dumps_in(folder: Path) -> list[tuple[DumpName, Path]]:
    files = (path for path in folder.iterdir() if path.is_file())
    named = ((DumpName.parse(path.name), path) for path in files if path.suffix not in _TABLES)
    return [(name, path) for name, path in named if name is not None]


def _run(folder: Path, files: list[tuple[DumpName, Path]]) -> DumpRun:
    latest: dict[tuple[str, str, str], tuple[DumpName, DumpFile]] = {}
    slices: set[str] = set()
    for name, path in sorted(files, key=lambda pair: (pair[0].numbers["time"], pair[1].name)):
        if name.is_slice:
            slices.add(name.op_name)
            continue
        dump = DumpFile.open(path)
        latest[name.op_type, name.op_name, dump.op_name] = name, dump
    notes = [f"dumps of slices are not put together: {', '.join(sorted(slices))}"] if slices else []
    return DumpRun(folder, tuple(latest.values()), tuple(notes))


def _execution(folder: Path) -> tuple[int, str]:
    return (int(folder.name) if folder.name.isdigit() else -1, str(folder))


def _no_dumps(root: Path) -> ModelError:
    tables = any(path.suffix == ".csv" for path in root.rglob("*"))
    why = "its files are tables of statistics" if tables else "no file is named as dumps are"
    return ModelError(
        "CMP010",
        "no tensor dumps in this folder",
        where=str(root),
        why=why,
        fix="dump with dump_mode all and dump_data tensor, and name that folder",
    )
