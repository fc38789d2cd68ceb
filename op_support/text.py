"""The report as rows of a table; the command line draws it."""

from __future__ import annotations

from typing import NamedTuple

from cannc.op_support.report import Finding, SupportReport
from cannc.op_support.table import operators

_SHOWN = 3


class Row(NamedTuple):
    """One line: findings of the same kind, on the same operator, for the same reason."""

    severity: str
    code: str
    op_type: str
    nodes: str
    why: str
    atc_code: str
    cure: str


def rows(report: SupportReport) -> list[Row]:
    """Return the findings, worst first, those that differ only in the node taken together."""
    groups: dict[tuple[object, ...], list[Finding]] = {}
    for finding in report.findings:
        key = (finding.severity, finding.code, finding.op_type, finding.why, finding.cure)
        groups.setdefault(key, []).append(finding)
    return [_row(group) for group in groups.values()]


class Known(NamedTuple):
    """One operator of the tables: what is known, and how sure."""

    operator: str
    sure: str
    opsets: str
    device_operators: str


_SURE = {"open": "open source", "documented": "documented only", "unregistered": "unregistered"}


def known_operators() -> list[Known]:
    """Return all operators of the tables, in name order."""
    return [
        Known(
            key,
            _SURE[row.status],
            "any" if row.any_opset else row.opset_text,
            ", ".join(dict.fromkeys(ge for e in row.expansions for ge in e.ge)),
        )
        for key, row in operators().items()
    ]


def summary(report: SupportReport) -> str:
    """Return one line: what was checked, for which chip, and how many findings there are."""
    counts = report.to_json()["counts"]
    found = ", ".join(f"{count} {name}" for name, count in counts.items() if count)
    return (
        f"{report.nodes} nodes, opset {report.opset}, {report.target.soc}: {found or 'supported'}"
    )


def _row(group: list[Finding]) -> Row:
    first = group[0]
    names = [finding.node for finding in group[:_SHOWN]]
    more = f" and {len(group) - _SHOWN} more" if len(group) > _SHOWN else ""
    return Row(
        first.severity.value,
        first.code,
        first.op_type,
        ", ".join(filter(None, names)) + more,
        first.why,
        first.atc_code,
        first.cure,
    )
