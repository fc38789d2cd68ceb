"""ONNX files in and out: checked on the way in, written whole or not at all on the way out.

A model that comes from outside is not trusted: external data must stay inside the model's folder,
declared sizes must fit the file, and the graph must be sound before anything works on it. Weights
stay memory-mapped until they are written.
"""

from __future__ import annotations

import hashlib
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import IO

import onnx
import onnx_ir as ir
from google.protobuf.message import DecodeError

from cannc.compiler.core.errors import ModelError, UsageError
from cannc.compiler.core.files import atomic_write, check_writable
from cannc.compiler.core.graphs import all_graphs
from cannc.compiler.core.soundness import check_sound
from cannc.compiler.core.tensors import released, stored_bytes

PROTOBUF_LIMIT_BYTES = 2**31 - 1
EXTERNAL_ABOVE_BYTES = 2**30
_SMALL_TENSOR_BYTES = 1024
_ALIGNMENT_BYTES = 4096


def read_model(path: Path) -> ir.Model:
    """Read and check an ONNX file; weights in external files stay mapped.

    Raises:
        ModelError: ``ONNX001`` not an ONNX file, ``ONNX002`` unsafe or missing external data, and
            the codes of `check_sound`.
        UsageError: ``IO010`` no such file.
    """
    proto = read_proto(path)
    for tensor in _external_tensors(proto):
        _check_external(tensor, path)
    check_sound(proto, str(path))
    try:
        model = ir.from_proto(proto)
    except (ValueError, TypeError, KeyError, RuntimeError, NotImplementedError) as error:
        raise not_a_model(path, str(error)) from error
    for _, graph in all_graphs(model.graph):
        ir.external_data.set_base_dir(graph, path.parent)
    return model


def read_proto(path: Path) -> onnx.ModelProto:
    """Decode an ONNX file without touching its external data.

    Raises:
        ModelError: ``ONNX001`` the bytes are not an ONNX model.
        UsageError: ``IO010`` no such file, ``IO011`` unreadable.
    """
    if not path.is_file():
        raise UsageError(
            "IO010", "no such file", where=str(path), fix="check the path; folders are not models"
        )
    if path.stat().st_size > PROTOBUF_LIMIT_BYTES:
        why = "an ONNX file over 2 GB cannot be decoded; keep weights in external data"
        raise not_a_model(path, why)
    try:
        data = path.read_bytes()
    except OSError as error:
        raise UsageError(
            "IO011", "cannot read the file", where=str(path), why=str(error.strerror)
        ) from error
    return decode_proto(data, path)


def decode_proto(data: bytes, path: Path) -> onnx.ModelProto:
    """Decode the bytes of an ONNX model; `path` is named in errors."""
    if data.startswith(b"version https://git-lfs"):
        raise not_a_model(path, "it is a Git LFS pointer; run 'git lfs pull' to get the model")
    if not data:
        raise not_a_model(path, "the file is empty")
    proto = onnx.ModelProto()
    try:
        proto.ParseFromString(data)
    except DecodeError as error:
        why = "the bytes are not a serialized ONNX model: cut off, damaged, or another format"
        raise not_a_model(path, why) from error
    if not proto.HasField("graph") or not (proto.graph.node or proto.graph.output):
        raise not_a_model(path, "no graph in it: cut off, or another format")
    return proto


def to_proto(model: ir.Model) -> onnx.ModelProto:
    """Serialize; refuse before memory is spent on what protobuf cannot hold.

    Raises:
        ModelError: ``ONNX004`` over 2 GB.
    """
    inline = sum(t.nbytes for t in _weights(model) if not isinstance(t, ir.ExternalTensor))
    if inline > PROTOBUF_LIMIT_BYTES - 2**26:
        raise ModelError(
            "ONNX004",
            f"the model holds {inline / 1e9:.1f} GB of weights, protobuf ends at 2 GB",
            fix="save it with external data (a path ending in .onnx does so by itself)",
        )
    return ir.to_proto(model)


def write_model(model: ir.Model, out: Path, *sources: Path | None) -> None:
    """Write `out`, with weights beside it when they are large (D15).

    The data file is named after its content, ``OUT.<8 hex>.data``, and is in place before `out`
    refers to it; data files of earlier runs are removed last. So at every moment `out` is either
    the old model or the new one, whole.

    Args:
        model: The model; not changed.
        out: Path of the .onnx file.
        *sources: Files that must not be overwritten.
    """
    check_writable(out, *sources)
    weights = [*_weights(model)]
    keep: set[str] = set()
    if sum(t.nbytes for t in weights) <= EXTERNAL_ABOVE_BYTES:
        _write_proto(to_proto(_inlined(model)), out)
    else:
        stored, data_name = _write_external(model, out)
        keep.add(data_name)
        _write_proto(to_proto(stored), out)
    _remove_stale(out, keep, weights)


def _inlined(model: ir.Model) -> ir.Model:
    """Return a copy whose external tensors are in memory, so that the file stands alone."""
    if not any(isinstance(t, ir.ExternalTensor) for t in _weights(model)):
        return model
    copy = model.clone()
    for _, graph in all_graphs(copy.graph):
        for value in graph.initializers.values():
            tensor = value.const_value
            if isinstance(tensor, ir.ExternalTensor):
                with released(tensor) as array:
                    value.const_value = ir.Tensor(array.copy(), dtype=tensor.dtype)
    return copy


