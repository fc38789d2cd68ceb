"""Is a graph sound: every tensor produced once, before it is used, with the bytes that it claims.

ATC's parser accepts most unsound graphs silently and wires them somehow (parser-run.md), so these
faults are ours to refuse. Works on the protobuf because broken graphs do not reach the IR.
"""

from __future__ import annotations

from collections.abc import Iterator

import onnx

from cannc.compiler.core.errors import ModelError


def check_sound(proto: onnx.ModelProto, where: str) -> None:
    """Refuse a model whose graph is broken.

    Raises:
        ModelError: ``ONNX003`` with all faults found (at most ten are listed).
    """
    faults = [*_model_faults(proto), *_graph_faults(proto.graph, set())]
    if not faults:
        return
    shown = "; ".join(faults[:10]) + (f"; and {len(faults) - 10} more" if len(faults) > 10 else "")
    raise ModelError(
        "ONNX003",
        f"the graph is broken in {len(faults)} place{'s' if len(faults) > 1 else ''}",
        where=where,
        why=shown,
        fix="export the model again; a graph edited by hand must keep its edges consistent",
    )


def _model_faults(proto: onnx.ModelProto) -> Iterator[str]:
    if not proto.opset_import:
        yield "no opset_import"
    imported = {entry.domain or "ai.onnx" for entry in proto.opset_import}
    local = {(f.domain or "ai.onnx", f.name) for f in proto.functions}
    for node in proto.graph.node:
        domain = node.domain or "ai.onnx"
        if domain not in imported and (domain, node.op_type) not in local:
            yield f"node '{node.name}' ({node.op_type}): domain '{domain}' is not imported"


def _graph_faults(graph: onnx.GraphProto, known: set[str]) -> Iterator[str]:
    """Yield faults of one graph; `known` holds the names that enclosing graphs offer.

    It is extended on the way and restored at the end, so that nested graphs cost no copies.
    """
    inputs = [value.name for value in graph.input]
    weights = [t.name for t in graph.initializer] + [
        t.values.name for t in graph.sparse_initializer
    ]
    yield from (f"graph input '{name}' is declared twice" for name in _repeated(inputs))
    yield from (f"initializer '{name}' is stored twice" for name in _repeated(weights))
    for tensor in graph.initializer:
        yield from _tensor_faults(tensor)
    produced = {*inputs, *weights}
    mine = produced - known
    known |= mine
    for node in graph.node:
        label = f"node '{node.name}' ({node.op_type})"
        for name in node.input:
            if name and name not in known:
                yield f"{label} reads '{name}', which nothing before it produces"
        for attribute in node.attribute:
            yield from _tensor_faults(attribute.t) if attribute.HasField("t") else ()
            inner_graphs = [attribute.g] if attribute.HasField("g") else attribute.graphs
            for inner in inner_graphs:
                yield from _graph_faults(inner, known)
        for name in filter(None, node.output):
            if name in produced:
                yield f"{label} produces '{name}' a second time"
            produced.add(name)
            if name not in known:
                mine.add(name)
                known.add(name)
    for value in graph.output:
        if value.name and value.name not in known:
            yield f"graph output '{value.name}' is produced by nothing"
    known -= mine


def _tensor_faults(tensor: onnx.TensorProto) -> Iterator[str]:
    """Yield faults of an inline tensor: negative dims, or fewer bytes than its shape needs."""
    count = 1
    for dim in tensor.dims:
        count *= dim
    if any(dim < 0 for dim in tensor.dims):
        yield f"tensor '{tensor.name}' has a negative dimension"
    elif tensor.data_location == onnx.TensorProto.EXTERNAL or not tensor.HasField("raw_data"):
        return
    elif tensor.data_type in _BITS:
        needed = (count * _BITS[tensor.data_type] + 7) // 8
        if len(tensor.raw_data) != needed:
            have = len(tensor.raw_data)
            yield f"tensor '{tensor.name}' has {have} bytes, its shape needs {needed}"


def _repeated(names: list[str]) -> list[str]:
    seen: set[str] = set()
    return [name for name in names if name in seen or seen.add(name)]  # type: ignore[func-returns-value]


_BITS: dict[int, int] = {
    onnx.TensorProto.FLOAT: 32,
    onnx.TensorProto.UINT8: 8,
    onnx.TensorProto.INT8: 8,
    onnx.TensorProto.UINT16: 16,
    onnx.TensorProto.INT16: 16,
    onnx.TensorProto.INT32: 32,
    onnx.TensorProto.INT64: 64,
    onnx.TensorProto.BOOL: 8,
    onnx.TensorProto.FLOAT16: 16,
    onnx.TensorProto.DOUBLE: 64,
    onnx.TensorProto.UINT32: 32,
    onnx.TensorProto.UINT64: 64,
    onnx.TensorProto.BFLOAT16: 16,
    onnx.TensorProto.INT4: 4,
    onnx.TensorProto.UINT4: 4,
}
