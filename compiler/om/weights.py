"""Tensors of the graph in WEIGHTS_DATA: placed, streamed, shared when equal, and found again.

Placement rules: om-format.md section 5. One tensor is in memory at a time, and tensors in files not
even that: they are copied in chunks.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

import numpy as np
import onnx
import onnx_ir as ir

from cannc.compiler.core.tensors import DerivedTensor
from cannc.compiler.om import own
from cannc.compiler.om.attributes import put_list, typed
from cannc.compiler.om.descriptors import fill, real_dtype
from cannc.compiler.om.dtypes import GRAPH_DTYPE, packed_bytes
from cannc.compiler.om.faults import damaged
from cannc.compiler.om.proto import DataType

ALIGNMENT_BYTES = 512
# Offset 0 means "not placed" to GE, and ATC leaves the first 512 bytes unused.
FIRST_OFFSET = 512
# Tensors in attributes of this size and more go to WEIGHTS_DATA as well: MODEL_DEF has a limit.
INLINE_BELOW_BYTES = 1024
_TRAILER_BYTES = 32


class WeightWriter:
    """Appends tensors to a stream as the WEIGHTS_DATA partition, which starts at `start`."""

    def __init__(self, stream: IO[bytes], start: int) -> None:
        self.start = start
        self._stream = stream
        self._end = FIRST_OFFSET
        self._by_content: dict[tuple[int, bytes], int] = {}
        self._by_source: dict[tuple[object, ...], tuple[int, int]] = {}

    @property
    def used(self) -> bool:
        """Was anything placed?"""
        return bool(self._by_content)

    def place(self, tensor: ir.TensorProtocol) -> tuple[int, int]:
        """Write a tensor unless equal bytes are there already.

        Returns:
            Offset inside the partition and length in bytes.
        """
        source = _source_key(tensor)
        if source is not None and source in self._by_source:
            return self._by_source[source]
        sink = _Sink(self._stream, self.start + self._end)
        # Files are copied in chunks, lazy tensors computed once, here.
        tensor.tofile(sink)  # type: ignore[attr-defined]
        placed = (self._by_content.setdefault(sink.key, self._end), sink.length)
        if placed[0] == self._end:
            self._end = _aligned(self._end + sink.length)
            sink.write(bytes(-sink.length % ALIGNMENT_BYTES))
        if source is not None:
            self._by_source[source] = placed
        return placed

    def finish(self) -> int:
        """Pad both ends as ATC does; return the partition's size in bytes."""
        size = _aligned(self._end + _TRAILER_BYTES)
        # What a tensor that turned out to be a copy has left behind goes away.
        self._stream.truncate(self.start + self._end)
        self._stream.truncate(self.start + size)
        return size


class _Sink:
    """Writes to a stream and digests what it writes."""

    def __init__(self, stream: IO[bytes], position: int) -> None:
        stream.seek(position)
        self._stream = stream
        self._state = hashlib.sha256()
        self.length = 0

    def write(self, data: bytes | memoryview) -> None:
        view = memoryview(data)
        if not view.nbytes:
            return
        # Tensors that live in PyTorch write themselves as an array of their own shape.
        flat = view if view.ndim == 1 and view.itemsize == 1 else view.cast("B")
        self._stream.write(flat)
        self._state.update(flat)
        self.length += flat.nbytes

    @property
    def key(self) -> tuple[int, bytes]:
        return self.length, self._state.digest()


def encode_tensor(target: Any, tensor: ir.TensorProtocol, weights: WeightWriter | None) -> None:
    """Fill a TensorDef; the data goes to `weights`, or inline when that is None.

    Strings are always inline: nothing could map them.
    """
    dims = tuple(tensor.shape.numpy())
    strings = tensor.dtype == ir.DataType.STRING
    row = strings or (tensor.dtype not in GRAPH_DTYPE and tensor.dtype.bitwidth < 8)
    if weights is None or strings:
        target.data = _string_bytes(tensor) if strings else tensor.tobytes()
        length = len(target.data)
    else:
        offset, length = weights.place(tensor)
        target.desc.data_offset = offset
    fill(target.desc, tensor.dtype, (length,) if row else dims)
    if row:
        put_list(target.desc.attr, own.SHAPE, "i", dims)
    target.desc.weight_size = length
    own.put_notes(target.desc.attr, tensor.doc_string, tensor.metadata_props)


def _string_bytes(tensor: ir.TensorProtocol) -> bytes:
    """Return the strings of a tensor as a serialized TensorProto (no numbers to lay out)."""
    proto = onnx.TensorProto(data_type=onnx.TensorProto.STRING, dims=tensor.shape.numpy())
    items = np.asarray(tensor.numpy()).reshape(-1).tolist()
    proto.string_data.extend(i.encode() if isinstance(i, str) else i for i in items)
    return proto.SerializeToString(deterministic=True)


