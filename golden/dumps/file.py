"""One dump file: the tensors that an op read and wrote in one run (pyacl.md section 7).

8 bytes length L, L bytes ``DumpData``, then the raw tensors: inputs, outputs, buffers, workspaces.
Numbers are read when they are asked for.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
from google.protobuf.message import DecodeError

from cannc.compiler.core.errors import ModelError
from cannc.compiler.core.runner import Array
from cannc.compiler.om.proto import DumpData
from cannc.golden.dumps.layout import restore

HEADER = struct.Struct("<Q")
MOST_HEADER_BYTES = 2**31 - 1
DTYPES: dict[int, np.dtype[Any]] = {
    number: np.dtype(kind)
    for number, kind in {
        1: np.float32,
        2: np.float16,
        3: np.int8,
        4: np.uint8,
        5: np.int16,
        6: np.uint16,
        7: np.int32,
        8: np.int64,
        9: np.uint32,
        10: np.uint64,
        11: np.bool_,
        12: np.float64,
        16: np.complex64,
        17: np.complex128,
        27: ml_dtypes.bfloat16,
        34: ml_dtypes.float8_e5m2,
        35: ml_dtypes.float8_e4m3fn,
    }.items()
}
"""Data types in the numbering of dumps, which is neither GE's nor ACL's."""


@dataclass(frozen=True)
class DumpTensor:
    """A tensor in a dump file.

    Attributes:
        path: The file.
        offset: Where its bytes begin.
        size: Number of its bytes, alignment included.
        dtype: Number of its type, see `DTYPES`.
        layout: GE's number of its layout on the device.
        dims: Shape on the device.
        original_dims: Shape in the network; empty when it is not stated.
        original_layout: Layout in the network; -1 when it is not stated.
        original: Node whose output it is, with the index there; None when it is not stated.
    """

    path: Path
    offset: int
    size: int
    dtype: int
    layout: int
    dims: tuple[int, ...]
    original_dims: tuple[int, ...] = ()
    original_layout: int = -1
    original: tuple[str, int] | None = None

    def read(self, shape: tuple[int, ...]) -> Array:
        """Return the numbers in the network's layout.

        Args:
            shape: The network's shape, where the file does not state it.

        Raises:
            ValueError: they cannot be brought into that layout; the text says why.
        """
        kind = DTYPES.get(self.dtype)
        if kind is None:
            message = f"data type {self.dtype} of dumps cannot be read"
            raise ValueError(message)
        count = math.prod(self.dims)
        if count * kind.itemsize > self.size:
            message = (
                f"shape {self.dims} needs {count * kind.itemsize} bytes, there are {self.size}"
            )
            raise ValueError(message)
        with self.path.open("rb") as stream:
            stream.seek(self.offset)
            data = np.frombuffer(stream.read(count * kind.itemsize), kind)
        wanted = self.original_dims or shape
        return restore(data.reshape(self.dims), self.layout, self.original_layout, wanted)


@dataclass(frozen=True)
class DumpFile:
    """What one op read and wrote.

    Attributes:
        path: The file.
        op_name: Its name as the model has it; empty in older releases.
        inputs: What it read.
        outputs: What it wrote.
    """

    path: Path
    op_name: str
    inputs: tuple[DumpTensor, ...]
    outputs: tuple[DumpTensor, ...]

    @classmethod
    def open(cls, path: Path) -> DumpFile:
        """Read the header.

        Raises:
            ModelError: ``CMP011`` the file is damaged.
        """
        available = path.stat().st_size
        with path.open("rb") as stream:
            start = stream.read(HEADER.size)
            if len(start) < HEADER.size:
                raise _damaged(path, f"{available} bytes, a header alone has more")
            (length,) = HEADER.unpack(start)
            if not 0 < length <= min(MOST_HEADER_BYTES, available - HEADER.size):
                raise _damaged(path, f"its header claims {length} of {available} bytes")
            try:
                data = DumpData.FromString(stream.read(length))
            except DecodeError as error:
                raise _damaged(path, "its header is no DumpData message") from error
        parts = [*data.input, *data.output, *data.buffer, *data.space]
        promised = HEADER.size + length + sum(part.size for part in parts)
        if promised != available:
            raise _damaged(path, f"its header promises {promised} bytes, there are {available}")
        start_of_data = HEADER.size + length
        inputs = [*_tensors(path, data.input, start_of_data)]
        start_of_data += sum(part.size for part in data.input)
        return cls(
            path, data.op_name, tuple(inputs), (*_tensors(path, data.output, start_of_data),)
        )


def _tensors(path: Path, messages: Iterable[Any], offset: int) -> Iterable[DumpTensor]:
    for message in messages:
        stated = message.HasField("original_op") if "original_op" in _fields(message) else False
        origin = message.original_op if stated else None
        yield DumpTensor(
            path=path,
            offset=offset,
            size=message.size,
            dtype=message.data_type,
            layout=message.format,
            dims=tuple(message.shape.dim),
            original_dims=tuple(message.original_shape.dim),
            original_layout=origin.format if origin else -1,
            original=(origin.name, origin.output_index) if origin and origin.name else None,
        )
        offset += message.size


def _fields(message: Any) -> Any:
    return message.DESCRIPTOR.fields_by_name


def _damaged(path: Path, why: str) -> ModelError:
    return ModelError(
        "CMP011",
        "a dump file is damaged",
        where=str(path),
        why=why,
        fix="copy the folder from the device again; runs that were cut off leave such files",
    )
