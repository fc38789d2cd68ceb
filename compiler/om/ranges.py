"""Ranges of input sizes, as GE keeps them: ``shape_range`` of a Data's descriptors."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeAlias

from cannc.compiler.om import own
from cannc.compiler.om.attributes import typed

Ranges: TypeAlias = "tuple[tuple[int, int], ...]"
"""Least and most size of each dimension; most is -1 where it is open."""
OPEN_RANGE = (1, -1)
"""Any size."""

_RANGE = "shape_range"


def put_ranges(definition: Any, ranges: Mapping[str, Ranges]) -> None:
    """Store the ranges of inputs of the root graph, by input name."""
    for op, name in _inputs(definition):
        for desc in (op.input_desc[0], op.output_desc[0]) if name in ranges else ():
            rows = desc.attr[_RANGE].list_list_int.list_list_i
            for bounds in ranges[name]:
                rows.add().list_i.extend(bounds)


def ranges_of(desc: Any) -> Ranges:
    """Return the ranges in a descriptor; empty where it has none, or none that fit its shape."""
    rows = typed(desc.attr, _RANGE, "list_list_int", [])
    if len(rows) != len(desc.shape.dim) or any(len(row) != 2 for row in rows):
        return ()
    return tuple((least, most) for least, most in rows)


def read_ranges(definition: Any) -> dict[str, Ranges]:
    """Return what `put_ranges` stored."""
    found = {name: ranges_of(op.output_desc[0]) for op, name in _inputs(definition)}
    return {name: ranges for name, ranges in found.items() if ranges}


def range_text(ranges: Ranges) -> str:
    """Return e.g. ``1~8,3,224~``."""
    return ",".join(
        str(least) if least == most else f"{least}~{most if most >= 0 else ''}"
        for least, most in ranges
    )


def _inputs(definition: Any) -> list[tuple[Any, str]]:
    root = definition.graph[0].op if definition.graph else ()
    return [
        (op, str(typed(op.attr, own.OUTPUTS, "list:s", [op.name])[0]))
        for op in root
        if op.type == "Data" and op.output_desc
    ]
