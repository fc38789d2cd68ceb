"""The 256-byte file header, versions 1.0 and 2.0 (om-format.md section 2)."""

from __future__ import annotations

import struct
from dataclasses import dataclass
from pathlib import Path

from cannc.compiler.om.faults import damaged

HEADER_BYTES = 256
MAGIC = b"IMOD"
ZIP_MAGIC = b"PK\x03\x04"
VERSION_1 = 0x10000000
VERSION_2 = 0x20000000
MODEL_TYPES = {0: "IR", 1: "standard", 2: "tiny", 3: "flow", 4: "lite", 5: "bundle"}
FLOW, BUNDLE = 3, 5

# magic, headsize, version, checksum, length, flags, name, ops, user information, IR version; then
# version 2.0 has model_num, and ends as version 1.0 does 4 bytes earlier.
_COMMON = struct.Struct("<4sII64sIBBBB32sI32sI")
_PLATFORM = struct.Struct("<20sB3x")
_TAIL = struct.Struct("<QBB62x")
_MODEL_NUM = struct.Struct("<I")
_TAIL_OFFSET = 184


@dataclass(frozen=True)
class Header:
    """What the header says.

    Attributes:
        version: 0x10000000 or 0x20000000.
        length: Body bytes when the 32-bit partition table is used, else 0.
        model_length: Body bytes when the 64-bit table is used, else 0.
        encrypted: The payload cannot be read.
        model_type: Key of `MODEL_TYPES`.
        name: Model name, at most 31 bytes.
        user_info: 32 bytes that no known reader uses; host artifacts carry a marker in it.
        ir_version: Version field of the model definition.
        model_num: Models in the file; 1 in version 1.0, which has no such field.
        platform_version: Version string of the compiler's data format.
        platform_type: 0 lite, 1 mini.
        checks_host: 1: the loader compares operating system and CPU with the model's.
        dynamic: 1: the model has shapes known at run time only.
    """

    version: int = VERSION_2
    length: int = 0
    model_length: int = 0
    encrypted: bool = False
    model_type: int = 0
    generated_online: int = 0
    name: str = ""
    user_info: bytes = b""
    ir_version: int = 2
    model_num: int = 1
    platform_version: str = ""
    platform_type: int = 1
    checks_host: int = 0
    dynamic: int = 0

    @property
    def body_bytes(self) -> int:
        """Bytes after the header."""
        return self.model_length or self.length

    @property
    def wide(self) -> bool:
        """Does the file use the 64-bit partition table (om-format.md section 3)?"""
        return self.model_length != 0 or (self.model_type == FLOW and self.version >= VERSION_2)

    @property
    def version_text(self) -> str:
        """The version as people write it, e.g. ``2.0``."""
        return f"{self.version >> 28}.{(self.version >> 24) & 15}"

    def pack(self) -> bytes:
        """Return the 256 bytes of a version 2.0 header."""
        common = _COMMON.pack(
            MAGIC,
            HEADER_BYTES,
            VERSION_2,
            bytes(64),
            self.length,
            int(self.encrypted),
            0,
            self.model_type,
            self.generated_online,
            _utf8_prefix(self.name, 31),
            0,
            self.user_info,
            self.ir_version,
        )
        platform = _PLATFORM.pack(self.platform_version.encode(), self.platform_type)
        tail = _TAIL.pack(self.model_length, self.checks_host, self.dynamic)
        return common + _MODEL_NUM.pack(self.model_num) + platform + tail

    @classmethod
    def parse(cls, data: bytes, path: Path) -> Header:
        """Read a header.

        Args:
            data: At least the first 256 bytes of the file, fewer if the file is shorter.
            path: Named in errors.

        Raises:
            ModelError: ``OM001`` not an offline model.
        """
        if len(data) < HEADER_BYTES or data[:4] != MAGIC:
            raise not_an_om(data, path)
        fields = _COMMON.unpack_from(data)
        _, _, version, _, length, encrypted, _, kind, online, name, _, user, ir = fields
        at = _COMMON.size
        model_num = 1
        if version >= VERSION_2:
            (model_num,) = _MODEL_NUM.unpack_from(data, at)
            at += _MODEL_NUM.size
        platform, platform_type = _PLATFORM.unpack_from(data, at)
        model_length, checks_host, dynamic = _TAIL.unpack_from(data, _TAIL_OFFSET)
        return cls(
            version=version,
            length=length,
            model_length=model_length,
            encrypted=encrypted != 0,
            model_type=kind,
            generated_online=online,
            name=_text(name),
            user_info=user,
            ir_version=ir,
            model_num=model_num,
            platform_version=_text(platform),
            platform_type=platform_type,
            checks_host=checks_host,
            dynamic=dynamic,
        )


def not_an_om(data: bytes, path: Path) -> Exception:
    """Return the error for a file without a readable header, named by what it is instead."""
    if data.startswith(ZIP_MAGIC):
        why = "it is a zip archive: the om2 format, or an archive that holds the model"
    elif data.startswith(b"version https://git-lfs"):
        why = "it is a Git LFS pointer; run 'git lfs pull' to get the file"
    elif data[:4] == MAGIC:
        why = f"the header has {HEADER_BYTES} bytes, the file has {len(data)}: cut off"
    else:
        why = f"it starts with {data[:4]!r}, an offline model starts with {MAGIC!r}"
    return damaged("OM001", "not an offline model", path, why, "name an .om file")


def _text(raw: bytes) -> str:
    return raw.split(b"\0", 1)[0].decode("utf-8", errors="replace")


def _utf8_prefix(text: str, limit: int) -> bytes:
    """Return at most `limit` bytes of `text` without cutting a character in two."""
    return text.encode()[:limit].decode("utf-8", errors="ignore").encode()
