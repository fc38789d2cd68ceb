"""How ``cannc optimize`` shows what was done."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from rich.console import Console

from cannc.compiler.cli.console import table
from cannc.compiler.core.unit import Stage
from cannc.compiler.explaining import Explanation, Finding

_SHOWN = 2
_TITLES = (
    ("applied", "What applied", ("pass", "rewrite", "times", "at")),
    ("undone", "What was undone", ("pass", "why", "", "")),
    ("missed", "What came near and was left alone", ("pass", "why", "times", "at")),
)


def as_data(stages: Sequence[Stage], explanation: Explanation | None) -> dict[str, Any]:
    """Return the result for machines."""
    rows = [{k: v for k, v in vars(s).items() if k != "rewrites"} for s in stages]
    data: dict[str, Any] = {"schema_version": 1, "stages": rows}
    if explanation is not None:
        data["explanation"] = asdict(explanation)
    return data


def print_stages(console: Console, title: str, stages: Sequence[Stage]) -> None:
    """Print one line per pass that did or refused something, and the notes."""
    rows = [
        (
            stage.name,
            "undone" if stage.rolled_back else stage.applied,
            stage.nodes_before,
            stage.nodes_after,
            f"{stage.seconds * 1000:.0f}",
            len(stage.refusals),
        )
        for stage in stages
        if stage.applied or stage.refusals or stage.rolled_back
    ]
    columns = ("pass", "applied", "nodes before", "after", "ms", "refused")
    console.print(table(title, columns, rows))
    for stage in stages:
        for note in stage.notes:
            console.print(f"note: {stage.name}: {note}", markup=False)
        if stage.rolled_back:
            console.print(f"undone: {stage.name}: {stage.rolled_back}", markup=False)


def print_explanation(console: Console, explanation: Explanation) -> None:
    """Print what applied, what did not, and what ATC should make of the rest."""
    for attribute, title, columns in _TITLES:
        findings = getattr(explanation, attribute)
        if findings:
            console.print()
            rows = [(f.source, f.what, len(f.nodes) or "", _places(f)) for f in findings]
            console.print(table(title, columns, rows))
    console.print()
    expected = [(_outlook(f), f.source, f.what, len(f.nodes), _places(f)) for f in explanation.ge]
    title = f"What ATC should fuse on {explanation.target.soc} (read, not run)"
    console.print(table(title, ("", "fusion of GE", "region", "times", "at"), expected))


def _outlook(finding: Finding) -> str:
    return finding.mark if finding.met else "no"


def _places(finding: Finding) -> str:
    more = len(finding.nodes) - _SHOWN
    return ", ".join(finding.nodes[:_SHOWN]) + (f" and {more} more" if more > 0 else "")
