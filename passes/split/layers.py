"""The layers of a model: by PyTorch module path, else by repeated structure.

A layer is known by the stretch of the line that surely belongs to it. Between the stretches of two
layers, the cut goes where the fewest bytes cross.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from statistics import median_low
from typing import NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt
import onnx_ir as ir

from cannc.compiler.core.provenance import Provenance, origins
from cannc.passes.split.line import Line, best

Labels: TypeAlias = "npt.NDArray[np.int64]"
Block: TypeAlias = "tuple[int, int]"
"""First anchor of a block, and the first one after it."""
_ALIKE = 0.5
"""Share of operator types that two modules of one list have in common at least."""
_MOST = 0.6
"""A repetition that covers this share of the weights is the model's list of layers."""


@dataclass(frozen=True)
class Layer:
    """One layer.

    Attributes:
        name: Module path, or ``layer.3`` where structure alone tells.
        places: Positions in the line that belong to it, ascending.
    """

    name: str
    places: tuple[int, ...]


def find_layers(
    line: Line, provenance: Provenance, cuts: Sequence[int], crossing: Sequence[int]
) -> list[Layer]:
    """Return the layers in order; fewer than two means that none were found."""
    found = _by_module(line, provenance)
    return found if len(found) > 1 else _by_structure(line, cuts, crossing)


def boundaries(
    layers: Sequence[Layer], cuts: Sequence[int], crossing: Sequence[int]
) -> dict[int, int]:
    """Return cut -> number of layers before it, where a cut between two layers is possible."""
    found: dict[int, int] = {}
    for count, (before, after) in enumerate(pairwise(layers), start=1):
        first, last = before.places[-1] + 1, after.places[0]
        if first > last:  # interleaved: most of each layer has to be on its side
            first, last = median_low(before.places) + 1, median_low(after.places)
        cut = best(cuts, crossing, first, last)
        if cut is not None and cut not in found:
            found[cut] = count
    return found


def module_of(node: ir.Node, provenance: Provenance) -> str:
    """Return the PyTorch module path of the first original node that a node stands for."""
    known = (provenance.nodes[name].module for name in origins(node) if name in provenance.nodes)
    return next(known, "")


def _by_module(line: Line, provenance: Provenance) -> list[Layer]:
    """Take the outermost numbered modules, e.g. ``encoder.layer.3``, of lists of like modules."""
    numbered = [list(_numbered(module_of(node, provenance))) for node in line.nodes]
    kinds: dict[str, dict[int, set[str]]] = {}
    for node, lists in zip(line.nodes, numbered, strict=True):
        for stem, index in lists:
            kinds.setdefault(stem, {}).setdefault(index, set()).add(node.op_type)
    alike = {stem for stem, members in kinds.items() if _are_alike(members)}
    places: dict[str, list[int]] = {}
    for place, lists in enumerate(numbered):
        name = next((f"{stem}{index}" for stem, index in lists if stem in alike), None)
        if name is not None:
            places.setdefault(name, []).append(place)
    layers = [Layer(name, tuple(found)) for name, found in places.items()]
    return sorted(layers, key=lambda layer: median_low(layer.places))


def _numbered(path: str) -> Iterator[tuple[str, int]]:
    """Yield (path before the number, number) of each numbered module of a path, outermost first."""
    stem = ""
    for part in path.split("."):
        if part.isdecimal():
            yield stem, int(part)
        stem += f"{part}."


def _are_alike(members: dict[int, set[str]]) -> bool:
    """Do most neighbours of a list have the same kinds of nodes?"""
    kinds = [members[index] for index in sorted(members)]
    pairs = [len(a & b) / len(a | b) >= _ALIKE for a, b in pairwise(kinds)]
    return bool(pairs) and sum(pairs) * 2 >= len(pairs)


def _by_structure(line: Line, cuts: Sequence[int], crossing: Sequence[int]) -> list[Layer]:
    """Find blocks of nodes with weights of the same shapes that follow one another."""
    anchors = [place for place, node in enumerate(line.nodes) if _weight_forms(line, node)]
    codes: dict[str, int] = {}
    labels = [codes.setdefault(_label(line, line.nodes[a]), len(codes)) for a in anchors]
    blocks: list[Block] = []
    repeats = _Repeats(line, anchors, np.array(labels, np.int64))
    for stretch in _repetitions(repeats, 0, len(labels)):
        if blocks and blocks[-1][1] < stretch.first:
            blocks.append((blocks[-1][1], stretch.first))  # what stands between two repetitions
        phases = [*stretch.phases()]
        bytes_of = [_bytes_between(phase, anchors, cuts, crossing) for phase in phases]
        blocks += phases[bytes_of.index(min(bytes_of))]
    return [
        Layer(f"layer.{index}", tuple(anchors[first:last]))
        for index, (first, last) in enumerate(blocks)
    ]


