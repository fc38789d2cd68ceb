"""Small host artifacts, and files put together from parts to be wrong in one place."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnx_ir as ir
from onnx import TensorProto as T
from onnx import helper as h
from onnx import numpy_helper

from cannc.compiler.om.header import HEADER_BYTES, Header
from cannc.compiler.om.partitions import PartitionType, pack_table, table_bytes
from cannc.compiler.om.reader import OmFile
from cannc.compiler.om.writer import write_om

SHARED = Path(__file__).parents[2].parent / "shared"


def branching() -> onnx.ModelProto:
    """A model with a captured value and weight, symbolic dims, a function and metadata."""
    then_graph = h.make_graph(
        [h.make_node("Add", ["y", "y"], ["t"], name="in_then")],
        "then",
        [],
        [h.make_tensor_value_info("t", T.FLOAT, None)],
    )
    else_graph = h.make_graph(
        [h.make_node("Mul", ["y", "w2"], ["e"], name="in_else")],
        "else",
        [],
        [h.make_tensor_value_info("e", T.FLOAT, None)],
    )
    nodes = [
        h.make_node("MatMul", ["x", "w"], ["y"], name="mm"),
        h.make_node("If", ["c"], ["z0"], name="if", then_branch=then_graph, else_branch=else_graph),
        h.make_node("Twice", ["z0"], ["z1"], name="twice", domain="npu"),
        h.make_node("Clip", ["z1", "", "hi"], ["z"], name="clip"),
    ]
    graph = h.make_graph(
        nodes,
        "g",
        [
            h.make_tensor_value_info("x", T.FLOAT, ["N", 8]),
            h.make_tensor_value_info("c", T.BOOL, []),
        ],
        [h.make_tensor_value_info("z", T.FLOAT, ["N", 4])],
        [
            numpy_helper.from_array(np.arange(32, dtype=np.float32).reshape(8, 4), "w"),
            numpy_helper.from_array(np.arange(4, dtype=np.float32), "w2"),
            numpy_helper.from_array(np.float32(100), "hi"),
        ],
    )
    twice = h.make_function(
        "npu",
        "Twice",
        ["a"],
        ["b"],
        [h.make_node("Add", ["a", "a"], ["b"])],
        [h.make_opsetid("", 18)],
    )
    imports = [h.make_opsetid("", 18), h.make_opsetid("npu", 1)]
    model = h.make_model(graph, opset_imports=imports, ir_version=10, functions=[twice])
    model.graph.node[0].metadata_props.add(key="cannc.origin", value='["mm"]')
    model.metadata_props.add(key="cannc.provenance", value="{}")
    return model


def written(model: onnx.ModelProto, path: Path, **attributes: str | int | bytes) -> OmFile:
    """Write a host artifact and open it."""
    write_om(ir.from_proto(model), path, name=path.stem, attributes=attributes)
    return OmFile.open(path)


def assembled(path: Path, parts: Sequence[tuple[int, bytes]], header: Header | None = None) -> Path:
    """Write a file from any partitions; lengths are filled in."""
    table = pack_table([(kind, len(data)) for kind, data in parts])
    body = table + b"".join(data for _, data in parts)
    fields = {**vars(header or Header(name="assembled")), "model_length": len(body)}
    path.write_bytes(Header(**fields).pack() + body)
    return path


def with_definition(file: OmFile, definition: Any, path: Path) -> Path:
    """Write a copy of a file with another ModelDef."""
    parts = [
        (p.type, definition.SerializeToString(deterministic=True))
        if p.type == PartitionType.MODEL_DEF
        else (p.type, file.read(p))
        for p in file.partitions
    ]
    return assembled(path, parts, file.header)


def first_partition_offset(count: int) -> int:
    """Return where the first partition of a file with `count` partitions starts."""
    return HEADER_BYTES + table_bytes(count)
