"""TILING_DATA: precomputed tilings of a model's kernels (om-format.md section 8)."""

from __future__ import annotations

import struct
from dataclasses import dataclass
from pathlib import Path

from cannc.compiler.om.cursor import Cursor
from cannc.compiler.om.faults import damaged

_MAGIC = 0xDD776EFE
_HEAD = struct.Struct("<III")
_TLV = struct.Struct("<BI")
_RUN_INFO = struct.Struct("<QQIB3xiIII12x4x")
_RUN, _BYTES, _IDS = 0, 1, 2


@dataclass(frozen=True)
class Tiling:
    """One tiling.

    Attributes:
        key: Which variant of the kernel runs.
        block_dim: How many cores it runs on.
        workspaces: Bytes of each scratch buffer.
        data_bytes: Size of the tiling data handed to the kernel.
        ids: The tiling ids that share it.
    """

    key: int
    block_dim: int
    workspaces: tuple[int, ...]
    data_bytes: int
    ids: tuple[int, ...]


def read_tilings(data: bytes, path: Path) -> tuple[Tiling, ...]:
    """Read the partition.

    Raises:
        ModelError: ``OM012`` another magic, or records cut off or out of order.
    """
    cursor, found = Cursor(data, path, _bad), []
    magic, version, size = cursor.take(_HEAD)
    if magic != _MAGIC:
        raise cursor.bad(f"it starts with {magic:#x} instead of {_MAGIC:#x}")
    if version != 2:
        raise cursor.bad(f"version {version} is unknown; 2 is the current one")
    if size != cursor.left:
        raise cursor.bad(f"{size} bytes announced, {cursor.left} are there")
    while cursor.left:
        run = Cursor(_record(cursor, _RUN), path, _bad)
        key, _, block_dim, _, _, _, count, _ = run.take(_RUN_INFO)
        workspaces = run.i64s(count)
        data_bytes = len(_record(cursor, _BYTES))
        ids = _record(cursor, _IDS)
        if len(ids) % 8:
            raise cursor.bad(f"tiling ids of {len(ids)} bytes are no whole numbers")
        numbers = Cursor(ids, path, _bad).i64s(len(ids) // 8)
        found.append(Tiling(key, block_dim, workspaces, data_bytes, numbers))
    return tuple(found)


def _record(cursor: Cursor, expected: int) -> bytes:
    kind, length = cursor.take(_TLV)
    if kind != expected:
        raise cursor.bad(f"record of type {kind} where type {expected} belongs")
    return cursor.bytes(length)


def _bad(path: Path, why: str) -> Exception:
    return damaged("OM012", "the tiling data in the file is broken", path, why)
