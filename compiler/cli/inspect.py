"""``cannc inspect``: what is in an .om or .onnx file."""

from __future__ import annotations

from pathlib import Path

import click

from cannc.compiler.cli import options


@click.command(short_help="What is in an .om or .onnx file.")
@click.argument("file", type=options.FILE)
@options.common
def inspect(file: Path, json_out: str | None, quiet: bool) -> None:
    """Show header, partitions, operators and weights of FILE (.om of any generation, .onnx)."""
    from cannc.compiler.cli.console import dump, stdout, table, write_json
    from cannc.compiler.inspection import inspect_file

    facts = inspect_file(file)
    if write_json(json_out, dump({"schema_version": 1, **facts})):
        return
    console = stdout()
    for title, section in facts.items():
        if isinstance(section, dict):
            rows = [(key, _text(value)) for key, value in section.items()]
            console.print(table(title, ("", ""), rows))
        elif isinstance(section, list):
            columns = list(section[0]) if section else ["none"]
            console.print(table(title, columns, [[_text(v) for v in row.values()] for row in section]))
        else:
            console.print(f"{title}: {section}", markup=False)


def _text(value: object) -> str:
    if isinstance(value, list):
        return "x".join(map(str, value)) or "scalar"
    return str(value)
