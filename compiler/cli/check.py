"""``cannc check``: what ATC would refuse, or silently get wrong."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from cannc.compiler.cli import options
from cannc.compiler.core.errors import UsageError

if TYPE_CHECKING:
    from cannc.op_support.report import SupportReport


@click.command(short_help="What ATC would refuse or silently get wrong.")
@click.argument("model", type=options.FILE, required=False)
@click.option(
    "--format",
    "format_",
    type=click.Choice(["table", "json", "sarif", "html"]),
    default="table",
    show_default=True,
)
@click.option("--list", "list_", is_flag=True, help="List the operators known, and how sure.")
@click.option("--opset", "advise", is_flag=True, help="Say which opset supports most nodes.")
@click.option(
    "--registered",
    multiple=True,
    metavar="DOMAIN::OPSET::TYPE",
    help="An operator that you have an ATC plugin for; may be repeated.",
)
@options.target
@options.common
def check(
    model: Path | None,
    format_: str,
    list_: bool,
    advise: bool,
    registered: tuple[str, ...],
    soc: str | None,
    cann: str | None,
    json_out: str | None,
    quiet: bool,
) -> int:
    """Say what ATC would refuse in MODEL, node by node, and why; nothing of CANN is needed.

    Exit code 1 when something would be refused or silently computed wrongly.
    """
    from cannc.compiler import pipeline
    from cannc.compiler.cli.console import dump, write_json

    if list_:
        return _list(json_out)
    if model is None:
        raise UsageError("CLI010", "no model given", fix="cannc check MODEL.onnx, or --list")
    if advise:
        return _advise(model, json_out)
    report = pipeline.check(model, soc, cann, registered=registered)
    if not write_json(json_out, dump(report.to_json())):
        _print(report, model.name, format_)
    return report.exit_code


def _print(report: SupportReport, name: str, format_: str) -> None:
    from cannc.compiler.cli.console import dump, stdout, table
    from cannc.op_support.render_html import to_html
    from cannc.op_support.sarif import to_sarif
    from cannc.op_support.text import rows, summary

    if format_ == "html":
        click.echo(to_html(report, name))
    elif format_ != "table":
        click.echo(dump(to_sarif(report, name) if format_ == "sarif" else report.to_json()))
    else:
        console = stdout()
        found = [
            (row.severity, row.op_type, row.nodes or "model", f"{row.why}{_cure(row.cure)}")
            for row in rows(report)
        ]
        if found:
            console.print(table(name, ("severity", "operator", "nodes", "why"), found))
        console.print(summary(report), markup=False)


def _list(json_out: str | None) -> int:
    from cannc.compiler.cli.console import dump, stdout, table, write_json
    from cannc.op_support.text import known_operators

    known = known_operators()
    if not write_json(json_out, dump([row._asdict() for row in known])):
        columns = ("operator", "how sure", "opsets", "GE operators")
        stdout().print(table(f"{len(known)} operators of ATC's ONNX parser", columns, known))
    return 0


def _advise(model: Path, json_out: str | None) -> int:
    from cannc.compiler.cli.console import dump, stdout, table, write_json
    from cannc.compiler.core.unit import load
    from cannc.op_support.advice import opset_advice

    advice = opset_advice(load(model))
    rows = [
        (row.opset, row.supported, ", ".join(f"{t} ({n})" for t, n in row.missing.items()) or "-")
        for row in advice
    ]
    data = [{"opset": r.opset, "supported": r.supported, "missing": r.missing} for r in advice]
    if not write_json(json_out, dump(data)):
        stdout().print(table(model.name, ("opset", "nodes supported", "not registered"), rows))
    return 0


def _cure(text: str) -> str:
    return f" (cure: {text})" if text else ""
