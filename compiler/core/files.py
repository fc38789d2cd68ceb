"""Files written whole or not at all: a temporary name beside the target, fsync, rename."""

from __future__ import annotations

import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

from cannc.compiler.core.errors import UsageError


def check_writable(out: Path, *sources: Path | None) -> None:
    """Refuse an output path that cannot be written or that is one of the inputs.

    Call it before the work starts, so that an hour of compiling does not end in a typing error.

    Raises:
        UsageError: ``IO001`` same file, ``IO002`` folder missing or not writable.
    """
    for source in sources:
        if source is not None and source.exists() and out.exists() and out.samefile(source):
            raise UsageError(
                "IO001",
                "output and input are the same file",
                where=str(out),
                why="the input would be lost if the command failed half-way",
                fix="choose another name for the output",
            )
    folder = out.parent
    if out.is_dir():
        why, fix = "it is a folder", "name a file inside it"
    elif not folder.is_dir():
        why, fix = f"folder {folder} does not exist", f"create it first: mkdir -p {folder}"
    elif not os.access(folder, os.W_OK):
        why, fix = f"no permission to write into {folder}", "choose a folder that you may write to"
    else:
        return
    raise UsageError("IO002", "cannot write the output", where=str(out), why=why, fix=fix)


@contextmanager
def atomic_write(out: Path) -> Iterator[IO[bytes]]:
    """Open a temporary file beside `out` that becomes `out` when the block ends without error.

    On an error the temporary file is removed and an existing `out` stays as it was.
    """
    check_writable(out)
    temporary = out.with_name(f".{out.name}.{secrets.token_hex(4)}.tmp")
    try:
        with temporary.open("wb+") as stream:
            yield stream
            stream.flush()
            os.fsync(stream.fileno())
        temporary.replace(out)
    except OSError as error:
        temporary.unlink(missing_ok=True)
        raise UsageError(
            "IO003",
            "writing the output failed",
            where=str(out),
            why=error.strerror or str(error),
            fix="free disk space or choose another folder",
        ) from error
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise


def make_folder(folder: Path) -> None:
    """Make an output folder, with the folders above it.

    Raises:
        UsageError: ``IO002`` it cannot be made.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UsageError(
            "IO002",
            "cannot write the output",
            where=str(folder),
            why=error.strerror or str(error),
            fix="choose a folder that you may write to",
        ) from error


def write_text(out: Path, text: str) -> None:
    """Write `text` as UTF-8, whole or not at all."""
    with atomic_write(out) as stream:
        stream.write(text.encode())
