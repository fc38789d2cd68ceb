"""What an optimization did, what it left alone and why, and what ATC should do afterwards."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TypeVar

from cannc.compiler.core.target import Target
from cannc.compiler.core.unit import CompileUnit, Stage
from cannc.passes.ge_fusions import regions

T = TypeVar("T")
_NAMES = re.compile(r"(?<=inner value )\S+|(?<=constant )\S+(?= has more)")


@dataclass(frozen=True)
class Finding:
    """Places of one kind.

    Attributes:
        source: The pass, or the fusion of GE.
        what: What happened or would happen, or why not.
        nodes: Where.
        mark: How sure it is (`cannc.passes.ge_fusions`); empty for what we did ourselves.
        met: False where it will not happen.
    """

    source: str
    what: str
    nodes: tuple[str, ...]
    mark: str = ""
    met: bool = True


@dataclass(frozen=True)
class Explanation:
    """See the module.

    Attributes:
        target: What it was optimized for.
        applied: Rewrites by pass and form.
        missed: Near misses by pass and reason.
        undone: Passes that were undone; `Finding.what` says why.
        ge: Fusions of ATC that regions of the result should meet, or not.
    """

    target: Target
    applied: tuple[Finding, ...]
    missed: tuple[Finding, ...]
    undone: tuple[Finding, ...]
    ge: tuple[Finding, ...]


def explain(unit: CompileUnit, stages: Sequence[Stage]) -> Explanation:
    """Explain an optimization.

    Args:
        unit: Its result.
        stages: Its history, rewrites included.
    """
    target = unit.target or Target()
    rewrites = [(stage.name, rewrite) for stage in stages for rewrite in stage.rewrites]
    fused = {rewrite.node for _, rewrite in rewrites if rewrite.after}
    alive = {node.name for node in unit.model.graph.all_nodes()}
    applied = (
        (name, f"{_forms(row.before)} -> {_forms(row.after) or 'nothing'}", row.node)
        for name, row in rewrites
    )
    refused = [
        (stage.name, *text.partition(": ")[::2]) for stage in stages for text in stage.refusals
    ]
    # A place that one pass refused may have suited the next one, or be gone since.
    missed = [
        (name, _NAMES.sub("...", why), node)
        for name, node, why in dict.fromkeys(refused)
        if node in alive and node not in fused
    ]
    undone = [
        Finding(stage.name, stage.rolled_back, (), met=False)
        for stage in stages
        if stage.rolled_back
    ]
    found = [
        (r.fusion.name, f"{r.fusion.what}: {r.obstacle}" if r.obstacle else r.fusion.what, r)
        for r in regions(unit.model, target)
    ]
    ge = [
        Finding(
            source, what, tuple(r.node for r in rows), rows[0].fusion.mark, not rows[0].obstacle
        )
        for (source, what), rows in _group(found)
    ]
    return Explanation(
        target,
        tuple(Finding(*key, tuple(nodes)) for key, nodes in _group(applied)),
        tuple(Finding(*key, tuple(nodes), met=False) for key, nodes in _group(missed)),
        tuple(undone),
        tuple(ge),
    )


def _group(rows: Iterable[tuple[str, str, T]]) -> list[tuple[tuple[str, str], list[T]]]:
    groups: dict[tuple[str, str], list[T]] = {}
    for first, second, item in rows:
        groups.setdefault((first, second), []).append(item)
    return [*groups.items()]


def _forms(op_types: Sequence[str]) -> str:
    """Return operators as a reader counts them: ``2 Add, Mul``."""
    counts = dict.fromkeys(op_types, 0)
    for op_type in op_types:
        counts[op_type] += 1
    return ", ".join(f"{n} {op_type}" if n > 1 else op_type for op_type, n in counts.items())