def _bytes_between(
    blocks: Sequence[Block], anchors: Sequence[int], cuts: Sequence[int], crossing: Sequence[int]
) -> float:
    """Return the fewest bytes that cross cuts between all blocks; infinite without such cuts."""
    total = 0.0
    for before, after in pairwise(blocks):
        cut = best(cuts, crossing, anchors[before[1] - 1] + 1, anchors[after[0]])
        total += float("inf") if cut is None else crossing[cut]
    return total


def _weight_forms(line: Line, node: ir.Node) -> list[str]:
    """Return dtype and shape of the matrices and kernels among a node's constants."""
    constants = [value for value in line.reads(node) if line.is_constant(value)]
    return [
        f"{value.dtype}{value.shape}"
        for value in constants
        if value.shape is not None and sum(dim != 1 for dim in value.shape) > 1
    ]


def _label(line: Line, node: ir.Node) -> str:
    """Return what is the same for a node in every repetition of a block: its canonical form."""
    attributes = sorted(
        f"{name}={attribute.value}"
        for name, attribute in node.attributes.items()
        if attribute.type not in (ir.AttributeType.GRAPH, ir.AttributeType.GRAPHS)
    )
    return repr((node.domain, node.op_type, attributes, _weight_forms(line, node)))


class _Stretch(NamedTuple):
    """Anchors [first, last) that repeat a block of `period` anchors."""

    first: int
    last: int
    period: int

    def phases(self) -> Iterator[list[Block]]:
        """Yield the ways to divide it into whole blocks: where a block begins is not known."""
        count, rest = divmod(self.last - self.first, self.period)
        for begin in range(self.first, self.first + rest + 1):
            yield [(begin + i * self.period, begin + (i + 1) * self.period) for i in range(count)]


class _Repeats:
    """Searches the sequence of anchors for repeated blocks."""

    def __init__(self, line: Line, anchors: Sequence[int], labels: Labels) -> None:
        self.line = line
        self.anchors = anchors
        self.labels = labels
        self.place = {node: index for index, node in enumerate(line.nodes)}

    def longest(self, start: int, end: int) -> _Stretch | None:
        """Return the longest stretch in [start, end) whose blocks follow on one another."""
        labels = self.labels[start:end]
        found = []
        for period in range(1, len(labels) // 2 + 1):
            differs = np.flatnonzero(labels[period:] != labels[:-period])
            edges = np.concatenate(([-1], differs, [len(labels) - period]))
            lengths = np.diff(edges) - 1
            at = int(lengths.argmax())
            if lengths[at] >= period:
                first = start + int(edges[at]) + 1
                found.append(_Stretch(first, first + int(lengths[at]) + period, period))
        found.sort(key=lambda stretch: (stretch.first - stretch.last, stretch.period))
        return next((stretch for stretch in found if self._is_sequence(stretch)), None)

    def _is_sequence(self, stretch: _Stretch) -> bool:
        """Does each block need the one before it? Query, key and value are alike but do not."""
        blocks = next(stretch.phases())
        return all(self._needs(after, before) for before, after in pairwise(blocks))

    def _needs(self, block: Block, other: Block) -> bool:
        wanted = set(self.anchors[slice(*other)])
        first, seen = min(wanted), set(self.anchors[slice(*block)])
        pending = [*seen]
        while pending:
            for value in self.line.reads(self.line.nodes[pending.pop()]):
                place = self.place.get(value.producer(), -1)  # type: ignore[arg-type]
                if place in wanted:
                    return True
                if place >= first and place not in seen:
                    seen.add(place)
                    pending.append(place)
        return False


def _repetitions(repeats: _Repeats, start: int, end: int) -> Iterator[_Stretch]:
    """Yield the repeated blocks in [start, end), in order.

    The longest repetition is taken; what is left beside it is searched too where that is much.
    """
    found = repeats.longest(start, end)
    if found is None:
        return
    is_part = found.last - found.first < _MOST * (end - start)
    if is_part:
        yield from _repetitions(repeats, start, found.first)
    yield found
    if is_part:
        yield from _repetitions(repeats, found.last, end)
