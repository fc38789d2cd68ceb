"""Kernels and libraries inside a compiled model: names and sizes (om-format.md section 8)."""

from __future__ import annotations

import struct
from dataclasses import dataclass
from pathlib import Path

from cannc.compiler.om.cursor import Cursor
from cannc.compiler.om.faults import damaged

ITEM_MAGIC = 0x5D776EFD
CUSTOM_OP_MAGIC = 0x4B43534B
SO_KINDS = {0: "space registry", 1: "op master device", 2: "autofuse", 3: "custom op"}
_ITEM = struct.Struct("<III")
_SO_ITEM = struct.Struct("<IHHII")


@dataclass(frozen=True)
class Binary:
    """A kernel or library.

    Attributes:
        name: Kernel, op or file name.
        size: Bytes of the binary.
        kind: For libraries, what they are for.
        vendor: For libraries, the vendor's path.
    """

    name: str
    size: int
    kind: str = ""
    vendor: str = ""


def read_kernels(
    data: bytes | memoryview, path: Path, magic: int = ITEM_MAGIC
) -> tuple[Binary, ...]:
    """Read a kernel store (TBE, custom AICPU) or, with its own magic, the custom ops.

    Raises:
        ModelError: ``OM011`` an item is cut off or has another magic.
    """
    cursor = Cursor(data, path, _bad)
    found: list[Binary] = []
    while cursor.left:
        tag, name_bytes, size = cursor.take(_ITEM)
        if tag != magic:
            raise cursor.bad(f"item {len(found)} starts with {tag:#x} instead of {magic:#x}")
        name = cursor.text(name_bytes)
        cursor.skip(size)
        found.append(Binary(name, size))
    return tuple(found)


def read_libraries(data: bytes | memoryview, path: Path) -> tuple[Binary, ...]:
    """Read SO_BINS.

    Raises:
        ModelError: ``OM011`` an item is cut off, or there are more or fewer than announced.
    """
    cursor = Cursor(data, path, _bad)
    found: list[Binary] = []
    count = cursor.u32()
    while cursor.left:
        tag, name_bytes, kind, vendor_bytes, size = cursor.take(_SO_ITEM)
        if tag != ITEM_MAGIC:
            raise cursor.bad(f"library {len(found)} starts with {tag:#x}")
        name, vendor = cursor.text(name_bytes), cursor.text(vendor_bytes)
        cursor.skip(size)
        found.append(Binary(name, size, SO_KINDS.get(kind, f"unknown kind {kind}"), vendor))
    if len(found) != count:
        raise cursor.bad(f"{count} libraries announced, {len(found)} found")
    return tuple(found)


def _bad(path: Path, why: str) -> Exception:
    return damaged("OM011", "the kernels in the file are broken", path, why)
