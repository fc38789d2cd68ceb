"""What commands print: results on stdout, progress on stderr, tables that fit the terminal."""

from __future__ import annotations

import json
import logging
import sys
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn
from rich.table import Table
from rich.text import Text

from cannc.compiler.core.files import write_text


def stdout() -> Console:
    """Return a console for results; plain text when stdout is no terminal."""
    return Console(file=sys.stdout, highlight=False, soft_wrap=not sys.stdout.isatty())


def stderr() -> Console:
    """Return a console for progress and notes."""
    return Console(file=sys.stderr, highlight=False)


@contextmanager
def busy(text: str, *, quiet: bool) -> Iterator[None]:
    """Show on a terminal that work goes on and for how long; log lines take its place with -v."""
    if quiet or not sys.stderr.isatty() or logging.getLogger("cannc").isEnabledFor(logging.INFO):
        yield
        return
    columns = (SpinnerColumn(), TextColumn("{task.description}", markup=False), TimeElapsedColumn())
    with Progress(*columns, console=stderr(), transient=True) as progress:
        progress.add_task(text, total=None)
        yield


def table(title: str, columns: Sequence[str], rows: Iterable[Sequence[object]]) -> Table:
    """Return a table; cells are plain text, so brackets in node names are not markup."""
    grid = Table(title=Text(title), title_justify="left", title_style="bold", box=None)
    for index, column in enumerate(columns):
        grid.add_column(column, overflow="fold", no_wrap=index == 0 and len(columns) > 4)
    for row in rows:
        grid.add_row(*(cell if isinstance(cell, Text) else Text(str(cell)) for cell in row))
    return grid


def write_json(destination: str | None, text: str) -> bool:
    """Write JSON where ``--json`` says; return whether stdout is taken by it."""
    if destination is None:
        return False
    if destination == "-":
        sys.stdout.write(text if text.endswith("\n") else f"{text}\n")
        return True
    write_text(Path(destination), text)
    return False


def dump(data: Any) -> str:
    """Return plain data as stable JSON."""
    return json.dumps(data, indent=1, sort_keys=True)


def size(count: float) -> str:
    """Return a byte count as people read it."""
    for unit in ("B", "kB", "MB", "GB"):
        if count < 1000 or unit == "GB":
            return f"{count:.0f} {unit}" if unit == "B" else f"{count:.1f} {unit}"
        count /= 1000
    return ""
