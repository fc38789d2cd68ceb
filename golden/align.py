"""Which value of the candidate shows which value of the original model.

Both sides descend from the same original model; each carries the fates of its values. A row is made
for every original value that the golden side shows, and the candidate's fate says where to look:
under the same name, under another one (transposed or not), or nowhere, and why.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Literal, TypeAlias

import numpy as np
import onnx_ir as ir

from cannc.compiler.core.graphs import all_graphs
from cannc.compiler.core.provenance import Fate, OriginalNode
from cannc.compiler.core.runner import Array
from cannc.compiler.core.unit import CompileUnit
from cannc.golden.regions import Region, regions

Kind: TypeAlias = Literal[
    "compared",
    "inside",
    "folded",
    "dead",
    "branch",
    "sequence",
    "undumped",
    "unmatched",
    "unknown",
]
Perm: TypeAlias = "tuple[int, ...] | None"


@dataclass(frozen=True)
class Place:
    """A tensor of a model's main graph; transposing it by `perm` gives the original value."""

    name: str
    perm: Perm = None

    def original(self, array: Array) -> Array:
        """Return the array in the original layout."""
        return array if self.perm is None else array.transpose(self.perm)

    def stored(self, array: Array) -> Array:
        """Return an array of the original layout in the layout of this place."""
        return array if self.perm is None else array.transpose(np.argsort(self.perm))


@dataclass(frozen=True)
class Pair:
    """One original value that both sides show.

    Attributes:
        row: Its row in the alignment.
        golden: Where golden shows it.
        candidate: Where the candidate shows it.
    """

    row: Row
    golden: Place
    candidate: Place


@dataclass(frozen=True)
class Row:
    """One original value.

    Attributes:
        name: Key of the original value.
        kind: ``compared``: both sides show it. ``inside``: computed inside `candidate_node`.
            ``folded``: a constant of the candidate. ``dead``: the candidate does not need it.
            ``branch``: inside a body of If, Loop or Scan, compared at that node's outputs.
            ``sequence``: not a tensor. ``undumped``: the device left no dump of it.
            ``unmatched``: no such name, where only names match. ``unknown``: lost track, which is
            a bug of cannc.
        op_type: Operator that computed it in the original model.
        node: Name of that node.
        module: PyTorch module path, if known.
        candidate_node: The candidate's node that computes it, alone or with others.
        stands_for: All original nodes whose work ends in this value in the candidate.
        owned: Errors of `candidate_node` are charged to this row; one row per candidate value.
    """

    name: str
    kind: Kind
    op_type: str = ""
    node: str = ""
    module: str = ""
    candidate_node: str = ""
    stands_for: tuple[str, ...] = ()
    owned: bool = False


@dataclass(frozen=True)
class Alignment:
    """All rows, in original order, and where to look for those that both sides show.

    Attributes:
        rows: One per original value that golden shows.
        pairs: Row name -> where it is shown, for rows of kind ``compared``.
        by_name: The two sides do not descend from the same model; only names were matched.
    """

    rows: tuple[Row, ...]
    pairs: Mapping[str, Pair]
    by_name: bool


def align(
    golden: CompileUnit, candidate: CompileUnit, hidden: Mapping[str, Kind] | None = None
) -> Alignment:
    """Match the values of two models.

    Args:
        golden: The original.
        candidate: The other model.
        hidden: Values of the candidate's main graph that nobody can look at, and the kind that
            their rows get.
    """
    by_name = golden.provenance.digest != candidate.provenance.digest
    here, there = _Side.of(golden, {}), _Side.of(candidate, hidden or {})
    if by_name:
        names = golden.provenance.producers()
        fates = {name: Fate(name, "same") for name in names if name in there.values}
    else:
        fates = {fate.value: fate for fate in candidate.fates()}
    found = [*_rows(golden, here, there, fates), *_passed_through(golden, there)]
    shown = {row.name: (first, second) for row, first, second in found if first and second}
    work = regions(candidate.model, {second.name for _, second in shown.values()})
    rows = _with_owners([row for row, _, _ in found], shown, work)
    pairs = {row.name: Pair(row, *shown[row.name]) for row in rows if row.name in shown}
    return Alignment(tuple(rows), pairs, by_name)


