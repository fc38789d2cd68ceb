"""``cannc targets``: the SoCs that ``--soc`` takes."""

from __future__ import annotations

import click

from cannc.compiler.cli import options


@click.command(short_help="List the SoCs that --soc takes.")
@options.common
def targets(json_out: str | None, quiet: bool) -> None:
    """List known SoCs: family, AI cores, memory, and derived float16 peak."""
    from cannc.compiler.cli.console import dump, size, stdout, table, write_json
    from cannc.compiler.core.target import soc_table

    if write_json(json_out, dump({"schema_version": 1, "soc": soc_table()})):
        return
    rows = [
        (
            name,
            facts["family"],
            facts["ai_core"],
            size(facts["memory_bytes"]) if facts.get("memory_bytes") else "not stated",
            facts.get("fp16_peak_tflops_derived", ""),
        )
        for name, facts in sorted(soc_table().items())
    ]
    columns = ("soc", "family", "AI cores", "memory", "float16 peak, TFLOPS (derived)")
    stdout().print(table("Targets", columns, rows))
