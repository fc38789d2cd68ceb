"""Names for the open sizes of a device's model, which has none: what grows together.

Gears tell it. Two axes are one size if they agree in every gear; so an output's axis follows the
input's axis that has the same sizes over all gears, and can be cut back with it.
"""

from __future__ import annotations

from collections.abc import Sequence

from cannc.compiler.om.gears import Dims, GearSet
from cannc.compiler.runtime.ports import Dim, Port

_NAMES = "size"


def name_sizes(
    inputs: Sequence[Port], outputs: Sequence[Port], gears: GearSet, results: Sequence[list[Dims]]
) -> tuple[list[Port], list[Port]]:
    """Return inputs and outputs whose dims that gears vary have names.

    Args:
        inputs: Inputs, open dims None.
        outputs: Outputs.
        gears: The gears.
        results: For each gear the shapes of the outputs, -1 where a run decides.
    """
    columns: dict[Dims, str] = {}
    named_inputs = []
    for port in inputs:
        rows = [gear.inputs[port.name] for gear in gears.gears]
        named_inputs.append(_named(port, rows, columns, may_add=True))
    named_outputs = [
        _named(port, [row[index] for row in results], columns, may_add=False)
        for index, port in enumerate(outputs)
    ]
    return named_inputs, named_outputs


def _named(port: Port, rows: Sequence[Dims], columns: dict[Dims, str], *, may_add: bool) -> Port:
    return Port(
        port.name,
        port.type,
        tuple(_dim(c, columns, may_add=may_add) for c in zip(*rows, strict=True)),
    )


def _dim(column: Dims, columns: dict[Dims, str], *, may_add: bool) -> Dim:
    if len(set(column)) == 1 and column[0] >= 0:
        return column[0]
    if column not in columns and may_add:
        columns[column] = f"{_NAMES}{len(columns)}"
    return columns.get(column)
