"""Ranges of named dimensions, as the compiler's option for the shapes of inputs states them."""

from __future__ import annotations

from collections.abc import Mapping

import onnx_ir as ir

from cannc.compiler.core.errors import UsageError, nearest
from cannc.compiler.runtime.ports import Port, input_ports


def input_ranges(model: ir.Model, ranges: Mapping[str, str]) -> dict[str, str]:
    """Return compile options that give dimensions these ranges; none without ranges.

    Args:
        model: The model.
        ranges: Name of a dimension -> ``least~most``.

    Raises:
        UsageError: ``RCP004`` no input has such a dimension.
    """
    if not ranges:
        return {}
    ports = input_ports(model)
    known = {dim for port in ports for dim in port.shape or () if isinstance(dim, str)}
    for name in ranges:
        if name not in known:
            raise UsageError(
                "RCP004",
                f"no input has a dimension '{name}'{nearest(name, known)}",
                where="compile.ranges",
                fix=f"dimensions: {', '.join(sorted(known)) or 'none is dynamic'}",
            )
    return {"input_shape": ";".join(_shape(port, ranges) for port in ports)}


def _shape(port: Port, ranges: Mapping[str, str]) -> str:
    dims = (str(d) if isinstance(d, int) else ranges.get(str(d), "-1") for d in port.shape or ())
    return f"{port.name}:{','.join(dims)}"
