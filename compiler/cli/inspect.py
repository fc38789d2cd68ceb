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
    raise NotImplementedError
