"""``cannc check``: what ATC would refuse, or silently get wrong."""

from __future__ import annotations

from pathlib import Path

import click

from cannc.compiler.cli import options


@click.command(short_help="What ATC would refuse or silently get wrong.")
@options.model_argument
@click.option(
    "--format",
    "format_",
    type=click.Choice(["table", "json", "sarif"]),
    default="table",
    show_default=True,
)
@options.target
@options.common
def check(
    model: Path, format_: str, soc: str | None, cann: str | None, json_out: str | None, quiet: bool
) -> int:
    """Say what ATC would refuse in MODEL, node by node, and why; nothing of CANN is needed.

    Exit code 1 when something would be refused or silently computed wrongly.
    """
    from cannc.compiler import pipeline
    from cannc.compiler.cli.console import dump, stdout, table, write_json
    from cannc.op_support.sarif import to_sarif
    from cannc.op_support.text import rows, summary

    report = pipeline.check(model, soc, cann)
    if write_json(json_out, dump(report.to_json())):
        return report.exit_code
    if format_ != "table":
        data = to_sarif(report, model.name) if format_ == "sarif" else report.to_json()
        click.echo(dump(data))
        return report.exit_code
    console = stdout()
    found = [
        (row.severity, row.op_type, row.nodes or "model", f"{row.why}{_cure(row.cure)}")
        for row in rows(report)
    ]
    if found:
        console.print(table(model.name, ("severity", "operator", "nodes", "why"), found))
    console.print(summary(report), markup=False)
    return report.exit_code


def _cure(text: str) -> str:
    return f" (cure: {text})" if text else ""
