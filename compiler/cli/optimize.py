"""``cannc optimize``: simplify, fuse, set the precision."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

import click

from cannc.compiler.cli import options


@click.command(short_help="Simplify, fuse for the target, set the precision.")
@options.model_argument
@options.output(".onnx", required=False)
@click.option("-O", "level", type=click.Choice(["0", "1", "2"]), default="2", show_default=True)
@click.option(
    "--precision", type=click.Choice(["keep", "fp16", "mixed"]), default="keep", show_default=True
)
@click.option("--passes", multiple=True, metavar="+NAME,-NAME", help="Add or leave out passes.")
@click.option(
    "--rules", multiple=True, type=options.FILE, metavar="FILE.py", help="Your own; executed."
)
@click.option(
    "--verify",
    type=click.Choice(["none", "final", "each"]),
    help="Compare with MODEL at the end, or after each pass and undo what breaks.  "
    "[default: each with --rules, else none]",
)
@click.option("--strict", is_flag=True, help="Fail where a pass would be undone.")
@click.option("--explain", is_flag=True, help="Tell what matched, what did not and why.")
@click.option("--evaluate", is_flag=True, help="Only list what would apply; write nothing.")
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
    out: Path | None,
    level: str,
    precision: Literal["keep", "fp16", "mixed"],
    passes: tuple[str, ...],
    rules: tuple[Path, ...],
    verify: Literal["none", "final", "each"] | None,
    strict: bool,
    explain: bool,
    evaluate: bool,
    fixed: tuple[str, ...],
    soc: str | None,
    cann: str | None,
    input_specs: tuple[str, ...],
    json_out: str | None,
    quiet: bool,
) -> None:
    """Rewrite MODEL for the target: the same numbers from fewer, better nodes."""
    from cannc.compiler import pipeline
    from cannc.compiler.cli.console import busy, dump, stdout, write_json
    from cannc.compiler.cli.optimized import as_data, print_explanation, print_stages
    from cannc.compiler.core.errors import UsageError
    from cannc.compiler.core.files import check_writable
    from cannc.compiler.core.unit import load
    from cannc.compiler.explaining import explain as explain_unit
    from cannc.compiler.frontend.inputs import read_inputs

    if out is None and not evaluate:
        raise UsageError("CLI011", "no place for the result", fix="give -o OUT.onnx or --evaluate")
    if out is not None and not evaluate:
        check_writable(out, model)
    before = load(model)
    with busy(f"optimizing {model.name}", quiet=quiet):
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
            strict=strict,
            rules=rules,
            explain=explain or evaluate,
        )
    if out is not None and not evaluate:
        unit.save(out)
    stages = unit.log[len(before.log) :]
    explanation = explain_unit(unit, stages) if explain or evaluate else None
    if write_json(json_out, dump(as_data(stages, explanation))):
        return
    console = stdout()
    print_stages(console, f"{model.name} -> {out.name if out else 'nothing written'}", stages)
    if explanation is not None:
        print_explanation(console, explanation)
