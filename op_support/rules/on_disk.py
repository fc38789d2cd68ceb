"""Faults of the file itself that loading mends, but that stop ATC when it is given this file."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import onnx

from cannc.compiler.core.onnx_io import read_proto
from cannc.op_support.report import Finding, Severity
from cannc.op_support.rules.structure import empty_output
from cannc.op_support.site import PARSER_RUN

_CURE = "save the model again with cannc"
_FOUR_BIT = (onnx.TensorProto.INT4, onnx.TensorProto.UINT4)


def check(path: Path) -> Iterator[Finding]:
    """Yield findings about an ONNX file; other formats have none."""
    if path.suffix != ".onnx":
        return
    proto = read_proto(path)
    yield from _imports(proto)
    yield from _graph(proto.graph, branch=False)


def _imports(proto: onnx.ModelProto) -> Iterator[Finding]:
    versions = {entry.version for entry in proto.opset_import if entry.domain in ("", "ai.onnx")}
    if len(versions) > 1:
        yield _finding(
            "OP060",
            Severity.RISK,
            f"the default domain is imported at versions {sorted(versions)}: the last one wins",
        )


def _graph(graph: onnx.GraphProto, *, branch: bool) -> Iterator[Finding]:
    names = Counter(node.name for node in graph.node if node.name)
    weights = {tensor.name for tensor in graph.initializer}
    names.update(value.name for value in graph.input if value.name not in weights)
    skipped = any(not name for node in graph.node for name in node.input)
    for node in graph.node:
        if names[node.name] > 1:
            yield _finding(
                "OP064",
                Severity.REFUSED,
                f"the name '{node.name}' is used {names[node.name]} times",
                node=node,
                atc_code="E13009",
            )
        if skipped and not all(node.output):
            yield empty_output(node.name, node.op_type)
        for attribute in node.attribute:
            if attribute.HasField("t"):
                yield from _tensor(attribute.t, branch=branch)
            for inner in (attribute.g, *attribute.graphs):
                yield from _graph(inner, branch=True)
    for tensor in graph.initializer:
        yield from _tensor(tensor, branch=branch)
    for sparse in graph.sparse_initializer:
        yield _finding(
            "OP068",
            Severity.WRONG,
            f"sparse initializer '{sparse.values.name}' is not read: what uses it stays open",
        )


def _tensor(tensor: onnx.TensorProto, *, branch: bool) -> Iterator[Finding]:
    if tensor.data_type in _FOUR_BIT and tensor.int32_data:
        yield _finding(
            "OP071",
            Severity.WRONG,
            f"'{tensor.name}' stores 4-bit values in int32_data: the parser reads wrong bytes",
        )
    if tensor.data_location != onnx.TensorProto.EXTERNAL:
        return
    entries = {entry.key: entry.value for entry in tensor.external_data}
    fault = _misread([(entry.key, entry.value) for entry in tensor.external_data])
    if fault is not None:
        yield fault
    if branch or Path(entries.get("location", "")).is_absolute():
        yield _finding(
            "OP069",
            Severity.WRONG,
            f"the path of '{tensor.name}' is taken wrongly: "
            + ("external data inside a branch" if branch else "an absolute location"),
        )


def _misread(entries: list[tuple[str, str]]) -> Finding | None:
    """Any key but location and offset is taken for the length: text fails, digits overwrite it."""
    length_seen = False
    for key, value in entries:
        if key == "length":
            length_seen = True
        elif key not in ("location", "offset"):
            if not value[:1].isdigit():
                why = f"external-data key '{key}' is read as a number"
                return _finding("OP069", Severity.REFUSED, why, atc_code="E10001")
            if length_seen:
                why = f"external-data key '{key}' overwrites the length with its leading digits"
                return _finding("OP069", Severity.WRONG, why)
    return None


def _finding(
    code: str,
    severity: Severity,
    why: str,
    *,
    node: onnx.NodeProto | None = None,
    atc_code: str = "",
) -> Finding:
    return Finding(
        code=code,
        severity=severity,
        node="" if node is None else node.name,
        op_type="" if node is None else node.op_type,
        why=why,
        source=PARSER_RUN,
        atc_code=atc_code,
        cure=_CURE,
    )
