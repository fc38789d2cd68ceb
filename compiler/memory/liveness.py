"""When each buffer is in use, for an order of the steps."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from cannc.compiler.memory.program import Program, aligned


@dataclass(frozen=True)
class Buffer:
    """Memory in use from one position of the order to another, both included.

    Attributes:
        first: Position of the step that writes it first.
        last: Position of the last step that reads it.
        size: Bytes, aligned.
        tensors: What it holds, one after the other; empty for a node's scratch space.
    """

    first: int
    last: int
    size: int
    tensors: tuple[int, ...] = ()


def spans(program: Program, order: Sequence[int]) -> list[tuple[int, int]]:
    """Return (position of the write, position of the last read) of each tensor."""
    first = [0] * len(program.tensors)
    last = [0] * len(program.tensors)
    for position, index in enumerate(order):
        step = program.steps[index]
        for tensor in step.writes:
            first[tensor] = last[tensor] = position
        for tensor in step.reads:
            last[tensor] = position
    return list(zip(first, last, strict=True))


def buffers(program: Program, order: Sequence[int]) -> list[Buffer]:
    """Return the buffers of an order; a tensor that dies where it is overwritten hands its on."""
    span = spans(program, order)
    holder = list(range(len(program.tensors)))
    held = [[tensor] for tensor in holder]
    end = [last for _, last in span]
    scratch = []
    for position, index in enumerate(order):
        step = program.steps[index]
        if step.scratch:
            scratch.append(Buffer(position, position, aligned(step.scratch)))
        for written, read in step.reuse:
            owner = holder[read]
            if end[owner] == position and holder[written] == written:
                holder[written] = owner
                held[owner] += held[written]
                held[written] = []
                end[owner] = end[written]
    found = [
        Buffer(
            span[tensor][0], end[tensor], aligned(program.tensors[tensor].size), tuple(held[tensor])
        )
        for tensor in range(len(program.tensors))
        if held[tensor]
    ]
    return found + scratch


def live_bytes(found: Sequence[Buffer], steps: int) -> list[int]:
    """Return the sum of live buffers at each position."""
    change = [0] * (steps + 1)
    for buffer in found:
        change[buffer.first] += buffer.size
        change[buffer.last + 1] -= buffer.size
    total, sums = 0, []
    for delta in change[:steps]:
        total += delta
        sums.append(total)
    return sums


def peak(program: Program, order: Sequence[int] | None = None) -> int:
    """Return the greatest sum of live buffers over the steps of an order (default: as they are)."""
    steps = range(len(program.steps)) if order is None else order
    return max(live_bytes(buffers(program, steps), len(program.steps)), default=0)
