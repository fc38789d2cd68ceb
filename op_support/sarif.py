"""The report as SARIF 2.1.0, the format that code-scanning services read."""

from __future__ import annotations

from importlib import metadata
from typing import Any
from urllib.parse import quote

from cannc.op_support.report import KINDS, Finding, Severity, SupportReport

SCHEMA_URI = "https://json.schemastore.org/sarif-2.1.0.json"
_LEVELS = {
    Severity.REFUSED: "error",
    Severity.WRONG: "error",
    Severity.RISK: "warning",
    Severity.SLOW: "note",
    Severity.UNKNOWN: "note",
}


def to_sarif(report: SupportReport, artifact: str) -> dict[str, Any]:
    """Return the report as a SARIF log with one run.

    Args:
        report: The report.
        artifact: Name or relative path of the model file, as the log shall show it.
    """
    uri = quote(artifact)
    codes = sorted({finding.code for finding in report.findings})
    return {
        "$schema": SCHEMA_URI,
        "version": "2.1.0",
        "runs": [
            {
                "tool": {
                    "driver": {
                        "name": "cannc",
                        "version": metadata.version("cannc"),
                        "rules": [_rule(code) for code in codes],
                    }
                },
                "artifacts": [{"location": {"uri": uri}}],
                "results": [
                    _result(finding, codes.index(finding.code), uri) for finding in report.findings
                ],
                "properties": {
                    "soc": report.target.soc,
                    "cann": report.target.cann or "",
                    "verdict": report.verdict,
                },
            }
        ],
    }


def _rule(code: str) -> dict[str, Any]:
    kind = KINDS[code]
    return {
        "id": code,
        "shortDescription": {"text": kind.title},
        "properties": {"stage": kind.stage},
    }


def _result(finding: Finding, rule: int, uri: str) -> dict[str, Any]:
    subject = f"{finding.op_type} '{finding.node}'" if finding.node else "the model"
    message = f"{subject}: {finding.why}"
    if finding.cure:
        message += f". Cure: {finding.cure}"
    location: dict[str, Any] = {"physicalLocation": {"artifactLocation": {"uri": uri, "index": 0}}}
    if finding.node:
        location["logicalLocations"] = [
            {"name": finding.node, "fullyQualifiedName": finding.node, "kind": "node"}
        ]
    return {
        "ruleId": finding.code,
        "ruleIndex": rule,
        "level": _LEVELS[finding.severity],
        "message": {"text": message},
        "locations": [location],
        "properties": {
            "severity": finding.severity.value,
            "source": finding.source,
            "atcCode": finding.atc_code,
            "module": finding.module,
        },
    }
