"""Bounds-checked reading of the container's small binary records."""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from pathlib import Path

_U32 = struct.Struct("<I")
_I64 = struct.Struct("<q")


class Cursor:
    """Reads bytes from front to back and never past their end.

    Args:
        data: The bytes, or a view of a mapped file; what is skipped is not read from it.
        path: The file they come from.
        fault: Makes the error to raise out of `path` and a reason.
    """

    def __init__(
        self, data: bytes | memoryview, path: Path, fault: Callable[[Path, str], Exception]
    ) -> None:
        self._data, self._path, self._fault, self._at = data, path, fault, 0

    @property
    def left(self) -> int:
        """Bytes not yet read."""
        return len(self._data) - self._at

    def bytes(self, count: int) -> bytes:
        """Return the next `count` bytes."""
        self.skip(count)
        return bytes(self._data[self._at - count : self._at])

    def skip(self, count: int) -> None:
        """Pass over the next `count` bytes."""
        if count > self.left:
            raise self.bad(f"{count} bytes announced, {self.left} are left")
        self._at += count

    def text(self, count: int) -> str:
        """Return the next `count` bytes as UTF-8, damaged ones replaced."""
        return self.bytes(count).decode(errors="replace")

    def take(self, layout: struct.Struct) -> tuple[int, ...]:
        """Return the numbers of a record."""
        return layout.unpack(self.bytes(layout.size))

    def u32(self) -> int:
        """Return one unsigned 32-bit number."""
        return self.take(_U32)[0]

    def u32s(self, count: int) -> tuple[int, ...]:
        """Return `count` unsigned 32-bit numbers."""
        return tuple(row[0] for row in _U32.iter_unpack(self.bytes(count * _U32.size)))

    def i64s(self, count: int) -> tuple[int, ...]:
        """Return `count` signed 64-bit numbers."""
        return tuple(row[0] for row in _I64.iter_unpack(self.bytes(count * _I64.size)))

    def bad(self, why: str) -> Exception:
        """Return the error to raise."""
        return self._fault(self._path, why)


def pack_i64(numbers: Sequence[int]) -> bytes:
    """Return signed 64-bit numbers as bytes."""
    return struct.pack(f"<{len(numbers)}q", *numbers)
