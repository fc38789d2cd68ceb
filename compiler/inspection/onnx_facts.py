"""Facts about an ONNX model: an .onnx file, or the one that a host artifact carries."""

from __future__ import annotations

import math
from collections.abc import Iterator
from pathlib import Path

import onnx_ir as ir

from cannc.compiler.core.graphs import all_graphs, walk
from cannc.compiler.inspection import graphs, weights
from cannc.compiler.inspection.container import Reading
from cannc.compiler.inspection.facts import (
    ExternalFile,
    FunctionFacts,
    ModelFacts,
    OnnxFacts,
    TensorFacts,
)
from cannc.compiler.om.dtypes import packed_bytes

_LONG_TEXT = 200


def model_facts(model: ir.Model, reading: Reading) -> ModelFacts:
    """Return what is known about the graph; nodes must be named."""
    graph = model.graph
    return ModelFacts(
        name=graph.name or "",
        # Initializers that are also inputs are constants (D25).
        inputs=tuple(_tensor(v) for v in graph.inputs if v.name not in graph.initializers),
        outputs=tuple(map(_tensor, graph.outputs)),
        graphs={scope or g.name or "graph": len(g) for scope, g in all_graphs(graph)},
        ops=graphs.histogram(graphs.node_type(scoped.node) for scoped in walk(graph)),
        weights=weights.summarize(weights.of_model(model), reading.top),
        graph=graphs.of_model(model) if reading.with_graph else None,
    )


def _tensor(value: ir.Value) -> TensorFacts:
    dims, size = graphs.value_dims(value), 0
    known = dims is not None and all(isinstance(dim, int) and dim >= 0 for dim in dims)
    if known and value.shape is not None and value.dtype and value.dtype != ir.DataType.STRING:
        size = packed_bytes(value.dtype, math.prod(value.shape.numpy()))
    return TensorFacts(value.name or "", graphs.value_dtype(value), dims, size_bytes=size)


def onnx_facts(model: ir.Model, folder: Path | None) -> OnnxFacts:
    """Return what only ONNX models have.

    Args:
        model: The model.
        folder: Where its external data lies; None for a model that carries its weights.
    """
    return OnnxFacts(
        ir_version=model.ir_version,
        opsets={(d or "ai.onnx"): v for d, v in sorted(model.graph.opset_imports.items())},
        producer=f"{model.producer_name or ''} {model.producer_version or ''}".strip(),
        domain=model.domain or "",
        model_version=model.model_version or 0,
        doc=model.doc_string or "",
        functions=tuple(map(_function, model.functions.values())),
        external=tuple(_external(model, folder)) if folder else (),
        metadata={key: _short(value) for key, value in sorted(model.metadata_props.items())},
    )


def _function(function: ir.Function) -> FunctionFacts:
    counts = (len(function.inputs), len(function.outputs), len(function))
    return FunctionFacts(function.name, function.domain, *counts)


def _short(text: str) -> str:
    return text if len(text) <= _LONG_TEXT else f"<{len(text.encode())} bytes>"


def _external(model: ir.Model, folder: Path) -> Iterator[ExternalFile]:
    """Yield the files that weights are in; nothing outside the model's folder is looked at."""
    tensors: dict[str, list[ir.ExternalTensor]] = {}
    for tensor in external_tensors(model):
        tensors.setdefault(str(tensor.location), []).append(tensor)
    for location in sorted(tensors):
        found = tensors[location]
        path = (folder / location).resolve()
        inside = path.is_relative_to(folder.resolve()) and path.is_file()
        needed = max((t.offset or 0) + (t.length or t.nbytes) for t in found)
        yield ExternalFile(location, len(found), needed, path.stat().st_size if inside else None)


def external_tensors(model: ir.Model) -> Iterator[ir.ExternalTensor]:
    """Yield every tensor that lies in another file, those in attributes included."""
    for _, graph in all_graphs(model.graph):
        for value in graph.initializers.values():
            if isinstance(value.const_value, ir.ExternalTensor):
                yield value.const_value
    for scoped in walk(model.graph):
        for attribute in scoped.node.attributes.values():
            if isinstance(attribute.value, ir.ExternalTensor):
                yield attribute.value
