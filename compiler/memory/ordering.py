"""Orders of the steps with a lower peak: list scheduling by what a step adds and frees.

Greedy lists are linear in the size of the graph; small graphs get a beam search as well. Every
order keeps the edges, and the order of operators that draw random numbers.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from cannc.compiler.memory.liveness import peak
from cannc.compiler.memory.program import Program, aligned

_BEAM_STEPS = 200
_BEAM_WIDTH = 6


def best_order(program: Program) -> list[int]:
    """Return the order with the lowest peak that was found; the given one unless it is beaten."""
    best = list(range(len(program.steps)))
    lowest = peak(program, best)
    for order in _candidates(program):
        found = peak(program, order)
        if found < lowest:
            best, lowest = order, found
    return best


def _candidates(program: Program) -> Iterator[list[int]]:
    costs = _Costs.of(program)
    yield _greedy(program, costs, lambda step, added: (added, step))
    yield _greedy(program, costs, lambda step, added: (max(added, 0) and 1, step))
    if len(program.steps) <= _BEAM_STEPS:
        yield _beam(program, costs)


@dataclass(frozen=True)
class _Costs:
    """Aligned sizes of tensors, how many steps read each, and the edges forward."""

    size: list[int]
    readers: list[list[int]]
    followers: list[list[int]]

    @classmethod
    def of(cls, program: Program) -> _Costs:
        size = [aligned(tensor.size) for tensor in program.tensors]
        readers: list[list[int]] = [[] for _ in size]
        followers: list[list[int]] = [[] for _ in program.steps]
        for index, step in enumerate(program.steps):
            for tensor in step.reads:
                readers[tensor].append(index)
            for earlier in step.needs:
                followers[earlier].append(index)
        return cls(size, readers, followers)

    def made(self, program: Program, step: int) -> int:
        return sum(self.size[tensor] for tensor in program.steps[step].writes)

    def unread(self, program: Program, step: int) -> int:
        """Return the bytes of results that nobody reads: they die at once."""
        writes = program.steps[step].writes
        return sum(self.size[tensor] for tensor in writes if not self.readers[tensor])

    def freed(self, program: Program, step: int, left: Sequence[int]) -> int:
        reads = program.steps[step].reads
        return sum(self.size[tensor] for tensor in reads if left[tensor] == 1)


def _greedy(
    program: Program, costs: _Costs, key: Callable[[int, int], tuple[int, int]]
) -> list[int]:
    """Run the ready step with the least key; the key is made of step and bytes added."""
    left = [len(readers) for readers in costs.readers]
    waiting = [len(step.needs) for step in program.steps]
    done = [False] * len(program.steps)

    def rated(step: int) -> tuple[tuple[int, int], int]:
        added = costs.made(program, step) - costs.unread(program, step)
        return key(step, added - costs.freed(program, step, left)), step

    ready = [rated(step) for step, count in enumerate(waiting) if not count]
    heapq.heapify(ready)
    order: list[int] = []
    while ready:
        _, step = heapq.heappop(ready)
        if done[step]:
            continue  # rated again since
        done[step] = True
        order.append(step)
        for follower in costs.followers[step]:
            waiting[follower] -= 1
            if not waiting[follower]:
                heapq.heappush(ready, rated(follower))
        for tensor in program.steps[step].reads:
            left[tensor] -= 1
            if left[tensor] == 1:
                for reader in costs.readers[tensor]:
                    if not done[reader] and not waiting[reader]:
                        heapq.heappush(ready, rated(reader))
    return order


@dataclass(frozen=True)
class _State:
    """A partial order of the beam search."""

    peak: int
    live: int
    order: tuple[int, ...]
    ready: frozenset[int]
    waiting: tuple[int, ...]
    left: tuple[int, ...]


def _beam(program: Program, costs: _Costs) -> list[int]:
    """Keep the few partial orders with the lowest peak, then the fewest live bytes."""
    waiting = tuple(len(step.needs) for step in program.steps)
    ready = frozenset(step for step, count in enumerate(waiting) if not count)
    left = tuple(len(readers) for readers in costs.readers)
    states = [_State(0, 0, (), ready, waiting, left)]
    for _ in program.steps:
        reached: dict[frozenset[int], _State] = {}
        for state in states:
            for step in sorted(state.ready):
                after = _advance(state, step, program, costs)
                done = frozenset(after.order)
                known = reached.get(done)
                if known is None or _rank(after) < _rank(known):
                    reached[done] = after
        states = sorted(reached.values(), key=_rank)[:_BEAM_WIDTH]
    return list(states[0].order)


def _rank(state: _State) -> tuple[int, int, tuple[int, ...]]:
    return state.peak, state.live, state.order


def _advance(state: _State, step: int, program: Program, costs: _Costs) -> _State:
    this = program.steps[step]
    made, freed = costs.made(program, step), costs.freed(program, step, state.left)
    in_place = any(state.left[read] == 1 for _, read in this.reuse)
    during = state.live + (0 if in_place else made) + aligned(this.scratch)
    waiting, left = list(state.waiting), list(state.left)
    for tensor in this.reads:
        left[tensor] -= 1
    ready = set(state.ready) - {step}
    for follower in costs.followers[step]:
        waiting[follower] -= 1
        if not waiting[follower]:
            ready.add(follower)
    return _State(
        max(state.peak, during),
        state.live + made - costs.unread(program, step) - freed,
        (*state.order, step),
        frozenset(ready),
        tuple(waiting),
        tuple(left),
    )