def _write_external(model: ir.Model, out: Path) -> tuple[ir.Model, str]:
    """Stream the weights into the data file; return a copy of the model that refers to it."""
    copy = model.clone()
    state = hashlib.sha256()
    placed: list[tuple[ir.Value, int, int]] = []
    temporary = out.with_name(f".{out.name}.weights")
    with atomic_write(temporary) as stream:
        for _, graph in all_graphs(copy.graph):
            for value in graph.initializers.values():
                tensor = value.const_value
                if tensor is not None and tensor.nbytes > _SMALL_TENSOR_BYTES:
                    placed.append((value, *_append(stream, tensor, state)))
    name = f"{out.name}.{state.hexdigest()[:8]}.data"
    temporary.replace(out.with_name(name))
    for value, offset, length in placed:
        tensor = value.const_value
        assert tensor is not None
        value.const_value = ir.ExternalTensor(
            name,
            offset,
            length,
            tensor.dtype,
            shape=tensor.shape,  # type: ignore[arg-type]
            name=value.name or "",
            base_dir=out.parent,
        )
    return copy, name


def _append(stream: IO[bytes], tensor: ir.TensorProtocol, state: hashlib._Hash) -> tuple[int, int]:
    """Append one tensor, aligned; return its offset and length in bytes."""
    padding = -stream.tell() % _ALIGNMENT_BYTES
    stream.write(bytes(padding))
    offset = stream.tell()
    with stored_bytes(tensor) as data:
        stream.write(data)
        state.update(data)
        return offset, data.nbytes


def _write_proto(proto: onnx.ModelProto, out: Path) -> None:
    with atomic_write(out) as stream:
        stream.write(proto.SerializeToString(deterministic=True))


def _remove_stale(out: Path, keep: set[str], in_use: list[ir.TensorProtocol]) -> None:
    mapped = {Path(t.path).resolve() for t in in_use if isinstance(t, ir.ExternalTensor)}
    for old in out.parent.glob(f"{out.name}.????????.data"):
        if old.name not in keep and old.resolve() not in mapped:
            old.unlink()


def _weights(model: ir.Model) -> Iterator[ir.TensorProtocol]:
    for _, graph in all_graphs(model.graph):
        for value in graph.initializers.values():
            if value.const_value is not None:
                yield value.const_value


def _external_tensors(proto: onnx.ModelProto) -> Iterator[onnx.TensorProto]:
    """Yield every tensor with external data: initializers, attributes, branches, functions."""
    pending: list[onnx.GraphProto | onnx.FunctionProto] = [proto.graph, *proto.functions]
    while pending:
        graph = pending.pop()
        tensors = list(graph.initializer) if isinstance(graph, onnx.GraphProto) else []
        for node in graph.node:
            for attribute in node.attribute:
                tensors += [attribute.t, *attribute.tensors]
                pending += [attribute.g, *attribute.graphs]
        yield from (t for t in tensors if t.data_location == onnx.TensorProto.EXTERNAL)


def _check_external(tensor: onnx.TensorProto, model_path: Path) -> None:
    """Refuse external data that leaves the folder, is missing, or is shorter than declared."""
    entries = {entry.key: entry.value for entry in tensor.external_data}
    location = entries.get("location", "")

    def refuse(why: str, fix: str) -> ModelError:
        where = f"{model_path}: tensor '{tensor.name}', location '{location}'"
        return ModelError("ONNX002", "external data cannot be used", where=where, why=why, fix=fix)

    folder = model_path.parent.resolve()
    target = (folder / location).resolve()
    if not location or Path(location).is_absolute() or not target.is_relative_to(folder):
        raise refuse(
            "the location leaves the model's folder, which could read any file of this machine",
            "move the data file beside the model and save the model again",
        )
    if not target.is_file():
        raise refuse(f"file {location} does not exist", f"put {location} beside the model file")
    try:
        offset, declared = int(entries.get("offset", 0)), int(entries.get("length", -1))
    except ValueError:
        raise refuse("offset or length is not a number", "export the model again") from None
    available = target.stat().st_size - offset
    needed = _tensor_bytes(tensor)
    if offset < 0 or max(needed, declared) > available or (declared >= 0 and declared < needed):
        raise refuse(
            f"{needed} bytes needed, {max(available, 0)} in the file from offset {offset}",
            "the data file is cut off or belongs to another model: fetch it again",
        )


def _tensor_bytes(tensor: onnx.TensorProto) -> int:
    try:
        bits = ir.DataType(tensor.data_type).bitwidth
    except (ValueError, TypeError):
        return 0
    count = 1
    for dim in tensor.dims:
        count *= dim
    return (count * bits + 7) // 8


def not_a_model(path: Path, why: str) -> ModelError:
    """Return the error ``ONNX001`` for a file that holds no usable ONNX model."""
    return ModelError(
        "ONNX001",
        "not a readable ONNX model",
        where=str(path),
        why=why,
        fix="export or download the file again (python -m onnx.checker names more details)",
    )


def copy_file(source: Path, out: Path) -> None:
    """Copy a file, whole or not at all."""
    with source.open("rb") as reader, atomic_write(out) as writer:
        shutil.copyfileobj(reader, writer, 2**24)
