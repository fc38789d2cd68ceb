"""Models with gears: written with any sizes, without the options of a compile."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import onnx
import onnx_ir as ir

from cannc.compiler.memory.sizing import forms_at
from cannc.compiler.om.gears import Gear, GearKind, GearPlan, GearSet
from cannc.compiler.om.reader import OmFile
from cannc.compiler.om.writer import write_om

Sizes = dict[str, tuple[int, ...]]


def plan(
    model: ir.Model, sizes: Sequence[Sizes], rows: Sequence[tuple[int, ...]], kind: GearKind
) -> GearPlan:
    """Return gears of the given input shapes."""
    gears = tuple(Gear(row, one) for row, one in zip(rows, sizes, strict=True))
    shapes = [
        {name: form.shape for name, form in forms_at(model, one).items() if form.dtype is not None}
        for one in sizes
    ]
    return GearPlan(GearSet(kind, tuple(sizes[0]), gears), shapes)


def with_gears(
    proto: onnx.ModelProto,
    path: Path,
    sizes: Sequence[Sizes],
    rows: Sequence[tuple[int, ...]] | None = None,
    kind: GearKind = GearKind.BATCH,
) -> OmFile:
    """Write an artifact; without `rows` each gear varies the first size of its first input."""
    model = ir.from_proto(proto)
    rows = rows or [(next(iter(one.values()))[0],) for one in sizes]
    write_om(model, path, name=path.stem, attributes={}, gears=plan(model, sizes, rows, kind))
    return OmFile.open(path)
