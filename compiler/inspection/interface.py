"""Inputs, outputs and gears of a compiled model.

MODEL_INOUT_INFO says it all in newer files; older ones are read off the graph (om-format.md
sections 8 and 9).
"""

from __future__ import annotations

import math
from typing import Any

from cannc.compiler.inspection.facts import GearFacts, TensorFacts
from cannc.compiler.inspection.graphs import desc_dims, desc_dtype
from cannc.compiler.inspection.names import acl_dtype, format_name
from cannc.compiler.om.attributes import typed
from cannc.compiler.om.dtypes import FROM_GRAPH, packed_bytes
from cannc.compiler.om.inout_info import InOutInfo, TensorInfo

_GEAR_KINDS = {1: "batch", 2: "image size", 3: "dims"}
# The most gears that ATC compiles; a file that claims more is not followed further.
_MAX_GEARS = 100

Tensors = tuple[TensorFacts, ...]


def of_info(info: InOutInfo) -> tuple[Tensors, Tensors]:
    """Return inputs and outputs as MODEL_INOUT_INFO describes them."""
    return tuple(map(_described, info.inputs)), tuple(map(_described, info.outputs))


def _described(tensor: TensorInfo) -> TensorFacts:
    return TensorFacts(
        tensor.name,
        acl_dtype(tensor.dtype),
        tensor.dims,
        format_name(tensor.format),
        tensor.size,
        tensor.ranges,
    )


def of_graph(definition: Any) -> tuple[Tensors, Tensors]:
    """Return inputs and outputs of the root graph: its Data ops and what NetOutput reads."""
    if not definition.graph:
        return (), ()
    root = definition.graph[0]
    data = [op for op in root.op if op.type == "Data"]
    # Old files have no index; they list the inputs in order. Sorting is stable.
    data.sort(key=lambda op: typed(op.attr, "index", "i", 0))
    inputs = tuple(
        _of_desc(op.name, desc, typed(op.attr, "_mbatch_origin_input_dims", "list:i", None))
        for op in data
        for desc in (*op.input_desc, *op.output_desc)[:1]
    )
    names = typed(definition.attr, "attr_model_out_nodes_name", "list:s", [])
    outputs: list[TensorFacts] = []
    for op in (op for op in root.op if op.type == "NetOutput"):
        for desc, edge in zip(op.input_desc, op.input, strict=False):
            index = len(outputs)
            name = str(names[index]) if index < len(names) else edge
            outputs.append(_of_desc(name, desc))
    return inputs, tuple(outputs)


def _of_desc(name: str, desc: Any, gear_dims: list[int] | None = None) -> TensorFacts:
    """Describe one tensor; `gear_dims` are its dims with -1 where gears differ."""
    dims = tuple(gear_dims) if gear_dims else desc_dims(desc)
    dtype = FROM_GRAPH.get(desc.dtype)
    # ATC pads the sizes in descriptors, so they are computed where they can be.
    if dtype and dims is not None and all(isinstance(dim, int) and dim >= 0 for dim in dims):
        size = packed_bytes(dtype, math.prod(desc.shape.dim))
    else:
        size = max(desc.size, 0)
    return TensorFacts(name, desc_dtype(desc), dims, desc.layout, size)


def gears(info: InOutInfo | None, definition: Any) -> GearFacts | None:
    """Return the gears, from MODEL_INOUT_INFO or from the Case op that chooses between them."""
    if info is not None:
        blocks: tuple[tuple[str, list[tuple[int, ...]]], ...] = (
            ("batch", [(size,) for size in info.batch]),
            ("image size", info.image_sizes),
            ("dims", info.dims),
        )
        for kind, rows in blocks:
            if rows:
                order, shapes = tuple(info.designated_order), tuple(info.output_shapes)
                return GearFacts(kind, tuple(rows), order, shapes)
    return _gears_of_case(definition)


def _gears_of_case(definition: Any) -> GearFacts | None:
    if not definition.graph:
        return None
    ops = definition.graph[0].op
    case = next((op for op in ops if op.type == "Case" and "_batch_num" in op.attr), None)
    if case is None:
        return None
    count = min(typed(case.attr, "_batch_num", "i", 0), _MAX_GEARS)
    rows = [typed(case.attr, f"_pred_value_{i}", "list:i", []) for i in range(count)]
    number = typed(case.attr, "mbatch_dynamic_type", "i", 0)
    order = typed(case.attr, "user_designate_shape_order", "list:s", [])
    ends = [op for op in ops if op.type == "NetOutput"]
    shapes = typed(ends[0].attr, "_dynamic_output_dims", "list:s", []) if ends else []
    return GearFacts(
        _GEAR_KINDS.get(number, f"unknown {number}"),
        tuple(tuple(row) for row in rows),
        tuple(map(str, order)),
        tuple(map(str, shapes)),
    )