_Found: TypeAlias = "tuple[Row, Place | None, Place | None]"


def _rows(
    golden: CompileUnit, here: _Side, there: _Side, fates: Mapping[str, Fate]
) -> Iterator[_Found]:
    producers = golden.provenance.producers()
    for reference in golden.fates():
        first = _place(reference)
        if first is None:
            continue
        fate = fates.get(reference.value, Fate(reference.value, "unknown"))
        second = _place(fate)
        kind: Kind
        if reference.value not in fates:
            kind = "unmatched"
        elif second is None:
            kind = _kind_of(fate)
        else:
            kind = here.hides(first.name) or there.hides(second.name) or "compared"
        row = _row(producers[reference.value], reference.value, kind)
        if kind == "compared":
            yield row, first, second
        else:
            yield replace(row, candidate_node=fate.target if kind == "inside" else ""), None, None


def _passed_through(golden: CompileUnit, there: _Side) -> Iterator[_Found]:
    """Yield graph outputs that no original node computes: inputs and constants handed on."""
    producers = golden.provenance.producers()
    for value in golden.model.graph.outputs:
        name = value.name or ""
        if name in producers:
            continue
        if name in there.top:
            yield Row(name, "compared"), Place(name), Place(name)
        else:
            yield Row(name, "unmatched"), None, None


def _row(node: OriginalNode, value: str, kind: Kind) -> Row:
    return Row(value, kind, node.op_type, node.name, node.module)


def _kind_of(fate: Fate) -> Kind:
    if fate.kind in ("inside", "folded", "dead"):
        return fate.kind
    return "unknown"


def _place(fate: Fate) -> Place | None:
    if fate.kind == "same":
        return Place(fate.value)
    return Place(fate.target, fate.perm) if fate.kind == "alias" else None


def _with_owners(
    rows: list[Row], shown: Mapping[str, tuple[Place, Place]], work: Mapping[str, Region]
) -> list[Row]:
    """Fill in which candidate node computes each compared row, and which row answers for it.

    Several original values may be one value of the candidate, e.g. around a removed Identity. The
    row whose original node the candidate's node stands for is charged; among several, the one
    whose name the candidate's value bears, else the last.
    """
    groups: dict[str, list[Row]] = {}
    for row in rows:
        if row.name in shown:
            groups.setdefault(shown[row.name][1].name, []).append(row)
    charged: set[str] = set()
    for value, group in groups.items():
        region = work.get(value)
        if region is None:
            continue
        suspects = [row for row in group if row.node in region.stands_for] or group
        named = [row for row in suspects if row.name == value] or suspects
        charged.add(named[-1].name)

    holders = {name: region for region in work.values() for name in region.stands_for}

    def filled(row: Row) -> Row:
        if row.kind == "inside" and row.node in holders:
            return replace(row, candidate_node=holders[row.node].node_for(row.node))
        region = work.get(shown[row.name][1].name) if row.name in shown else None
        if region is None:
            return row
        return replace(
            row,
            candidate_node=region.node_for(row.node),
            stands_for=region.stands_for,
            owned=row.name in charged,
        )

    return [filled(row) for row in rows]


@dataclass(frozen=True)
class _Side:
    """Look-up tables over one model: all values by key, and the names of the main graph."""

    values: dict[str, ir.Value]
    top: frozenset[str]
    hidden: Mapping[str, Kind]

    @classmethod
    def of(cls, unit: CompileUnit, hidden: Mapping[str, Kind]) -> _Side:
        values: dict[str, ir.Value] = {}
        for scope, graph in all_graphs(unit.model.graph):
            inner = [*graph.inputs, *(v for node in graph for v in node.outputs)]
            values.update({f"{scope}{v.name}": v for v in inner})
        graph = unit.model.graph
        top = [*graph.inputs, *graph.initializers.values(), *(v for n in graph for v in n.outputs)]
        return cls(values, frozenset(v.name or "" for v in top), hidden)

    def hides(self, name: str) -> Kind | None:
        """Return why a value that exists cannot be compared, or None."""
        if name not in self.top:
            return "branch"
        if name in self.hidden:
            return self.hidden[name]
        kind = self.values[name].type
        return None if kind is None or isinstance(kind, ir.TensorType) else "sequence"
