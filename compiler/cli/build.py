"""``cannc build``: a recipe from source to artifact and report."""

from __future__ import annotations

from pathlib import Path

import click

from cannc.compiler.cli import options
from cannc.compiler.core.errors import UsageError


@click.command(short_help="Run a recipe from source to report.")
@click.argument("recipe", type=options.FILE, metavar="RECIPE.yaml")
@click.option("-o", "--output", "out", type=options.FILE, required=True, metavar="DIR")
@click.option(
    "--set", "overrides", multiple=True, metavar="KEY=VALUE", help="e.g. --set optimize.level=O1"
)
@options.common
def build(
    recipe: Path, out: Path, overrides: tuple[str, ...], json_out: str | None, quiet: bool
) -> int:
    """Run RECIPE.yaml: convert, optimize, quantize, check, compile, compare, evaluate.

    Writes the .om, report.html, report.json, report.csv, check.json, manifest.json and the models
    before and after to DIR. Exit code 1 when a threshold is missed.
    """
    from cannc.compiler.build import build as run_build
    from cannc.compiler.build import manifest
    from cannc.compiler.cli.console import dump, stderr, stdout, write_json
    from cannc.compiler.cli.summary import print_build

    notes = stderr()

    def progress(stage: str) -> None:
        if not quiet:
            notes.print(f"[dim]{recipe.stem}:[/dim] {stage} ...")

    result = run_build(recipe, out, overrides=_pairs(overrides), progress=progress)
    if not write_json(json_out, dump(manifest(result))):
        print_build(stdout(), result)
    return 0 if result.passed else 1


def _pairs(specs: tuple[str, ...]) -> dict[str, str]:
    pairs: dict[str, str] = {}
    for spec in specs:
        key, equals, value = spec.partition("=")
        if not equals:
            raise UsageError("CLI005", f"cannot read '{spec}'", where="--set", fix="KEY=VALUE")
        pairs[key] = value
    return pairs
