"""Weights at hand-over: files of the model are linked into the work folder, never copied (D15)."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import onnx_ir as ir

from cannc.compiler.core.files import atomic_write
from cannc.compiler.core.graphs import all_graphs
from cannc.compiler.core.onnx_io import EXTERNAL_ABOVE_BYTES
from cannc.compiler.core.tensors import read, stored_bytes

DATA_FILE = "weights.data"
_SMALL_BYTES = 1024
_ALIGNMENT_BYTES = 4096


def refer_to_weights(model: ir.Model, folder: Path) -> None:
    """Make every large weight external with a location inside `folder`, in place.

    The parser reads location, offset and length only, wants relative locations, and looks in the
    wrong folder for weights of branches (parser-run.md), so those are stored in the model file.
    """
    links: dict[Path, str] = {}
    kept: list[ir.Value] = []
    for scope, graph in all_graphs(model.graph):
        for value in graph.initializers.values():
            tensor = value.const_value
            if scope and isinstance(tensor, ir.ExternalTensor):
                value.const_value = ir.Tensor(read(tensor), dtype=tensor.dtype, name=value.name)
            elif isinstance(tensor, ir.ExternalTensor):
                location = _link(Path(tensor.path).resolve(), folder, links)
                value.const_value = _external(
                    value, tensor, location, tensor.offset or 0, tensor.length, folder
                )
            elif not scope and tensor is not None:
                kept.append(value)
    _inline_attributes(model)
    if sum(tensor.nbytes for tensor in _tensors(kept)) > EXTERNAL_ABOVE_BYTES:
        _write(kept, folder)


def _link(source: Path, folder: Path, links: dict[Path, str]) -> str:
    """Give a weight file a name in `folder`; return it."""
    if source not in links:
        name = f"weights{len(links)}.data"
        links[source] = name
        try:
            # No hard link: onnx and onnx-ir refuse to read a data file that has two of them, so
            # the user's own model could not be opened as long as this folder exists.
            (folder / name).symlink_to(source)
        except OSError:
            shutil.copyfile(source, folder / name)
    return links[source]


def _write(values: list[ir.Value], folder: Path) -> None:
    """Stream weights that are in memory, or computed when read, into one data file."""
    placed: list[tuple[ir.Value, int, int]] = []
    with atomic_write(folder / DATA_FILE) as stream:
        for value in values:
            tensor = value.const_value
            assert tensor is not None
            if tensor.nbytes > _SMALL_BYTES:
                stream.write(bytes(-stream.tell() % _ALIGNMENT_BYTES))
                start = stream.tell()
                with stored_bytes(tensor) as data:
                    stream.write(data)
                placed.append((value, start, stream.tell() - start))
    for value, offset, length in placed:
        assert value.const_value is not None
        value.const_value = _external(value, value.const_value, DATA_FILE, offset, length, folder)


def _external(
    value: ir.Value,
    tensor: ir.TensorProtocol,
    location: str,
    offset: int,
    length: int | None,
    folder: Path,
) -> ir.ExternalTensor:
    return ir.ExternalTensor(
        location,
        offset,
        tensor.nbytes if length is None else length,
        tensor.dtype,
        shape=tensor.shape,  # type: ignore[arg-type]
        name=value.name or "",
        base_dir=folder,
    )


def _inline_attributes(model: ir.Model) -> None:
    """Store tensors of attributes in the model file."""
    for _, graph in all_graphs(model.graph):
        for node in graph:
            for name, attribute in [*node.attributes.items()]:
                tensor = None if attribute.is_ref() else attribute.value
                if isinstance(tensor, ir.ExternalTensor):
                    inline = ir.Tensor(read(tensor), dtype=tensor.dtype, name=tensor.name)
                    node.attributes[name] = ir.AttrTensor(name, inline)


def _tensors(values: list[ir.Value]) -> Iterator[ir.TensorProtocol]:
    for value in values:
        if value.const_value is not None:
            yield value.const_value
