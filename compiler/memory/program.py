"""The main graph as memory sees it: steps that read and write tensors of known size.

Graph inputs and outputs lie in buffers of the caller (a device reads and writes them in place), and
weights in their own region; neither is in the arena. Graphs inside a node count as scratch space of
that node: what they need at their own peak.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import onnx_ir as ir

from cannc.compiler.memory.sizing import Shape

ALIGNMENT_BYTES = 512


def aligned(size: int) -> int:
    """Return `size` rounded up to the alignment of buffers."""
    return -(-size // ALIGNMENT_BYTES) * ALIGNMENT_BYTES


@dataclass(frozen=True)
class Tensor:
    """A tensor in the arena, with all names that it goes by.

    Attributes:
        value: The value that is written; views of it are further names.
        shape: Its shape at the planned sizes.
        size: Bytes, not aligned.
    """

    value: ir.Value
    shape: Shape
    size: int


@dataclass(frozen=True)
class Step:
    """One node of the main graph.

    Attributes:
        node: The node.
        reads: Tensors of the arena that it, or a graph inside it, reads.
        writes: Tensors of the arena that it makes.
        reuse: Pairs (written, read): the first may take over the memory of the second.
        scratch: Bytes that graphs inside it need at their peak.
        needs: Steps that must come before it.
    """

    node: ir.Node
    reads: tuple[int, ...]
    writes: tuple[int, ...]
    reuse: tuple[tuple[int, int], ...] = ()
    scratch: int = 0
    needs: tuple[int, ...] = ()


@dataclass
class Program:
    """Steps and tensors of a main graph.

    Attributes:
        tensors: What lies in the arena.
        steps: One per node, in graph order.
        place: Value -> index of its tensor; values outside the arena are missing.
        unsized: Names of values whose size is not known; they are not planned.
        input_bytes: Bytes of the graph inputs, each aligned.
        output_bytes: The same for the graph outputs.
    """

    tensors: list[Tensor] = field(default_factory=list)
    steps: list[Step] = field(default_factory=list)
    place: dict[ir.Value, int] = field(default_factory=dict)
    unsized: list[str] = field(default_factory=list)
    input_bytes: int = 0
    output_bytes: int = 0
