"""The partition table after the header, in both widths (om-format.md section 3)."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass
from enum import IntEnum
from pathlib import Path
from typing import IO

from cannc.compiler.om.faults import damaged
from cannc.compiler.om.header import BUNDLE, FLOW, HEADER_BYTES, VERSION_2, Header


class PartitionType(IntEnum):
    """What a partition holds."""

    MODEL_DEF = 0
    WEIGHTS_DATA = 1
    TASK_INFO = 2
    TBE_KERNELS = 3
    CUST_AICPU_KERNELS = 4
    SO_BINS = 5
    FLOW_MODEL = 6
    FLOW_SUBMODEL = 7
    MODEL_INOUT_INFO = 8
    STATIC_TASK_DESC = 9
    DYNAMIC_TASK_DESC = 10
    TASK_PARAM = 11
    TILING_DATA = 12
    PRE_MODEL_DESC = 20
    PRE_MODEL_SQE = 21
    PRE_KERNEL_ARGS = 22
    PRE_MODEL_DESC_EXTEND = 23
    BUNDLE_MODEL_INFO = 24
    BUNDLE_MODEL_VAR_INFO = 25
    CUSTOM_OPS = 26


MAX_PARTITIONS = 8
MAX_FLOW_PARTITIONS = 4096
# A file cannot hold more models than tables fit into it; this stops a hostile count earlier.
MAX_MODELS = 4096
_WIDE = (struct.Struct("<I4x"), struct.Struct("<I4xQQ"))
_NARROW = (struct.Struct("<I"), struct.Struct("<III"))


@dataclass(frozen=True)
class Partition:
    """One partition.

    Attributes:
        type: Number in the table, a `PartitionType` when it is a known one.
        offset: Byte offset in the file.
        size: Size in bytes.
    """

    type: int
    offset: int
    size: int

    @property
    def name(self) -> str:
        """The type's name, or ``unknown type <n>``."""
        try:
            return PartitionType(self.type).name
        except ValueError:
            return f"unknown type {self.type}"


Table = tuple[Partition, ...]


def table_bytes(count: int) -> int:
    """Return the size of a 64-bit table with `count` entries."""
    head, entry = _WIDE
    return head.size + count * entry.size


def pack_table(parts: Sequence[tuple[int, int]]) -> bytes:
    """Return the 64-bit table for ``(type, size)`` of each partition, contiguous in this order."""
    head, entry = _WIDE
    packed = head.pack(len(parts))
    offset = 0
    for kind, size in parts:
        packed += entry.pack(kind, offset, size)
        offset += size
    return packed


def read_tables(
    stream: IO[bytes], header: Header, base: int, end: int, path: Path
) -> tuple[Table, ...]:
    """Read the table of every model in the file.

    As GE's loader does, sizes are added up and the stored offsets are not used, except in bundles,
    whose offsets count from the end of the header.

    Args:
        stream: The open file.
        header: Its header.
        base: File offset of the header.
        end: File offset at which the model ends.
        path: Named in errors.

    Raises:
        ModelError: ``OM003`` the tables contradict the file.
    """
    if header.model_type == BUNDLE and header.version >= VERSION_2:
        return (_read_bundle(stream, base, end, path),)
    at = base + HEADER_BYTES
    tables = [_read_table(stream, header, at, end, path)]
    # The count means something in dynamic files only: static ones carry 0 or 1.
    count = header.model_num if header.version >= VERSION_2 else 1
    if count > MAX_MODELS:
        raise _bad_table(path, f"it claims {count} models, at most {MAX_MODELS} are read")
    while len(tables) < count:
        tables.append(_read_table(stream, header, _end(tables[-1]), end, path))
    if count > 1 and _end(tables[-1]) != end:
        raise _bad_table(path, f"{end - _end(tables[-1])} bytes left after {count} models")
    return tuple(tables)


def _read_table(stream: IO[bytes], header: Header, at: int, end: int, path: Path) -> Table:
    head, entry = _WIDE if header.wide else _NARROW
    limit = MAX_FLOW_PARTITIONS if header.model_type == FLOW else MAX_PARTITIONS
    count = _read_count(stream, head, at, end, limit, path)
    start = at + head.size + count * entry.size
    rows = _read_rows(stream, entry, at + head.size, count, end, path)
    parts = []
    for kind, _, size in rows:
        if size > end - start:
            raise _bad_table(
                path, f"partition {kind} needs {size} bytes, {max(end - start, 0)} are left"
            )
        parts.append(Partition(kind, start, size))
        start += size
    return tuple(parts)


def _read_bundle(stream: IO[bytes], base: int, end: int, path: Path) -> Table:
    head, entry = _WIDE
    at = base + HEADER_BYTES
    count = _read_count(stream, head, at, end, MAX_FLOW_PARTITIONS, path)
    rows = _read_rows(stream, entry, at + head.size, count, end, path)
    for kind, offset, size in rows:
        if offset > end - at or size > end - at - offset:
            raise _bad_table(path, f"bundle entry {kind} at {offset} leaves the file")
    return tuple(Partition(kind, at + offset, size) for kind, offset, size in rows)


def _read_count(
    stream: IO[bytes], head: struct.Struct, at: int, end: int, limit: int, path: Path
) -> int:
    stream.seek(at)
    raw = stream.read(head.size) if at + head.size <= end else b""
    if len(raw) < head.size:
        raise _bad_table(path, "the file ends before the partition table")
    count = int(head.unpack(raw)[0])
    if not 1 <= count <= limit:
        raise _bad_table(path, f"it claims {count} partitions, 1 to {limit} are possible")
    return count


def _read_rows(
    stream: IO[bytes], entry: struct.Struct, at: int, count: int, end: int, path: Path
) -> list[tuple[int, int, int]]:
    stream.seek(at)
    raw = stream.read(count * entry.size) if at + count * entry.size <= end else b""
    if len(raw) < count * entry.size:
        raise _bad_table(path, f"the file ends inside a table of {count} partitions")
    return list(entry.iter_unpack(raw))


def _end(table: Table) -> int:
    return table[-1].offset + table[-1].size


def _bad_table(path: Path, why: str) -> Exception:
    return damaged("OM003", "the partition table is broken", path, why)
