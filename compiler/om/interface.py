"""What the interface partition of a host artifact says, taken from its graph."""

from __future__ import annotations

from typing import Any

import onnx_ir as ir

from cannc.compiler.om import gears as layout
from cannc.compiler.om.attributes import typed
from cannc.compiler.om.descriptors import UNKNOWN_RANK
from cannc.compiler.om.dtypes import ACL_DTYPE, ACL_UNDEFINED, FORMAT_ND
from cannc.compiler.om.gears import GearKind, GearPlan
from cannc.compiler.om.inout_info import InOutInfo, TensorInfo, loader_takes
from cannc.compiler.om.ranges import ranges_of


def describe_interface(model: ir.Model, definition: Any, gears: GearPlan | None) -> InOutInfo:
    """Describe inputs, outputs and gears by the descriptors that the root graph carries.

    With gears there is one input more: the sizes that a run wants (pyacl.md section 4).
    """
    ops = definition.graph[0].op
    data = sorted((op for op in ops if op.type == "Data"), key=lambda op: op.attr["index"].i)
    end = next(op for op in ops if op.type == "NetOutput")
    inputs = [v for v in model.graph.inputs if v.name not in model.graph.initializers]
    known = [(v.name or "", v.dtype) for v in inputs]
    known += [(op.name, ir.DataType.INT32) for op in data[len(inputs) :]]
    info = InOutInfo(
        [_of_input(*entry, op) for entry, op in zip(known, data, strict=True)],
        [
            _tensor(value.name or "", value.dtype, desc)
            for value, desc in zip(model.graph.outputs, end.input_desc, strict=True)
        ],
    )
    if gears is not None:
        _add_gears(info, gears, typed(end.attr, layout.OUTPUT_DIMS, "list:s", []))
    return info


def _add_gears(info: InOutInfo, plan: GearPlan, output_shapes: list[str]) -> None:
    rows = [gear.sizes for gear in plan.gears.gears]
    if plan.gears.kind == GearKind.BATCH:
        info.batch += [row[0] for row in rows]
    elif plan.gears.kind == GearKind.IMAGE:
        info.image_sizes += rows
    else:
        info.dims += rows
    info.output_shapes += output_shapes
    # The graph holds the order as well, so it can be left out where the loader would trip.
    if loader_takes(plan.gears.order):
        info.designated_order += plan.gears.order


def _of_input(name: str, dtype: ir.DataType | None, op: Any) -> TensorInfo:
    desc = op.output_desc[0]
    dims = typed(op.attr, layout.OPEN_DIMS, "list:i", None)
    return _tensor(name, dtype, desc, tuple(dims) if dims else None)


def _tensor(
    name: str, dtype: ir.DataType | None, desc: Any, dims: tuple[int, ...] | None = None
) -> TensorInfo:
    dims = dims or tuple(desc.shape.dim)
    return TensorInfo(
        name=name,
        size=desc.size,
        format=FORMAT_ND,
        dtype=ACL_DTYPE.get(dtype or ir.DataType.UNDEFINED, ACL_UNDEFINED),
        dims=dims,
        dims_v2=() if dims == UNKNOWN_RANK else dims,
        ranges=ranges_of(desc),
    )
