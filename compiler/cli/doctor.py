"""``cannc doctor``: what is installed, and what that enables."""

from __future__ import annotations

from pathlib import Path

import click

from cannc.compiler.cli import options


@click.command(short_help="What is installed and what it enables.")
@click.option("--atc", type=options.FILE, metavar="PATH", help="Where ATC is.")
@click.option(
    "--require",
    "required",
    multiple=True,
    metavar="PART",
    help="Exit 3 if this part is missing; may be repeated.",
)
@options.common
def doctor(atc: Path | None, required: tuple[str, ...], json_out: str | None, quiet: bool) -> None:
    """List what cannc can use on this machine, what each part enables, and what is missing."""
    from cannc.compiler.cli.console import dump, stdout, table, write_json
    from cannc.compiler.doctor import examine, require

    findings = examine(atc)
    rows = [vars(finding) for finding in findings]
    if not write_json(json_out, dump({"schema_version": 1, "parts": rows})):
        console = stdout()
        console.print(
            table(
                "This machine",
                ("part", "", "version", "enables"),
                [(f.name, "yes" if f.present else "no", f.version, f.enables) for f in findings],
            )
        )
        for finding in findings:
            if finding.advice:
                console.print(f"{finding.name}: {finding.advice}", markup=False)
    require(findings, required)
