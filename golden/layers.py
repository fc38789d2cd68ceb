"""The rows of a report, put together from the alignment and what was measured."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TypeAlias

from cannc.golden.align import Alignment, Pair, Row
from cannc.golden.ledger import Ledger
from cannc.golden.report import Layer

Ledgers: TypeAlias = "tuple[Ledger | None, Ledger | None]"
"""Accumulated and isolated."""


def make_layers(
    alignment: Alignment,
    shapes: Mapping[str, tuple[int, ...]],
    dtypes: Mapping[str, str],
    ledgers: Ledgers,
) -> tuple[Layer, ...]:
    """Return one layer per row.

    Args:
        alignment: The rows.
        shapes: Row name -> golden's shape.
        dtypes: Candidate value -> numpy's name of its dtype.
        ledgers: What was measured.
    """
    pairs = alignment.pairs
    return tuple(_layer(r, pairs.get(r.name), shapes, dtypes, ledgers) for r in alignment.rows)


def _layer(
    row: Row,
    pair: Pair | None,
    shapes: Mapping[str, tuple[int, ...]],
    dtypes: Mapping[str, str],
    ledgers: Ledgers,
) -> Layer:
    findings = [ledger.finding(row.name) if ledger else None for ledger in ledgers]
    notes = [ledger.notes.get(row.name, "") for ledger in ledgers if ledger]
    return Layer(
        name=row.name,
        kind=row.kind,
        op_type=row.op_type,
        node=row.node,
        candidate=pair.candidate.name if pair else "",
        candidate_node=row.candidate_node,
        stands_for=row.stands_for,
        module=row.module,
        dtype=dtypes.get(pair.candidate.name, "") if pair else "",
        shape=shapes.get(row.name),
        perm=pair.candidate.perm if pair else None,
        owned=row.owned,
        arriving=findings[0],
        added=findings[1],
        note=next(filter(None, notes), ""),
    )


def warnings_of(alignment: Alignment, outputs: tuple[str, ...]) -> Iterator[str]:
    """Yield what the reader should know before trusting the rows."""
    if alignment.by_name:
        yield (
            "golden and candidate do not descend from the same model, as far as their provenance"
            " says: values were matched by name"
        )
    kinds = {row.name: row.kind for row in alignment.rows}
    lost = [name for name, kind in kinds.items() if kind == "unknown"]
    if lost:
        yield f"{len(lost)} values were lost track of, e.g. {lost[0]}: a bug of cannc"
    for name in outputs:
        if kinds.get(name) != "compared":
            yield f"graph output {name} was not compared ({kinds.get(name, 'unmatched')})"
