"""Names in a damaged file may be no text: protobuf hands bytes that are not UTF-8 through."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import onnx_ir as ir

from cannc.compiler.core.graphs import all_graphs


def no_text(model: ir.Model) -> str:
    """Return the first name in a model that is no text; ``""`` when all of them are."""
    return next((repr(text) for text in _texts(model) if not isinstance(text, str)), "")


def _texts(model: ir.Model) -> Iterator[Any]:
    yield from (model.producer_name or "", model.producer_version or "")
    yield from (model.domain or "", model.doc_string or "")
    yield from (*model.metadata_props, *model.metadata_props.values())
    yield from model.graph.opset_imports
    for function in model.functions.values():
        yield from (function.name, function.domain)
    for _, graph in all_graphs(model.graph):
        yield graph.name or ""
        yield from (value.name or "" for value in (*graph.inputs, *graph.outputs))
        yield from graph.initializers
        for node in graph:
            yield from (node.name or "", node.op_type, node.domain, *node.attributes)
            yield from (value.name or "" for value in node.inputs if value is not None)
            yield from (value.name or "" for value in node.outputs)
