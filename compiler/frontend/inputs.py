"""Input arrays for a model: read from files, and shapes that the user fixes."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import onnx_ir as ir

from cannc.compiler.core.arrays import read_npz
from cannc.compiler.core.errors import UsageError, nearest
from cannc.compiler.core.runner import Array


def read_inputs(specs: tuple[str, ...]) -> dict[str, Array]:
    """Read ``FILE.npz`` or ``name=FILE.npy`` arguments.

    Raises:
        UsageError: ``INP011`` neither form.
    """
    arrays: dict[str, Array] = {}
    for spec in specs:
        name, equals, file = spec.partition("=")
        if not equals:
            arrays.update(read_npz(Path(spec)))
        elif file.endswith(".npy"):
            arrays[name] = next(iter(read_npz(Path(file)).values()))
        else:
            raise UsageError(
                "INP011", f"cannot read input '{spec}'", fix="use FILE.npz or name=FILE.npy"
            )
    return arrays


def fix_shapes(model: ir.Model, shapes: Mapping[str, tuple[int, ...]]) -> None:
    """Give graph inputs static shapes, in place; a -1 keeps that dimension as it is.

    Raises:
        UsageError: ``SHP001`` no such input, ``SHP002`` another rank, ``SHP003`` contradicts a
            size that the model fixes.
    """
    inputs = {value.name or "": value for value in model.graph.inputs}
    for name, wanted in shapes.items():
        if name not in inputs:
            raise UsageError(
                "SHP001",
                f"no input is called '{name}'{nearest(name, inputs)}",
                where="--input-shape",
                fix=f"inputs: {', '.join(inputs)}",
            )
        value = inputs[name]
        current = value.shape
        if current is not None and len(current) != len(wanted):
            raise UsageError(
                "SHP002",
                f"input '{name}' has {len(current)} dimensions, {len(wanted)} were given",
                where="--input-shape",
                why=f"the model declares {name}{current}",
                fix=f"give {len(current)} numbers; -1 keeps a dimension",
            )
        old = list(current) if current is not None else [None] * len(wanted)
        value.shape = ir.Shape([_merge(name, o, n) for o, n in zip(old, wanted, strict=True)])


def _merge(name: str, old: int | ir.SymbolicDim | None, new: int) -> int | ir.SymbolicDim | None:
    if new == -1:
        return old
    if isinstance(old, int) and old != new:
        raise UsageError(
            "SHP003",
            f"input '{name}': the model fixes a dimension to {old}, {new} was given",
            where="--input-shape",
            fix="export the model with that dimension dynamic",
        )
    return new
