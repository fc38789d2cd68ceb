"""TensorDescriptor <-> type and shape of an ONNX value (om-format.md section 4).

A value is described once; its consumers carry copies, so that producer and consumer always agree
(Netron refuses a file where they differ).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import onnx
import onnx_ir as ir

from cannc.compiler.om import own
from cannc.compiler.om.attributes import prefixed, put, put_list, put_prefixed, typed
from cannc.compiler.om.dtypes import FORMAT_ND, FROM_GRAPH, GRAPH_DTYPE, packed_bytes, stored_as
from cannc.compiler.om.proto import TensorDescriptor

# GE's way to write a shape of unknown rank.
UNKNOWN_RANK = (-2,)
_LAYOUT = "ND"
_QUANT_KEY = "quant_parameter_tensor_names"  # where onnx-ir keeps quantization annotations


def describe(value: ir.Value) -> Any:
    """Return the descriptor of a value: type, shape, names of dims, notes."""
    desc = TensorDescriptor()
    dtype = value.type.dtype if isinstance(value.type, ir.TensorType) else None
    fill(desc, dtype or ir.DataType.UNDEFINED, _dims(value.shape))
    _put_symbols(desc, value.shape)
    if not _is_plain(value):
        proto = ir.to_proto(value)
        put(desc.attr, own.TYPE, proto.type.SerializeToString(deterministic=True))
    put_value_notes(desc, value)
    return desc


def put_value_notes(desc: Any, value: ir.Value) -> None:
    """Store documentation, metadata and quantization annotation of a value."""
    own.put_notes(desc.attr, value.doc_string, value.metadata_props)
    put_prefixed(desc.attr, own.QUANT, value.meta.get(_QUANT_KEY) or {})


def fill(desc: Any, dtype: ir.DataType, dims: Sequence[int]) -> None:
    """Set data type and shape, with the redundant fields that GE always writes."""
    stored = stored_as(dtype)
    if stored != dtype:
        put(desc.attr, own.DTYPE, dtype.name)
    desc.dtype = GRAPH_DTYPE[stored]
    desc.layout = _LAYOUT
    desc.device_type = "NPU"
    put(desc.attr, "origin_format", _LAYOUT)
    put(desc.attr, "origin_format_for_int", FORMAT_ND)
    put(desc.attr, "format_for_int", FORMAT_ND)
    put(desc.attr, "origin_shape_initialized", True)
    _set_dims(desc, dims)


def bind(desc: Any, dims: Sequence[int]) -> None:
    """Set the shape of one gear; the dims that the model declares are kept beside it."""
    declared = list(desc.shape.dim)
    if declared != list(dims):
        put_list(desc.attr, own.OPEN, "i", declared)
        _set_dims(desc, dims)


def unbind(desc: Any) -> None:
    """Undo `bind`."""
    declared = typed(desc.attr, own.OPEN, "list:i", None)
    if declared is not None:
        del desc.attr[own.OPEN]
        _set_dims(desc, declared)


def _set_dims(desc: Any, dims: Sequence[int]) -> None:
    """Set the shape wherever it stands, and the bytes, which are 0 while a dim is open."""
    desc.shape.SetInParent()  # an empty shape is a scalar, a missing one is no shape
    desc.shape.dim[:] = dims
    desc.real_dim_cnt = len(dims)
    dtype = FROM_GRAPH.get(desc.dtype)
    known = bool(dtype) and all(dim >= 0 for dim in dims)
    desc.size = packed_bytes(dtype, math.prod(dims)) if dtype and known else 0
    desc.attr.pop("origin_shape", None)
    put_list(desc.attr, "origin_shape", "i", dims)


def absent() -> Any:
    """Return the descriptor of an optional input that is not connected."""
    desc = TensorDescriptor(layout="FORMAT_RESERVED")
    desc.shape.SetInParent()
    return desc


def is_tensor(desc: Any) -> bool:
    """Is the value a tensor, and neither a sequence nor an optional?"""
    if own.TYPE not in desc.attr:
        return True
    proto = onnx.TypeProto.FromString(typed(desc.attr, own.TYPE, "bt", b""))
    return bool(proto.HasField("tensor_type"))


def real_dtype(desc: Any) -> ir.DataType | None:
    """Return the ONNX type, also when bytes stand for it; None for a type that ONNX lacks."""
    name = typed(desc.attr, own.DTYPE, "s", "")
    if name:
        return ir.DataType.__members__.get(name)
    return FROM_GRAPH.get(desc.dtype)


def restore(desc: Any, value: ir.Value) -> None:
    """Give a value the type, shape and notes that its descriptor holds.

    Raises:
        ValueError: the descriptor's own attributes contradict themselves.
    """
    dtype = real_dtype(desc)
    if own.TYPE in desc.attr:
        proto = onnx.TypeProto.FromString(typed(desc.attr, own.TYPE, "bt", b""))
        typed_shape = ir.from_proto(proto)
        value.type, value.shape = typed_shape.type, typed_shape.shape
    else:
        value.type = ir.TensorType(dtype) if dtype else None
        value.shape = _shape(desc)
    restore_value_notes(desc, value)


def restore_value_notes(desc: Any, value: ir.Value) -> None:
    """Give a value what `put_value_notes` stored."""
    value.doc_string, metadata = own.notes(desc.attr)
    value.metadata_props.update(metadata)
    quant = prefixed(desc.attr, own.QUANT)
    if quant:
        value.meta[_QUANT_KEY] = quant


def _dims(shape: ir.Shape | None) -> tuple[int, ...]:
    if shape is None:
        return UNKNOWN_RANK
    return tuple(dim if isinstance(dim, int) else -1 for dim in shape.dims)


def _put_symbols(desc: Any, shape: ir.Shape | None) -> None:
    symbols = [
        (dim.value or "") if isinstance(dim, ir.SymbolicDim) else ""
        for dim in (shape.dims if shape is not None else ())
    ]
    if any(symbols):
        put_list(desc.attr, own.DIMS, "s", symbols)


def _shape(desc: Any) -> ir.Shape | None:
    dims = tuple(desc.shape.dim)
    if dims == UNKNOWN_RANK:
        return None
    symbols = typed(desc.attr, own.DIMS, "list:s", [""] * len(dims))
    if len(symbols) != len(dims):
        message = f"{len(symbols)} names for {len(dims)} dims"
        raise ValueError(message)
    return ir.Shape(
        [dim if dim >= 0 else symbol or None for dim, symbol in zip(dims, symbols, strict=True)]
    )


def _is_plain(value: ir.Value) -> bool:
    """Do dtype and dims say all about the value's type?"""
    if value.type is None:
        return True
    denoted = value.shape is not None and any(
        value.shape.get_denotation(i) for i in range(len(value.shape))
    )
    return isinstance(value.type, ir.TensorType) and not value.type.denotation and not denoted
