"""The folder that one compile works in, so that two never disturb each other."""

from __future__ import annotations

import logging
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from cannc.compiler.backends.atc.values import forbidden_characters
from cannc.compiler.core.errors import ToolchainError, UsageError

log = logging.getLogger(__name__)


@contextmanager
def work_folder(out: Path, *, keep: bool = False) -> Iterator[Path]:
    """Give a new folder; removed, but kept when ATC failed, for whoever looks for the cause.

    It lies beside the output, so that moving the result costs nothing; in the system's folder for
    temporary files where that path has characters that ATC refuses.

    Args:
        out: The artifact to be written.
        keep: Leave it on success too.

    Raises:
        UsageError: ``ATC080`` both places have characters that ATC refuses.
    """
    folder = Path(tempfile.mkdtemp(prefix=f"{safe_name(out.stem)}.atc.", dir=_parent(out)))
    try:
        yield folder
    except ToolchainError:
        raise
    except BaseException:
        shutil.rmtree(folder)
        raise
    if not keep:
        shutil.rmtree(folder)


def _parent(out: Path) -> Path:
    places = [out.absolute().parent.resolve(), Path(tempfile.gettempdir()).resolve()]
    for place in places:
        if not forbidden_characters(str(place)):
            return place
        log.info("ATC cannot work in %s: it refuses characters of that path", place)
    raise UsageError(
        "ATC080",
        "no folder for ATC to work in",
        where=", ".join(map(str, places)),
        why="ATC refuses paths with other characters than letters, digits and _ - . / (E10001)",
        fix="write the output into another folder, or set TMPDIR",
    )


def safe_name(name: str) -> str:
    """Return a file name that ATC takes."""
    return "".join("_" if forbidden_characters(char) else char for char in name) or "model"
