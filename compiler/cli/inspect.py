"""``cannc inspect``: what is in an .om or .onnx file, and what differs between two."""

from __future__ import annotations

import os
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

import click

from cannc.compiler.cli import options
from cannc.compiler.core.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Iterable

    from rich.console import Console

    from cannc.compiler.inspection.facts import Inspection
    from cannc.compiler.inspection.sections import Section

# Wide enough that no name is cut in two in a pipe or a file.
_PIPED_COLUMNS = 1000


@click.command(short_help="What is in an .om or .onnx file.")
@click.argument("file", type=options.FILE)
@click.option("--graph", "with_graph", is_flag=True, help="List ops and edges, one op per line.")
@click.option("--onnx", "onnx_out", type=options.FILE, metavar="OUT.onnx", help="Graph as ONNX.")
@click.option("--diff", "other", type=options.FILE, metavar="OTHER", help="What OTHER changes.")
@click.option(
    "--top",
    type=click.IntRange(min=0),
    default=20,
    show_default=True,
    help="How many of the largest weights to list; 0 lists all.",
)
@click.option(
    "--model",
    type=click.IntRange(min=0),
    default=0,
    show_default=True,
    help="Which of several models in the file --onnx takes.",
)
@options.common
def inspect(
    file: Path,
    with_graph: bool,
    onnx_out: Path | None,
    other: Path | None,
    top: int,
    model: int,
    json_out: str | None,
    quiet: bool,
) -> int:
    """Show header, partitions, operators and weights of FILE (.om of any generation, .onnx).

    Weights are not read, so a file of any size opens fast; --diff reads them to compare. With
    --diff the exit code is 1 when something differs.
    """
    if other is not None:
        if with_graph or onnx_out is not None:
            raise UsageError("INS001", "--diff stands alone", fix="leave --graph and --onnx out")
        return _diff(file, other, json_out)
    if onnx_out is not None:
        _write_onnx(file, onnx_out, model)
        if not with_graph and json_out is None:
            return 0
    from cannc.compiler.cli.console import dump, stdout, write_json
    from cannc.compiler.inspection.inspect import inspect_file
    from cannc.compiler.inspection.sections import sections

    found = inspect_file(file, top=top, with_graph=with_graph)
    if write_json(json_out, dump(asdict(found))):
        return 0
    if with_graph:
        _print_graph(found)
    else:
        _print(stdout(), sections(found))
    return 0


def _diff(file: Path, other: Path, json_out: str | None) -> int:
    from cannc.compiler.cli.console import dump, stdout, write_json
    from cannc.compiler.inspection.diff import diff_files
    from cannc.compiler.inspection.sections import diff_sections

    report = diff_files(file, other)
    code = 0 if report.same else 1
    if write_json(json_out, dump(asdict(report))):
        return code
    console = stdout()
    _print(console, diff_sections(report))
    for note in report.notes:
        console.print(_safe(note), markup=False)
    return code


def _write_onnx(file: Path, out: Path, model: int) -> None:
    from cannc.compiler.core.files import check_writable
    from cannc.compiler.core.onnx_io import write_model
    from cannc.compiler.inspection.inspect import first_bytes
    from cannc.compiler.inspection.reconstruct import as_onnx
    from cannc.compiler.om.header import MAGIC
    from cannc.compiler.om.reader import OmFile

    check_writable(out, file)
    if file.suffix.lower() == ".onnx" and not first_bytes(file).startswith(MAGIC):
        raise UsageError("INS003", "it is an ONNX model already", where=str(file), fix="use it")
    write_model(as_onnx(OmFile.open(file), model), out, file)


def _print(console: Console, tables: Iterable[Section]) -> None:
    from rich.text import Text

    from cannc.compiler.cli.console import table
    from cannc.compiler.inspection.sections import Bytes

    if not console.is_terminal and "COLUMNS" not in os.environ:
        console.width = _PIPED_COLUMNS
    for index, section in enumerate(tables):
        if index:
            console.print()
        exact = not section.columns
        rows = [
            [_size(c, exact=exact) if isinstance(c, Bytes) else _safe(c) for c in row]
            for row in section.rows
        ]
        grid = table("", section.columns or ("", ""), rows)
        # The title has a line of its own: above a narrow table it would be broken into pieces.
        grid.title = None
        grid.show_header = bool(section.columns)
        for column, cells in zip(grid.columns, zip(*section.rows, strict=False), strict=False):
            if all(isinstance(cell, int) for cell in cells):
                column.justify = "right"
        console.print(Text(_safe(section.title), "bold"))
        if section.rows:
            console.print(grid)


def _size(count: int, *, exact: bool) -> str:
    """Return a size as people read it, where there is room also as a number."""
    from cannc.compiler.cli.console import size

    return f"{size(count)} ({count} bytes)" if exact and count >= 1000 else size(count)


def _safe(value: object) -> str:
    """Return text that cannot steer the terminal: names in a file may hold anything."""
    return "".join(c if c.isprintable() or c == "\n" else f"\\x{ord(c):02x}" for c in str(value))


def _line(text: str) -> str:
    return _safe(text).replace("\n", "\\n")


def _print_graph(found: Inspection) -> None:
    """Print one line per op, whatever the width: lines are for grep."""
    for index, model in enumerate(found.models):
        for graph in model.graph or ():
            label = f"model {index} " if len(found.models) > 1 else ""
            click.echo(_line(f"# {label}{graph.name}: {len(graph.ops)} ops"))
            for op in graph.ops:
                click.echo(_line(str(op)))
            click.echo(_line(f"# outputs: {', '.join(graph.outputs)}"))
    for member in found.members:
        click.echo(_line(f"# {member.name}"))
        _print_graph(member)
