"""Compile the .proto files of this folder: run this file as a script.

The result, ``descriptors.binpb``, is committed, so that only who changes a .proto file needs
grpcio-tools; a test compares both.
"""

from __future__ import annotations

import tempfile
from pathlib import Path

FOLDER = Path(__file__).parent
DESCRIPTORS = FOLDER / "descriptors.binpb"
SOURCES = ("ge_ir.proto", "task.proto", "dump.proto")


def compiled() -> bytes:
    """Return the serialized FileDescriptorSet of the .proto files.

    Raises:
        RuntimeError: protoc refused them.
    """
    from grpc_tools import protoc  # type: ignore[import-untyped]

    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "set.binpb"
        code = protoc.main(["protoc", f"-I{FOLDER}", f"--descriptor_set_out={out}", *SOURCES])
        if code != 0:
            message = f"protoc ended with code {code}"
            raise RuntimeError(message)
        return out.read_bytes()


if __name__ == "__main__":
    DESCRIPTORS.write_bytes(compiled())
