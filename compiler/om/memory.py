"""Where tensors lie in the arena of the memory plan, as own attributes of ops.

``OpDef.input_i``, ``output_i``, ``workspace`` and the model's ``memory_size`` are left alone: they
tell a device what to reserve, and GE checks each against the others and against zero-copy buffers
(om-format.md section 13, om-loader-run.md "A"). A plan made without a device's kernels is an
estimate, which belongs in attributes of our own.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from cannc.compiler.om.attributes import put_list, typed
from cannc.compiler.om.gear_merge import main_graphs

PLAN = "cannc_memory_plan"
"""Model: the plan as JSON."""
ARENA = "cannc_memory_arena"
"""Model: size of the arena in bytes."""
OFFSETS = "cannc_memory_offsets"
"""Op: offset in the arena per output; `OUTSIDE` for what is not in it."""
SCRATCH = "cannc_memory_scratch"
"""Op: offset and bytes of the space that graphs inside it need."""

OUTSIDE = -1
ALIGNMENT_BYTES = 512


@dataclass(frozen=True)
class OpMemory:
    """Where a node's results lie in the arena.

    Attributes:
        offsets: One per output; `OUTSIDE` for graph outputs, constants and what has no size.
        scratch: Offset and bytes for graphs inside the node.
    """

    offsets: tuple[int, ...]
    scratch: tuple[int, int] | None = None


def put_memory(op: Any, memory: OpMemory | None) -> None:
    """Store the memory of a node in its op; None stores nothing."""
    if memory is None:
        return
    if any(offset != OUTSIDE for offset in memory.offsets):
        put_list(op.attr, OFFSETS, "i", memory.offsets)
    if memory.scratch is not None:
        put_list(op.attr, SCRATCH, "i", memory.scratch)


def memory_of(op: Any) -> OpMemory:
    """Return what `put_memory` stored; everything outside the arena where it stored nothing."""
    outside = [OUTSIDE] * len(op.output_desc)
    offsets = typed(op.attr, OFFSETS, "list:i", outside)
    scratch = typed(op.attr, SCRATCH, "list:i", None)
    return OpMemory(tuple(offsets), tuple(scratch) if scratch and len(scratch) == 2 else None)


def memory_faults(definition: Any) -> Iterator[str]:
    """Yield offsets that are unaligned, too many, or outside the arena."""
    arena = typed(definition.attr, ARENA, "i", 0)
    for op in (op for graph in main_graphs(definition) for op in graph.op):
        memory = memory_of(op)
        if len(memory.offsets) != len(op.output_desc):
            yield f"'{op.name}' has {len(memory.offsets)} offsets for {len(op.output_desc)} outputs"
            continue
        places = [
            (offset, desc.size)
            for offset, desc in zip(memory.offsets, op.output_desc, strict=True)
            if offset != OUTSIDE
        ]
        places += [memory.scratch] if memory.scratch else []
        for offset, size in places:
            if offset < 0 or offset % ALIGNMENT_BYTES or offset + size > arena:
                yield f"'{op.name}' has {size} bytes at {offset} of an arena of {arena}"
