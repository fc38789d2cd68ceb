"""What the operator check says before a compile (D24)."""

from __future__ import annotations

from cannc.compiler.core.errors import UnsupportedOpError
from cannc.op_support.report import SupportReport

_NOT_A2 = (
    "Ascend910B is a chip of the first 910 generation; the A2 chips, which users call 910B, are "
    "Ascend910B1 to Ascend910B4 (npu-smi info shows which)"
)


def notes_of(report: SupportReport) -> tuple[str, ...]:
    """Return what the user should know about target and findings; empty when there is nothing."""
    soc = report.target.soc
    counts = (
        (len(report.refused), f"ATC would refuse for {soc}"),
        (len(report.wrong), f"ATC would compile wrongly for {soc}"),
        (len(report.risks), f"carry a risk on {soc}"),
    )
    first = (_NOT_A2,) if soc == "Ascend910B" else ()
    found = [f"{count} findings that {text}" for count, text in counts if count]
    return (*first, *found, "'cannc check' lists them") if found else first


def require_support(report: SupportReport) -> None:
    """Refuse a model with nodes that the target's compiler would refuse.

    Raises:
        UnsupportedOpError: ``BCK004``.
    """
    if not report.refused:
        return
    first = report.refused[0]
    raise UnsupportedOpError(
        "BCK004",
        f"{report.target.soc} refuses {len(report.refused)} nodes",
        where=f"first: node {first.node} ({first.op_type})",
        why=f"{first.why} ({first.atc_code})" if first.atc_code else first.why,
        fix=first.cure or "'cannc check' lists all of them with their cures",
    )
