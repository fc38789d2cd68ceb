"""MODEL_INOUT_INFO: what the model takes and gives, as TLV blocks (om-format.md section 8).

It is all that a device's "describe this file" call reads, and it keeps a 64-bit table from having
one entry only, which Netron misreads.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from cannc.compiler.om.cursor import Cursor, pack_i64
from cannc.compiler.om.faults import damaged

_BLOCK = struct.Struct("<II")
_COUNT = struct.Struct("<I")
_TENSOR = struct.Struct("<QiiIIII")
_I64_BYTES = 8


@dataclass(frozen=True)
class TensorInfo:
    """One input or output.

    Attributes:
        name: Its name.
        size: Bytes, unpadded; 0 for shapes known at run time.
        format: Number of the layout; 2 is ND.
        dtype: Data type in ACL's numbering.
        dims: Shape, -1 for unknown.
        dims_v2: Shape with the input's own preprocessing undone; equal to `dims` without one.
        ranges: Lower and upper bound per dim; empty when not given.
    """

    name: str
    size: int
    format: int
    dtype: int
    dims: tuple[int, ...]
    dims_v2: tuple[int, ...] = ()
    ranges: tuple[tuple[int, int], ...] = ()


@dataclass
class InOutInfo:
    """The whole partition; gears are dynamic batch, image size or dims, one row per gear."""

    inputs: list[TensorInfo] = field(default_factory=list)
    outputs: list[TensorInfo] = field(default_factory=list)
    batch: list[int] = field(default_factory=list)
    image_sizes: list[tuple[int, ...]] = field(default_factory=list)
    dims: list[tuple[int, ...]] = field(default_factory=list)
    output_shapes: list[str] = field(default_factory=list)
    designated_order: list[str] = field(default_factory=list)

    def pack(self) -> bytes:
        """Return the partition's bytes; blocks without content are left out."""
        blocks = (
            (0, _pack_tensors(self.inputs)),
            (1, _pack_tensors(self.outputs)),
            (2, _COUNT.pack(len(self.batch)) + pack_i64(self.batch) if self.batch else b""),
            (3, _pack_rows(self.image_sizes)),
            (4, _pack_rows(self.dims)),
            (5, _pack_strings(self.output_shapes)),
            (6, _pack_strings(self.designated_order)),
        )
        return b"".join(_BLOCK.pack(kind, len(data)) + data for kind, data in blocks if data)

    @classmethod
    def parse(cls, data: bytes, path: Path) -> InOutInfo:
        """Read the partition.

        Raises:
            ModelError: ``OM009`` unknown block, bytes missing or left over.
        """
        info, cursor = cls(), Cursor(data, path, _bad)
        readers: dict[int, Callable[[Cursor], None]] = {
            0: lambda c: info.inputs.extend(_tensors(c)),
            1: lambda c: info.outputs.extend(_tensors(c)),
            2: lambda c: info.batch.extend(c.i64s(c.u32())),
            3: lambda c: info.image_sizes.extend(_rows(c)),
            4: lambda c: info.dims.extend(_rows(c)),
            5: lambda c: info.output_shapes.extend(_strings(c)),
            6: lambda c: info.designated_order.extend(_strings(c)),
        }
        while cursor.left:
            kind, length = cursor.take(_BLOCK)
            if kind not in readers:
                raise cursor.bad(f"block type {kind} is unknown")
            block = Cursor(cursor.bytes(length), path, _bad)
            readers[kind](block)
            if block.left:
                raise cursor.bad(f"{block.left} bytes left over in block {kind}")
        return info


def loader_takes(strings: Sequence[str]) -> bool:
    """Does GE's loader accept a block of these strings? It miscounts short ones (section 8)."""
    return sum(len(text.encode()) for text in strings) >= 4 * len(strings) - 4


def _bad(path: Path, why: str) -> Exception:
    return damaged("OM009", "the description of inputs and outputs is broken", path, why)


def _pack_tensors(tensors: Sequence[TensorInfo]) -> bytes:
    if not tensors:
        return b""
    parts = [_COUNT.pack(len(tensors))]
    for tensor in tensors:
        name = tensor.name.encode()
        dims, dims_v2 = pack_i64(tensor.dims), pack_i64(tensor.dims_v2)
        ranges = pack_i64([bound for pair in tensor.ranges for bound in pair])
        sizes = (len(name), len(dims), len(dims_v2), len(ranges))
        head = _TENSOR.pack(tensor.size, tensor.format, tensor.dtype, *sizes)
        parts += [head, name, dims, dims_v2, ranges]
    return b"".join(parts)


def _tensors(cursor: Cursor) -> list[TensorInfo]:
    tensors = []
    for _ in range(cursor.u32()):
        size, layout, dtype, *lengths = cursor.take(_TENSOR)
        if any(length % _I64_BYTES for length in lengths[1:]) or lengths[3] % (2 * _I64_BYTES):
            raise cursor.bad(f"dims of {lengths[1:]} bytes are no whole numbers")
        name = cursor.text(lengths[0])
        dims, dims_v2, flat = (cursor.i64s(length // _I64_BYTES) for length in lengths[1:])
        ranges = tuple(zip(flat[::2], flat[1::2], strict=True))
        tensors.append(TensorInfo(name, size, layout, dtype, dims, dims_v2, ranges))
    return tensors


def _pack_rows(rows: Sequence[tuple[int, ...]]) -> bytes:
    if not rows:
        return b""
    lengths = b"".join(_COUNT.pack(len(row)) for row in rows)
    return _COUNT.pack(len(rows)) + lengths + b"".join(pack_i64(row) for row in rows)


def _rows(cursor: Cursor) -> list[tuple[int, ...]]:
    return [cursor.i64s(length) for length in cursor.u32s(cursor.u32())]


def _pack_strings(strings: Sequence[str]) -> bytes:
    if not strings:
        return b""
    encoded = [text.encode() for text in strings]
    lengths = b"".join(_COUNT.pack(len(text)) for text in encoded)
    return _COUNT.pack(len(encoded)) + lengths + b"".join(encoded)


def _strings(cursor: Cursor) -> list[str]:
    lengths = cursor.u32s(cursor.u32())
    return [cursor.text(length) for length in lengths]
