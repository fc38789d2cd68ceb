"""Gears and ranges of a host artifact, from the options that ATC would get (D23)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import onnx_ir as ir

from cannc.compiler.backends.atc.gears import Gears
from cannc.compiler.backends.atc.resolve import Resolved
from cannc.compiler.core.errors import UsageError
from cannc.compiler.core.graphs import all_graphs
from cannc.compiler.memory.sizing import Forms, dim_sizes, forms_at
from cannc.compiler.om.gears import Gear, GearKind, GearPlan, GearSet
from cannc.compiler.om.ranges import OPEN_RANGE, Ranges

_KINDS = {
    "dynamic_batch_size": GearKind.BATCH,
    "dynamic_image_size": GearKind.IMAGE,
    "dynamic_dims": GearKind.DIMS,
}


@dataclass(frozen=True)
class StoredSizes:
    """What the artifact says about sizes.

    Attributes:
        gears: Its gears, with the shapes that every value has in each.
        ranges: Least and most sizes of the inputs for which the options state a range.
        notes: What the user should know.
    """

    gears: GearPlan | None = None
    ranges: Mapping[str, Ranges] = field(default_factory=dict)
    notes: tuple[str, ...] = ()


def sizes_of(model: ir.Model, resolved: Resolved | None) -> StoredSizes:
    """Return what an artifact of `model` says about sizes.

    Args:
        model: The model as it is stored, dims of gears and ranges open; not changed.
        resolved: The options, if any were given.

    Raises:
        UsageError: ``MEM003`` the sizes contradict the model, ``BCK007`` an output does not follow
            the sizes of a gear.
    """
    if resolved is None:
        return StoredSizes()
    ranges, notes = _ranges(resolved), tuple(resolved.notes)
    if resolved.gears is None:
        return StoredSizes(None, ranges, notes)
    sizes = [*resolved.gears.shapes(resolved.shapes)]
    forms = [forms_at(model, shapes) for shapes in sizes]
    for one, form in zip(sizes, forms, strict=True):
        _check_outputs(model, one, form)
    open_values = [key for key in _values(model) if any(key not in form for form in forms)]
    shapes = [{k: f.shape for k, f in form.items() if f.dtype is not None} for form in forms]
    gears = _gear_set(model, resolved.gears, [*resolved.shapes], sizes)
    return StoredSizes(GearPlan(gears, shapes), ranges, (*notes, *_notes(open_values)))


def _check_outputs(model: ir.Model, sizes: dict[str, tuple[int, ...]], forms: Forms) -> None:
    """Refuse a graph whose outputs do not follow the sizes as they declare to.

    A node that fixes a batch of 1 makes larger gears mix their samples without any other sign.
    """
    known = dim_sizes(model, sizes)
    for value in model.graph.outputs:
        form = forms.get(value.name or "")
        for axis, dim in enumerate(value.shape if value.shape is not None and form else ()):
            wanted = known.get(dim.value or "") if isinstance(dim, ir.SymbolicDim) else None
            found = form.shape[axis] if form and axis < len(form.shape) else None
            if wanted is not None and found is not None and wanted != found:
                raise UsageError(
                    "BCK007",
                    f"output '{value.name}' does not follow the gear {Gear((), sizes)}",
                    where=_fixed_by(value, dim),
                    why=f"dimension {axis} ('{dim}') of {value.name}{value.shape} becomes {found}",
                    fix="export the model with that dimension dynamic",
                )


def _fixed_by(output: ir.Value, dim: object) -> str:
    """Return the node nearest to the output that takes a value with this dim and gives none."""
    pending = [output]
    for value in pending:
        node = value.producer()
        inputs = [v for v in node.inputs if v is not None] if node is not None else []
        if node is not None and any(dim in tuple(v.shape or ()) for v in inputs):
            return f"node {node.name} ({node.op_type})"
        pending += [v for v in inputs if v not in pending]
    return f"output {output.name}"


def _gear_set(
    model: ir.Model, given: Gears, order: Sequence[str], sizes: Sequence[dict[str, tuple[int, ...]]]
) -> GearSet:
    names = [v.name or "" for v in model.graph.inputs if v.name in sizes[0]]
    gears = tuple(
        Gear(row, {name: shapes[name] for name in names})
        for row, shapes in zip(given.rows, sizes, strict=True)
    )
    return GearSet(_KINDS[given.flag], tuple(order), gears)


def _values(model: ir.Model) -> Iterator[str]:
    for scope, graph in all_graphs(model.graph):
        for node in graph:
            for value in node.outputs:
                if value.type is None or isinstance(value.type, ir.TensorType):
                    yield f"{scope}{value.name}"


def _notes(open_values: Sequence[str]) -> list[str]:
    if not open_values:
        return []
    first = f"{len(open_values)} values have no fixed shape even within a gear: '{open_values[0]}'"
    return [f"{first} is the first; gears do not suit networks whose shapes depend on data"]


def _ranges(resolved: Resolved) -> dict[str, Ranges]:
    found = {}
    for name, dims in resolved.shapes.items():
        if any(isinstance(dim, tuple) for dim in dims):
            found[name] = tuple(
                dim if isinstance(dim, tuple) else OPEN_RANGE if dim == -1 else (dim, dim)
                for dim in dims
            )
    return found
