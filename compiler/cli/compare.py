"""``cannc compare``: the original against an artifact, layer by layer."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

import click

from cannc.compiler.cli import options
from cannc.compiler.core.errors import UsageError


@click.command(short_help="Original against artifact, layer by layer.")
@click.argument("golden", type=options.FILE)
@click.argument("candidate", type=options.FILE)
@options.inputs
@click.option(
    "--mode",
    type=click.Choice(["accumulated", "isolated", "both"]),
    default="both",
    show_default=True,
)
@click.option(
    "--threshold",
    multiple=True,
    metavar="[PATTERN:]METRIC=VALUE",
    help="e.g. cosine=0.999, or for some layers encoder.*:rel_l2=0.05",
)
@click.option(
    "--dump",
    type=click.Path(file_okay=False, path_type=Path),
    help="Tensor dumps of a device; CANDIDATE is what was given to ATC.",
)
@click.option("--om", type=options.FILE, help="With --dump: the device's .om, for what was fused.")
@click.option(
    "--baseline",
    type=options.FILE,
    metavar="OLD.json",
    help="A JSON report of before: only what got worse fails.",
)
@click.option("--html", type=options.FILE, help="Write the report as one HTML page.")
@click.option("--csv", "csv_", type=options.FILE, help="Write one row per layer.")
@click.option("--junit", type=options.FILE, help="Write JUnit XML for CI pages.")
@options.common
def compare(
    golden: Path,
    candidate: Path,
    input_specs: tuple[str, ...],
    mode: Literal["accumulated", "isolated", "both"],
    threshold: tuple[str, ...],
    dump: Path | None,
    om: Path | None,
    baseline: Path | None,
    html: Path | None,
    csv_: Path | None,
    junit: Path | None,
    json_out: str | None,
    quiet: bool,
) -> int:
    """Compare CANDIDATE (.om or .onnx) with GOLDEN (.onnx), or two folders of arrays.

    With --dump, nothing of CANDIDATE is run: a device's dumps are compared.

    Exit code 1 when a graph output misses a threshold.
    """
    from cannc.compiler.cli.console import stdout, write_json
    from cannc.compiler.cli.summary import print_comparison
    from cannc.compiler.core.files import check_writable, write_text
    from cannc.compiler.frontend.inputs import read_inputs
    from cannc.golden.baseline import against_baseline
    from cannc.golden.compare import compare as run_compare
    from cannc.golden.dumps.compare import compare_dumps
    from cannc.golden.render_csv import to_csv
    from cannc.golden.render_html import to_html
    from cannc.golden.render_json import to_json
    from cannc.golden.render_junit import to_junit

    files = {html: to_html, csv_: to_csv, junit: to_junit}
    renderers = {path: render for path, render in files.items() if path is not None}
    for path in renderers:
        check_writable(path, golden, candidate)
    inputs = read_inputs(input_specs) or None
    bounds = parse_thresholds(threshold)
    if dump is None:
        report = run_compare(golden, candidate, inputs=inputs, mode=mode, thresholds=bounds)
    else:
        report = compare_dumps(golden, candidate, dump, om=om, inputs=inputs, thresholds=bounds)
    if baseline is not None:
        report = against_baseline(report, baseline)
    for path, render in renderers.items():
        write_text(path, render(report))
    if not write_json(json_out, to_json(report)):
        print_comparison(stdout(), report)
    return 0 if report.verdict == "pass" else 1


def parse_thresholds(specs: tuple[str, ...]) -> dict[str, float]:
    """Read ``metric=value`` texts.

    Raises:
        UsageError: ``CLI004`` a text of another form.
    """
    thresholds: dict[str, float] = {}
    for spec in (part for text in specs for part in text.split(",")):
        name, _, value = spec.rpartition("=")
        try:
            thresholds[name.strip()] = float(value)
        except ValueError:
            raise UsageError(
                "CLI004", f"cannot read '{spec}'", where="--threshold", fix="cosine=0.999"
            ) from None
    return thresholds
