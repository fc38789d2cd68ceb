"""What a check found: findings, how bad they are, and the report that holds them."""

from __future__ import annotations

import enum
from collections import Counter
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from typing import Any, Literal, NamedTuple

from cannc.compiler.core.target import Target

SCHEMA_VERSION = 1

Stage = Literal["parser", "kernel", "shape", "numerics"]
"""Where it would show: ATC's ONNX parser, the SoC's kernels, shape inference, or the numbers."""


class Severity(enum.Enum):
    """How bad a finding is, worst first."""

    REFUSED = "refused"
    """ATC stops, or crashes."""
    WRONG = "silently_wrong"
    """ATC converts; the device computes something else than the model says."""
    RISK = "risk"
    """May fail or differ, depending on release, shapes or closed code."""
    SLOW = "slow"
    """Works, but not on the AI Core."""
    UNKNOWN = "unknown"
    """The tables do not say."""


_ORDER = {severity: index for index, severity in enumerate(Severity)}


class Kind(NamedTuple):
    """What a finding code stands for."""

    title: str
    stage: Stage


KINDS: dict[str, Kind] = {
    "OP001": Kind("operator without a plugin", "parser"),
    "OP002": Kind("operator registered for other opsets only", "parser"),
    "OP003": Kind("operator name that only the exporter uses", "parser"),
    "OP004": Kind("operator that only documents list", "parser"),
    "OP010": Kind("connected input that the device operator lacks", "parser"),
    "OP011": Kind("used output that the device operator lacks", "parser"),
    "OP012": Kind("missing required input", "parser"),
    "OP020": Kind("node form that the plugin refuses", "parser"),
    "OP021": Kind("node form that crashes the compiler", "parser"),
    "OP022": Kind("node form that fails after parsing", "shape"),
    "OP030": Kind("attribute that the device ignores", "numerics"),
    "OP031": Kind("attribute that the device may ignore", "numerics"),
    "OP032": Kind("constant whose value the parser drops", "numerics"),
    "OP033": Kind("node form that may compute something else", "numerics"),
    "OP040": Kind("input that should be constant", "shape"),
    "OP041": Kind("output shape that depends on data", "shape"),
    "OP050": Kind("dtype that no kernel takes", "kernel"),
    "OP051": Kind("work that only the AI CPU does", "kernel"),
    "OP052": Kind("fused operator without a known kernel", "kernel"),
    "OP053": Kind("float32 on a matrix unit without float32", "kernel"),
    "OP060": Kind("several operator domains", "parser"),
    "OP061": Kind("domain that is not imported", "parser"),
    "OP062": Kind("local function", "parser"),
    "OP063": Kind("model without inputs or outputs", "parser"),
    "OP064": Kind("node name used twice", "parser"),
    "OP065": Kind("empty output name beside an empty input name", "numerics"),
    "OP066": Kind("input that is not a tensor", "parser"),
    "OP067": Kind("tensor dtype that the parser cannot hold", "parser"),
    "OP068": Kind("sparse weights", "numerics"),
    "OP069": Kind("external data that the parser misreads", "parser"),
    "OP070": Kind("file over 2 GB", "parser"),
    "OP071": Kind("4-bit weights in a form that the parser misreads", "numerics"),
    "OP072": Kind("tensor rank above the limit", "shape"),
    "OP073": Kind("tensor with a zero dimension", "shape"),
}
"""Every finding code. Codes are stable: scripts may match on them."""


@dataclass(frozen=True)
class Finding:
    """One thing that stands between a model and its target.

    Attributes:
        code: Stable code, see `KINDS`.
        severity: How bad it is.
        node: Scope-qualified node name; "" for the model as a whole.
        op_type: Operator, with its domain unless it is the default one.
        why: The reason, in the reader's terms.
        source: Where the fact comes from.
        atc_code: Error code that ATC prints; "" when it prints none.
        cure: What to do about it, if something is known.
        module: PyTorch module path of the original node, if known.
    """

    code: str
    severity: Severity
    node: str
    op_type: str
    why: str
    source: str = ""
    atc_code: str = ""
    cure: str = ""
    module: str = ""

    @property
    def stage(self) -> Stage:
        """Where it would show."""
        return KINDS[self.code].stage

    def to_dict(self) -> dict[str, Any]:
        """Return the finding as JSON-ready values."""
        return {**asdict(self), "severity": self.severity.value, "stage": self.stage}


@dataclass(frozen=True)
class SupportReport:
    """All findings of one model, worst first, in graph order.

    Attributes:
        target: What the model was checked for.
        opset: The model's default-domain opset; 0 when it imports none.
        nodes: How many nodes were checked, all graphs and bodies together.
        findings: All findings.
    """

    target: Target
    opset: int
    nodes: int
    findings: tuple[Finding, ...] = ()

    @classmethod
    def of(
        cls, target: Target, opset: int, nodes: int, findings: Iterable[Finding]
    ) -> SupportReport:
        """Build a report; equal findings are kept once."""
        unique = dict.fromkeys(findings)
        ordered = sorted(unique, key=lambda finding: _ORDER[finding.severity])
        return cls(target, opset, nodes, tuple(ordered))

    def of_severity(self, severity: Severity) -> list[Finding]:
        """Return the findings of one severity."""
        return [finding for finding in self.findings if finding.severity is severity]

    @property
    def refused(self) -> list[Finding]:
        """What ATC would refuse."""
        return self.of_severity(Severity.REFUSED)

    @property
    def wrong(self) -> list[Finding]:
        """What the device would silently compute differently."""
        return self.of_severity(Severity.WRONG)

    @property
    def risks(self) -> list[Finding]:
        """What may fail or differ."""
        return self.of_severity(Severity.RISK)

    @property
    def verdict(self) -> str:
        """The worst severity found, or ``supported``."""
        return self.findings[0].severity.value if self.findings else "supported"

    @property
    def exit_code(self) -> int:
        """1 when something is refused or silently wrong, else 0."""
        return int(bool(self.refused or self.wrong))

    def to_json(self) -> dict[str, Any]:
        """Return the report as JSON-ready values; the same for the same model and target."""
        counts = Counter(finding.severity for finding in self.findings)
        return {
            "schema_version": SCHEMA_VERSION,
            "soc": self.target.soc,
            "cann": self.target.cann,
            "opset": self.opset,
            "nodes": self.nodes,
            "verdict": self.verdict,
            "counts": {severity.value: counts[severity] for severity in Severity},
            "findings": [finding.to_dict() for finding in self.findings],
        }
