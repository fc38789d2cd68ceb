"""Named arrays from files, without ever running code from them."""

from __future__ import annotations

import zipfile
from pathlib import Path

import numpy as np

from cannc.compiler.core.errors import ModelError, UsageError
from cannc.compiler.core.runner import Array


def read_npz(path: Path) -> dict[str, Array]:
    """Read named arrays; pickled objects are refused, since unpickling runs code.

    Raises:
        UsageError: ``IO010`` no such file.
        ModelError: ``INP010`` not an .npz archive of plain arrays.
    """
    if not path.is_file():
        raise UsageError("IO010", "no such file", where=str(path), fix="check the path")
    try:
        # Opened here, since numpy leaves the file open when the archive is damaged.
        with path.open("rb") as stream:
            loaded = np.load(stream, allow_pickle=False)
            if isinstance(loaded, np.ndarray):
                return {path.stem: loaded}
            return {name: loaded[name] for name in loaded.files}
    except (ValueError, OSError, EOFError, zipfile.BadZipFile) as error:
        raise ModelError(
            "INP010",
            "cannot read input arrays",
            where=str(path),
            why=str(error),
            fix="save them with numpy.savez(path, name=array); object arrays are refused",
        ) from error
