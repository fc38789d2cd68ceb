"""Offsets of buffers in one arena, so that no two that are live together overlap.

Several greedy orders are tried; then a local search over orders puts buffers that stick out above
the lower bound before ones that were in their way. All of it is deterministic.
"""

from __future__ import annotations

import bisect
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from cannc.compiler.memory.liveness import Buffer

_SEARCH_WORK = 3_000_000
"""Pairs of buffers that the local search may look at; a few seconds at most."""
_MOST_ROUNDS = 1000
_ESCAPE = 0.1
"""Chance to go on from a worse order, which leads out of dead ends."""
_MOST_PAIRS = 4_000_000
"""Pairs of buffers that are live together; above it only the order of time is tried."""


@dataclass(frozen=True)
class Placement:
    """Where each buffer starts, and the size of the arena, in bytes."""

    offsets: tuple[int, ...]
    arena: int


def place(found: Sequence[Buffer], bound: int) -> Placement:
    """Return offsets for buffers.

    Args:
        found: The buffers.
        bound: Lower bound of the arena; reaching it ends the search.
    """
    if not found:
        return Placement((), 0)
    if _pairs(found) > _MOST_PAIRS:
        return _in_time(found)
    together = _neighbours(found)
    tried = []
    for key in _KEYS:
        order = _sorted(found, key)
        tried.append((_greedy(found, together, order), order))
        if tried[-1][0].arena <= bound:
            return tried[-1][0]
    best, order = min(tried, key=lambda entry: entry[0].arena)
    return _improve(found, together, best, order, bound)


def _sorted(found: Sequence[Buffer], key: Callable[[Buffer], tuple[int, ...]]) -> list[int]:
    return sorted(range(len(found)), key=lambda index: (key(found[index]), index))


def _length(buffer: Buffer) -> int:
    return buffer.last - buffer.first + 1


_KEYS: tuple[Callable[[Buffer], tuple[int, ...]], ...] = (
    lambda b: (-b.size, b.first),
    lambda b: (-_length(b) * b.size, b.first),
    lambda b: (-_length(b), -b.size),
    lambda b: (b.first, -b.size),
    lambda b: (-b.last, -b.size),
)


def _pairs(found: Sequence[Buffer]) -> int:
    """Return how many pairs of buffers are live together."""
    starts = sorted(buffer.first for buffer in found)
    return sum(
        bisect.bisect_right(starts, buffer.last) - bisect.bisect_left(starts, buffer.first)
        for buffer in found
    )


def _in_time(found: Sequence[Buffer]) -> Placement:
    """Place buffers as they come to life, as an allocator with a list of free blocks does."""
    offsets = [0] * len(found)
    arena = 0
    active: list[tuple[int, int, int]] = []  # offset, end, last step; by offset
    for index in sorted(range(len(found)), key=lambda i: (found[i].first, -found[i].size)):
        buffer = found[index]
        active = [entry for entry in active if entry[2] >= buffer.first]
        offset = _best_fit([entry[:2] for entry in active], buffer.size)
        offsets[index] = offset
        bisect.insort(active, (offset, offset + buffer.size, buffer.last))
        arena = max(arena, offset + buffer.size)
    return Placement(tuple(offsets), arena)


def _neighbours(found: Sequence[Buffer]) -> list[list[int]]:
    """Return, for each buffer, those that are live at some step together with it."""
    together: list[list[int]] = [[] for _ in found]
    active: list[int] = []
    for index in sorted(range(len(found)), key=lambda i: found[i].first):
        active = [other for other in active if found[other].last >= found[index].first]
        for other in active:
            together[index].append(other)
            together[other].append(index)
        active.append(index)
    return together


def _greedy(
    found: Sequence[Buffer], together: Sequence[Sequence[int]], order: Sequence[int]
) -> Placement:
    """Place buffers one by one into the tightest gap that the ones placed before leave."""
    offsets = [-1] * len(found)
    arena = 0
    for index in order:
        size = found[index].size
        taken = sorted(
            (offsets[other], offsets[other] + found[other].size)
            for other in together[index]
            if offsets[other] >= 0
        )
        offsets[index] = _best_fit(taken, size)
        arena = max(arena, offsets[index] + size)
    return Placement(tuple(offsets), arena)


def _best_fit(taken: Sequence[tuple[int, int]], size: int) -> int:
    best, best_slack, end = -1, -1, 0
    for start, stop in taken:
        slack = start - end - size
        if slack >= 0 and (best < 0 or slack < best_slack):
            best, best_slack = end, slack
        end = max(end, stop)
    return end if best < 0 else best


def _improve(
    found: Sequence[Buffer],
    together: Sequence[Sequence[int]],
    best: Placement,
    order: list[int],
    bound: int,
) -> Placement:
    """Search for a better order until the bound is reached or the work is done."""
    work = sum(map(len, together)) + len(found)
    chance = random.Random(0)
    current, tried = order, best
    for _ in range(min(_MOST_ROUNDS, _SEARCH_WORK // work)):
        if best.arena <= bound:
            break
        candidate = _moved(found, together, current, tried, bound, chance)
        attempt = _greedy(found, together, candidate)
        if attempt.arena <= tried.arena or chance.random() < _ESCAPE:
            current, tried = candidate, attempt
        if attempt.arena < best.arena:
            best = attempt
    return best


def _moved(
    found: Sequence[Buffer],
    together: Sequence[Sequence[int]],
    order: list[int],
    tried: Placement,
    bound: int,
    chance: random.Random,
) -> list[int]:
    """Return the order with one buffer that sticks out put before one that was in its way."""
    rank = {index: place for place, index in enumerate(order)}
    ends = [offset + b.size for offset, b in zip(tried.offsets, found, strict=True)]
    for limit in (tried.arena - 1, bound):
        index = chance.choice([i for i in order if ends[i] > limit])
        earlier = [other for other in together[index] if rank[other] < rank[index]]
        if earlier:
            before = rank[chance.choice(earlier)]
            rest = [other for other in order if other != index]
            return [*rest[:before], index, *rest[before:]]
    return order
