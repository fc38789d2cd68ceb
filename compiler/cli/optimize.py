"""``cannc optimize``: simplify, fuse, set the precision."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

import click

from cannc.compiler.cli import options


@click.command(short_help="Simplify, fuse for the target, set the precision.")
@options.model_argument
@options.output(".onnx")
@click.option("-O", "level", type=click.Choice(["0", "1", "2"]), default="2", show_default=True)
@click.option("--precision", type=click.Choice(["keep", "fp16"]), default="keep", show_default=True)
@click.option("--passes", multiple=True, metavar="+NAME,-NAME", help="Add or leave out passes.")
@click.option("--verify", type=click.Choice(["none", "final"]), default="none", show_default=True)
@click.option(
    "--fix-input",
    "fixed",
    multiple=True,
    metavar="NAME=NUMBER,...",
    help="Make an input a constant; may be repeated.",
)
@options.target
@options.inputs
@options.common
def optimize(
    model: Path,
    out: Path,
    level: str,
    precision: Literal["keep", "fp16"],
    passes: tuple[str, ...],
    verify: str,
    fixed: tuple[str, ...],
    soc: str | None,
    cann: str | None,
    input_specs: tuple[str, ...],
    json_out: str | None,
    quiet: bool,
) -> None:
    """Rewrite MODEL for the target: the same numbers from fewer, better nodes."""
    from cannc.compiler import pipeline
    from cannc.compiler.cli.console import dump, stdout, table, write_json
    from cannc.compiler.core.files import check_writable
    from cannc.compiler.core.unit import load
    from cannc.compiler.frontend.inputs import read_inputs

    check_writable(out, model)
    before = load(model)
    unit = pipeline.optimize(
        before,
        f"O{level}",
        soc=soc,
        cann=cann,
        precision=precision,
        verify=verify,
        passes=[name for text in passes for name in text.split(",")],
        inputs=read_inputs(input_specs) or None,
        fixed=options.parse_fixed(fixed),
    )
    unit.save(out)
    stages = unit.log[len(before.log) :]
    if write_json(json_out, dump({"schema_version": 1, "stages": [vars(s) for s in stages]})):
        return
    console = stdout()
    rows = [
        (
            s.name,
            s.applied,
            s.nodes_before,
            s.nodes_after,
            f"{s.seconds * 1000:.0f}",
            len(s.refusals),
        )
        for s in stages
        if s.applied or s.refusals
    ]
    columns = ("pass", "applied", "nodes before", "after", "ms", "refused")
    console.print(table(f"{model.name} -> {out.name}", columns, rows))
    for stage in stages:
        for note in stage.notes:
            console.print(f"note: {stage.name}: {note}", markup=False)
