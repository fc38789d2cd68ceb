"""``cannc compile``: write the .om artifact."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

import click

from cannc.compiler.cli import options


@click.command(short_help="Write the .om artifact (ATC or embedded host).")
@options.model_argument
@options.output(".om")
@click.option(
    "--backend", type=click.Choice(["auto", "atc", "host"]), default="auto", show_default=True
)
@click.option("--precision", type=click.Choice(["keep", "fp16"]), default="keep", show_default=True)
@click.option("--require-support", is_flag=True, help="Exit 1 if ATC would refuse a node.")
@options.target
@options.common
def compile(
    model: Path,
    out: Path,
    backend: str,
    precision: Literal["keep", "fp16"],
    require_support: bool,
    soc: str | None,
    cann: str | None,
    json_out: str | None,
    quiet: bool,
) -> None:
    """Compile MODEL to an .om artifact with ATC, or with the embedded host backend."""
    from cannc.compiler.backends.base import CompileOptions

    from cannc.compiler import pipeline
    from cannc.compiler.cli.console import dump, size, stdout, write_json
    from cannc.compiler.core.files import check_writable

    check_writable(out, model)
    options_ = CompileOptions(precision=precision, require_support=require_support)
    result = pipeline.compile_model(model, out, backend, soc, cann, options_)
    data = {"schema_version": 1, **vars(result), "path": str(out)}
    if write_json(json_out, dump(data)):
        return
    console = stdout()
    console.print(f"{out}: {size(result.size_bytes)}, {result.device}", markup=False)
    for note in result.notes:
        console.print(f"note: {note}", markup=False)
