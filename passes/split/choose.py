"""Where to cut: by layers per part, by number of parts, or at named places."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Literal, TypeAlias, get_args

from cannc.compiler.core.errors import UsageError, nearest
from cannc.compiler.core.provenance import Provenance
from cannc.passes.split.costs import Costs
from cannc.passes.split.layers import Layer, boundaries, find_layers, module_of
from cannc.passes.split.line import Line, best
from cannc.passes.split.partition import partition

log = logging.getLogger(__name__)

Strategy: TypeAlias = Literal["memory_balanced", "even", "named"]
STRATEGIES: tuple[str, ...] = get_args(Strategy)

_MEMORY_SLACK = 0.1
_NODE_SLACK = 0.25
_ALL_CUTS = 192
"""Up to this many possible cuts all are tried; of more, the narrowest of each stretch."""


@dataclass(frozen=True)
class Request:
    """How to split; one of the first three is given.

    Attributes:
        layers_per_subgraph: At most this many layers in each part.
        parts: Number of parts.
        cuts: Cut after these: names of values, nodes or modules.
        strategy: ``memory_balanced``: the part that needs most memory (weights and peak of
            activations) needs as little as possible. ``even``: as many layers in each part, or
            nodes where there are no layers. ``named``: where `cuts` say; implied by them unless
            another than the default is asked for.
    """

    layers_per_subgraph: int | None = None
    parts: int | None = None
    cuts: tuple[str, ...] = ()
    strategy: str = "memory_balanced"

    def checked(self) -> Request:
        """Return it, once it is known to make sense.

        Raises:
            UsageError: ``SPL001`` a count below 1, ``SPL002`` unknown strategy, ``SPL003`` options
                that contradict each other.
        """
        if self.strategy not in STRATEGIES:
            hint = nearest(self.strategy, STRATEGIES)
            raise UsageError(
                "SPL002",
                f"no strategy is called '{self.strategy}'{hint}",
                fix=f"use {', '.join(STRATEGIES)}",
            )
        for name, count in (("layers per part", self.layers_per_subgraph), ("parts", self.parts)):
            if count is not None and count < 1:
                raise UsageError("SPL001", f"cannot split by {count} {name}", fix="1 or more")
        ways = [self.layers_per_subgraph is not None, self.parts is not None, bool(self.cuts)]
        implied = bool(self.cuts) and self.strategy == Request.strategy
        strategy = "named" if implied else self.strategy
        if sum(ways) != 1 or (strategy == "named") != bool(self.cuts):
            raise UsageError(
                "SPL003",
                "it is not clear where to split",
                why="layers per part, number of parts and named cuts exclude each other, and the "
                "strategy 'named' belongs to named cuts",
                fix="give one of --layers-per-subgraph N, --parts K, --at NAME",
            )
        return replace(self, strategy=strategy)


def choose_cuts(
    line: Line, costs: Costs, provenance: Provenance, request: Request
) -> tuple[list[int], list[Layer]]:
    """Return where to cut, and the layers that were found.

    Raises:
        UsageError: ``SPL004`` more parts than possible, ``SPL005`` no layers, and `named_cuts`'.
    """
    possible = line.cuts()
    layers = find_layers(line, provenance, possible, costs.crossing)
    if request.cuts:
        return named_cuts(line, costs, provenance, possible, request.cuts), layers
    between = boundaries(layers, possible, costs.crossing)
    chooser = _Chooser(line, costs, possible, between, len(layers), request.strategy)
    if request.layers_per_subgraph is not None:
        return chooser.by_layers(request.layers_per_subgraph), layers
    return chooser.by_parts(request.parts or 1), layers


class _Chooser:
    """Chooses cuts among the possible ones."""

    def __init__(
        self,
        line: Line,
        costs: Costs,
        possible: Sequence[int],
        between: Mapping[int, int],
        layers: int,
        strategy: str,
    ) -> None:
        self.line = line
        self.costs = costs
        self.possible = possible
        self.between = between
        self.end = len(line.nodes)
        self.is_even = strategy == "even"
        self.layer_at = {0: 0, **between, self.end: layers}

    def by_layers(self, most: int) -> list[int]:
        if len(self.layer_at) < 3:
            raise UsageError(
                "SPL005",
                "no repeated layers were found",
                why="no numbered PyTorch modules, and no block of weights that repeats"
                if self.layer_at[self.end] < 2
                else f"no cut is possible between the layers{_stuck(self.line)}",
                fix="split by number of parts (--parts K) or at named places (--at NAME)",
            )
        points = sorted(self.layer_at)
        neighbours = set(pairwise(points))

        def cost(start: int, end: int) -> float:
            if self.layers(start, end) > most and (start, end) not in neighbours:
                return float("inf")
            return self.layers(start, end) if self.is_even else self.memory(start, end)

        fewest = -(-self.layer_at[self.end] // most)
        for parts in range(min(fewest, len(points) - 1), len(points)):
            slack = 0.0 if self.is_even else _MEMORY_SLACK
            cuts = partition(points, parts, cost, self.costs.crossing, slack)
            if cuts is not None:
                return cuts
        raise AssertionError  # one layer per part is always allowed

    def by_parts(self, parts: int) -> list[int]:
        if parts - 1 > len(self.possible):
            raise UsageError(
                "SPL004",
                f"the model cannot be split into {parts} parts",
                why=f"it can be cut in {len(self.possible)} places{_stuck(self.line)}",
                fix=f"use at most {len(self.possible) + 1} parts",
            )
        by_layer = self.is_even and len(self.between) >= parts - 1
        points = sorted({0, self.end, *(self.between if by_layer else self._narrow(parts))})
        measure = self.layers if by_layer else self.nodes if self.is_even else self.memory
        slack = 0.0 if by_layer else _NODE_SLACK if self.is_even else _MEMORY_SLACK
        cuts = partition(points, parts, measure, self.costs.crossing, slack)
        assert cuts is not None  # every cost is finite
        return cuts

    def layers(self, start: int, end: int) -> float:
        return self.layer_at[end] - self.layer_at[start]

    def nodes(self, start: int, end: int) -> float:
        return end - start

    def memory(self, start: int, end: int) -> float:
        return float(sum(self.costs.memory(start, end)))

    def _narrow(self, parts: int) -> list[int]:
        """Return the cuts to try: where the fewest bytes cross, all along the line."""
        wanted = max(_ALL_CUTS // 2, 2 * parts)
        if len(self.possible) <= max(_ALL_CUTS, wanted):
            return [*self.possible]
        edges = [round(i * len(self.possible) / wanted) for i in range(wanted + 1)]
        stretches = (self.possible[a:b] for a, b in pairwise(edges))
        picked = {min(s, key=lambda cut: self.costs.crossing[cut]) for s in stretches}
        if len(self.between) <= _ALL_CUTS:
            picked.update(self.between)
        return sorted(picked)


def named_cuts(
    line: Line,
    costs: Costs,
    provenance: Provenance,
    possible: Sequence[int],
    names: Sequence[str],
) -> list[int]:
    """Return the cuts after the named values, nodes or modules, in order of the line.

    Raises:
        UsageError: ``SPL006`` nothing has this name, ``SPL007`` no cut is possible there, or two
            names mean the same cut.
    """
    stretches = _stretches(line, provenance)
    found: dict[int, str] = {}
    for name in names:
        if name not in stretches:
            raise UsageError(
                "SPL006",
                f"no value, node or module is called '{name}'{nearest(name, stretches)}",
                why="only what the main graph computes can be cut after",
                fix="'cannc inspect MODEL' lists nodes and values",
            )
        cut = best(possible, costs.crossing, *stretches[name])
        if cut is None or cut in found:
            why = f"it is at an end of the model, or cannot be cut there{_stuck(line)}"
            if cut is not None:
                why = f"it is the same place as after '{found[cut]}'"
            raise UsageError("SPL007", f"no cut is possible after '{name}'", why=why)
        found[cut] = name
    return sorted(found)


def _stretches(line: Line, provenance: Provenance) -> dict[str, tuple[int, int]]:
    """Return name -> first and last position of a cut after it."""
    found: dict[str, tuple[int, int]] = {}
    for place, node in enumerate(line.nodes):
        path = module_of(node, provenance)
        while path:
            found[path] = (place + 1, place + 1)
            path = path.rpartition(".")[0]
    for place, node in enumerate(line.nodes):
        found[node.name or ""] = (place + 1, place + 1)
    for flow in line.flows:
        if flow.made >= 0:
            until = flow.uses[0] if flow.uses else flow.made + 1
            found[flow.value.name or ""] = (flow.made + 1, until)
    return found


def _stuck(line: Line) -> str:
    names = line.stuck()
    shown = ", ".join(names[:3])
    return f"; not tensors of known type and rank: {shown} ({len(names)} in all)" if names else ""