@dataclass(frozen=True)
class WeightRegion:
    """The WEIGHTS_DATA partition of a file, from which tensors are mapped.

    Attributes:
        path: The file, resolved.
        offset: File offset of the partition.
        size: Its size in bytes; 0 when the file has none.
    """

    path: Path
    offset: int
    size: int

    def mapped(self, definition: Any, name: str) -> ir.TensorProtocol:
        """Return the tensor of a TensorDef; its numbers stay in the file.

        Raises:
            ModelError: ``OM008`` unknown type, data outside the partition, or of another length.
        """
        desc = definition.desc
        dtype, dims, needed = self._layout(definition, name)
        if definition.data or not needed:
            return self._in_memory(definition, dtype, dims, name)
        doc, metadata = own.notes(desc.attr)
        return ir.ExternalTensor(
            self.path.name,
            self._locate(desc, name),
            needed,
            dtype,
            shape=ir.Shape(dims),
            name=name,
            doc_string=doc,
            metadata_props=metadata,
            base_dir=self.path.parent,
        )

    def inline(self, definition: Any, name: str) -> ir.TensorProtocol:
        """Return the tensor of a TensorDef as one that a graph file carries inside.

        Its numbers are read from the file each time they are asked for. Raises as `mapped` does.
        """
        tensor = self.mapped(definition, name)
        if not isinstance(tensor, ir.ExternalTensor):
            return tensor
        derived = DerivedTensor(tensor, np.array, tensor.dtype)
        derived.doc_string = tensor.doc_string
        derived.metadata_props.update(tensor.metadata_props)
        return derived

    def _in_memory(
        self, definition: Any, dtype: ir.DataType, dims: list[int], name: str
    ) -> ir.TensorProtocol:
        doc, metadata = own.notes(definition.desc.attr)
        if dtype == ir.DataType.STRING:
            proto = onnx.TensorProto.FromString(definition.data)
            if len(proto.string_data) != math.prod(dims):
                raise self._bad(name, f"shape {dims}, but {len(proto.string_data)} strings")
            return ir.StringTensor(
                list(proto.string_data),
                shape=ir.Shape(dims),
                name=name,
                doc_string=doc,
                metadata_props=metadata,
            )
        proto = onnx.TensorProto(
            name=name, doc_string=doc, data_type=dtype.value, dims=dims, raw_data=definition.data
        )
        tensor = ir.from_proto(proto)
        tensor.metadata_props.update(metadata)
        return tensor

    def _layout(self, definition: Any, name: str) -> tuple[ir.DataType, list[int], int]:
        """Return type, shape and byte length, which for strings is what is there."""
        desc = definition.desc
        dtype = real_dtype(desc)
        if not dtype:
            raise self._bad(name, f"data type {desc.dtype} has no counterpart in ONNX")
        dims = typed(desc.attr, own.SHAPE, "list:i", list(desc.shape.dim))
        if any(dim < 0 for dim in dims):
            raise self._bad(name, f"shape {dims} is negative")
        stored = len(definition.data) or desc.weight_size
        if dtype == ir.DataType.STRING:
            return dtype, dims, len(definition.data)
        needed = packed_bytes(dtype, math.prod(dims))
        if stored != needed:
            raise self._bad(name, f"shape {dims} needs {needed} bytes, {stored} are stored")
        return dtype, dims, needed

    def _locate(self, desc: Any, name: str) -> int:
        offset, size = desc.data_offset, desc.weight_size
        if min(offset, size) < 0 or offset + size > self.size:
            why = f"bytes {offset} to {offset + size} of a weights partition of {self.size}"
            raise self._bad(name, why)
        return self.offset + int(offset)

    def _bad(self, name: str, why: str) -> Exception:
        return damaged("OM008", f"tensor '{name}' cannot be read", self.path, why)


@dataclass(frozen=True)
class Weight:
    """One constant as the file describes it; device formats need not have an ONNX type.

    Attributes:
        graph: Graph that it belongs to.
        name: Name of the Const op.
        dtype: Data type, e.g. ``FLOAT16``; of the ONNX value if bytes stand for another type.
        dims: Shape as stored.
        layout: Layout of the storage, e.g. ``ND`` or ``FRACTAL_Z``.
        offset: Byte offset inside WEIGHTS_DATA; None when the data is in the graph itself.
        size: Bytes.
    """

    graph: str
    name: str
    dtype: str
    dims: tuple[int, ...]
    layout: str
    offset: int | None
    size: int


def weights_of(definition: Any) -> Iterator[Weight]:
    """Yield the constants of all graphs of a ModelDef, of any compiler."""
    for graph in definition.graph:
        for op in graph.op:
            if op.type != "Const" or "value" not in op.attr:
                continue
            tensor = op.attr["value"].t
            desc = tensor.desc
            # Files for phone chips keep the place in an attribute.
            offset = typed(desc.attr, "merged_offset", "i", desc.data_offset)
            yield Weight(
                graph.name,
                op.name,
                typed(desc.attr, own.DTYPE, "s", "") or _dtype_name(desc.dtype),
                tuple(desc.shape.dim),
                desc.layout,
                None if tensor.data else offset,
                len(tensor.data) or desc.weight_size,
            )


def _dtype_name(number: int) -> str:
    known = DataType.values_by_number.get(number)
    return known.name.removeprefix("DT_") if known else f"unknown {number}"


def _source_key(tensor: ir.TensorProtocol) -> tuple[object, ...] | None:
    """Return what tells equal external tensors without reading them."""
    if not isinstance(tensor, ir.ExternalTensor):
        return None
    return (str(tensor.path), tensor.offset, tensor.length, tensor.dtype)


def _aligned(size: int) -> int:
    return -(-size // ALIGNMENT_BYTES) * ALIGNMENT_BYTES
