"""``cannc bisect``: which pass, float16 layer or quantized layer breaks a threshold."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

import click

from cannc.compiler.cli import options


@click.command(short_help="Which pass or layer breaks a threshold.")
@options.model_argument
@click.option(
    "-o",
    "--output",
    "out",
    type=click.Path(file_okay=False, path_type=Path),
    required=True,
    metavar="DIR",
    help="Folder for the minimal model and its inputs.",
)
@click.option("-O", "level", type=click.Choice(["0", "1", "2"]), default="2", show_default=True)
@click.option("--precision", type=click.Choice(["keep", "fp16"]), default="keep", show_default=True)
@click.option("--scheme", default="", metavar="w8a16", help="Quantize too.")
@click.option(
    "--threshold",
    multiple=True,
    metavar="[PATTERN:]METRIC=VALUE",
    help="When a graph output fails, e.g. cosine=0.999.",
)
@click.option("--max-trials", default=300, show_default=True, help="Builds to try at most.")
@options.target
@options.inputs
@options.common
def bisect(
    model: Path,
    out: Path,
    level: str,
    precision: Literal["keep", "fp16"],
    scheme: str,
    threshold: tuple[str, ...],
    max_trials: int,
    soc: str | None,
    cann: str | None,
    input_specs: tuple[str, ...],
    json_out: str | None,
    quiet: bool,
) -> int:
    """Build MODEL again and again with less done, until nothing can be left out any more.

    Exit code 1 when something breaks the threshold; its minimal model is then in DIR.
    """
    from cannc.compiler.bisection import Plan, find_fault, replay
    from cannc.compiler.cli.compare import parse_thresholds
    from cannc.compiler.cli.console import dump, size, stdout, write_json
    from cannc.compiler.core.files import make_folder
    from cannc.compiler.core.target import Target
    from cannc.compiler.frontend.inputs import read_inputs

    plan = Plan(Target.parse(soc, cann), f"O{level}", precision, scheme)
    make_folder(out)
    result = find_fault(
        model,
        plan,
        inputs=read_inputs(input_specs) or None,
        thresholds=parse_thresholds(threshold),
        max_trials=max_trials,
    )
    found, minimal = result.found, result.minimal
    written = minimal.save(out) if minimal is not None else 0
    command = replay(out, threshold) if minimal is not None else ""
    facts = {
        "schema_version": 1,
        "choices": [str(choice) for choice in found.choices],
        "trials": found.trials,
        "complete": found.complete,
        "unusable": found.unusable,
        "layer": minimal.layer if minimal else None,
        "bytes": written,
        "replay": command,
    }
    if not write_json(json_out, dump(facts)):
        lines = [f"{found.trials} builds tried"]
        if minimal is None:
            lines.append("nothing breaks the threshold")
        else:
            lines += [f"breaks the threshold: {choice}" for choice in found.choices]
            lines += [] if found.complete else ["the search ended early; the set may be too large"]
            lines.append(f"minimal model: {minimal.layer or 'the whole model'}, {size(written)}")
            lines.append(f"replay: {command}")
        for line in lines:
            stdout().print(line, markup=False, soft_wrap=True)
    return 1 if found.choices else 0
