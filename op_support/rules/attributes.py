"""Attributes that the device ignores, where their value makes a difference."""

from __future__ import annotations

from collections.abc import Iterator

from cannc.op_support.advice import attribute_cure
from cannc.op_support.report import Finding, Severity
from cannc.op_support.rules.conditions import CONDITIONS
from cannc.op_support.rules.outcome import Outcome
from cannc.op_support.schema import Effect, Operator
from cannc.op_support.site import PLUGIN, Site
from cannc.op_support.table import fused_operators


def check(site: Site, entry: Operator) -> Iterator[Finding]:
    """Yield findings about attributes that are read wrongly or not at all."""
    for name, effect in entry.effects.items():
        condition = CONDITIONS.get((site.op_type, name))
        if condition is None or (effect.opsets is not None and site.version not in effect.opsets):
            continue
        outcome = condition(site)
        if outcome is not None:
            yield _affected(site, name, effect, outcome)
    for name in entry.never_read:
        if name not in entry.effects and site.has(name):
            yield site.finding(
                "OP031",
                Severity.UNKNOWN,
                f"{name} is never read; whether that matters is not known",
                source=PLUGIN,
            )
    yield from _fused(site, frozenset(entry.effects))


def _affected(site: Site, name: str, effect: Effect, outcome: Outcome) -> Finding:
    wrong = effect.effect == "silently_wrong" and effect.confidence == "high" and outcome.sure
    if wrong:
        severity = Severity.WRONG
    else:
        severity = Severity.UNKNOWN if effect.effect == "unknown" else Severity.RISK
    return site.finding(
        "OP030" if wrong else "OP031",
        severity,
        f"{name}: {outcome.why}",
        source=f"{PLUGIN}, {effect.confidence} confidence",
        cure=attribute_cure(site.op_type, name),
    )


def _fused(site: Site, judged: frozenset[str]) -> Iterator[Finding]:
    """Attributes of a fused operator that its plugin does not read and that say something else."""
    fused = fused_operators().get(site.key)
    if fused is None:
        return
    for name in site.node.attributes:
        known = fused.attributes.get(name)
        if name in judged or (known is not None and known.read is not False):
            continue
        value = site.get(name)
        if known is None:
            why = f"{name} is not an attribute that the plugin names: it is lost"
        elif value in (known.fixed, known.default):
            continue
        else:
            used = known.default if known.fixed is None else known.fixed
            why = f"{name}={value} is never read; the operator uses {used}"
        yield site.finding("OP031", Severity.RISK, why, source="npu-ops.md section 2")
