"""Which gear takes an input, and what padding does to it.

A device runs the sizes that it was compiled for and no others. An input between two gears is padded
with zeros to the larger one and the results are cut back. That is right only if no element of a
result depends on the padding: batch axes are made for it, other axes are not (Softmax, means,
attention and convolutions mix along them). So by default batch gears pad and all others are strict.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

import numpy as np

from cannc.compiler.core.errors import UsageError
from cannc.compiler.core.runner import Array
from cannc.compiler.om.gears import Dims, Gear, GearKind, GearSet
from cannc.compiler.runtime.ports import Port

Padding: TypeAlias = Literal["batch", "none", "any"]
PADDINGS = ("batch", "none", "any")


@dataclass(frozen=True)
class Fit:
    """A gear for one set of inputs.

    Attributes:
        number: Number of the gear.
        gear: The gear.
        shapes: Shapes of the inputs as they are.
        axes: Input name -> axes to pad; empty when the inputs have the gear's own sizes.
    """

    number: int
    gear: Gear
    shapes: Mapping[str, Dims]
    axes: Mapping[str, tuple[int, ...]]

    def pad(self, feeds: Mapping[str, Any], *, edge: bool = False) -> dict[str, Any]:
        """Return the inputs at the gear's sizes.

        Args:
            feeds: Inputs at their real sizes.
            edge: Repeat the last element of an axis behind it, instead of zeros.
        """
        pad = _edge_padded if edge else _padded
        return {n: pad(f, self.gear.inputs[n]) if n in self.axes else f for n, f in feeds.items()}


def fit(gears: GearSet, feeds: Mapping[str, Any], padding: Padding) -> Fit:
    """Return the gear with exactly these sizes, else the smallest that they can be padded to.

    Raises:
        UsageError: ``RUN015`` there is none; the gears are listed.
    """
    shapes = {n: tuple(np.shape(feeds[n])) for n in gears.gears[0].inputs if n in feeds}
    found = [
        Fit(number, gear, shapes, axes)
        for number, gear in enumerate(gears.gears)
        if (axes := _axes(gear, shapes, gears.kind, padding)) is not None
    ]
    if found:
        return min(found, key=lambda one: (bool(one.axes), one.gear.elements))
    given = Gear((), shapes)
    larger = _axes(gears.gears[gears.largest], shapes, gears.kind, "any") is not None
    why = "padding an axis that is no batch may change the results" if larger else ""
    cure = "; or padding='any' (--padding any), if zeros are harmless there" if larger else ""
    listed = "; ".join(str(gear) for gear in gears.gears)
    raise UsageError(
        "RUN015",
        f"no gear takes the sizes {given}",
        where=f"gears: {listed}",
        why=why,
        fix=f"feed the sizes of a gear{cure}",
    )


def result_sizes(fitted: Fit, inputs: Sequence[Port], outputs: Sequence[Port]) -> dict[str, Dims]:
    """Return the shapes that outputs would have without the padding, of those that it changes.

    An output grows with an input where both declare the same named dimension.

    Raises:
        UsageError: ``RUN016`` an output has an open dimension whose size follows from no input.
    """
    real: dict[str, int] = {}
    grown: dict[str, int] = {}
    for port in inputs:
        if port.name not in fitted.shapes:
            continue
        here, there = fitted.shapes[port.name], fitted.gear.inputs[port.name]
        for dim, size, padded in zip(port.shape or (), here, there, strict=False):
            if isinstance(dim, str):
                real[dim], grown[dim] = size, padded
    sizes = {}
    for port in outputs:
        unknown = port.shape is None or not all(isinstance(d, int) or d in real for d in port.shape)
        if unknown or not port.is_tensor:
            raise _cannot_cut(port)
        dims = tuple(d if isinstance(d, int) else real[str(d)] for d in port.shape or ())
        if any(isinstance(d, str) and real[d] != grown[d] for d in port.shape or ()):
            sizes[port.name] = dims
    return sizes


def cut(results: Mapping[str, Any], sizes: Mapping[str, Dims]) -> dict[str, Any]:
    """Return the results of a padded run, those in `sizes` at these sizes."""
    return {
        name: result[tuple(map(slice, sizes[name]))] if name in sizes else result
        for name, result in results.items()
    }


def check_harmless(padded: Mapping[str, Any], exact: Mapping[str, Any]) -> None:
    """Compare results cut back from a padded run with those of a run at the real sizes.

    Raises:
        UsageError: ``RUN017`` padding changed a result by more than rounding does.
    """
    for name, result in exact.items():
        change = _change(np.asarray(padded[name]), np.asarray(result))
        if change:
            raise UsageError(
                "RUN017",
                f"padding changes output '{name}'",
                why=f"{change}: the model mixes elements along the padded axis",
                fix="feed the sizes of a gear, or compile one of this size",
            )


def _axes(
    gear: Gear, shapes: Mapping[str, Dims], kind: GearKind, padding: Padding
) -> dict[str, tuple[int, ...]] | None:
    """Return the axes to pad, by input; None when the gear does not take these shapes."""
    found = {}
    for name, here in shapes.items():
        there = gear.inputs[name]
        if len(here) != len(there) or any(a > b for a, b in zip(here, there, strict=True)):
            return None
        axes = tuple(axis for axis, size in enumerate(here) if size != there[axis])
        batch = padding == "batch" and kind == GearKind.BATCH and axes == (0,)
        if axes and not batch and padding != "any":
            return None
        if axes:
            found[name] = axes
    return found


def _padded(feed: Any, dims: Dims) -> Array:
    array = np.asarray(feed)
    fill = "" if array.dtype == object else 0
    whole = np.full(dims, fill, array.dtype)
    whole[tuple(map(slice, array.shape))] = array
    return whole


def _edge_padded(feed: Any, dims: Dims) -> Array:
    array = np.asarray(feed)
    if not array.size:  # there is no last element
        return np.ones(dims, array.dtype)
    widths = [(0, there - here) for here, there in zip(array.shape, dims, strict=True)]
    return np.pad(array, widths, mode="edge")


def _cannot_cut(port: Port) -> UsageError:
    return UsageError(
        "RUN016",
        f"output '{port.name}' cannot be cut back to the size of the inputs",
        where=f"{port.name} {port}",
        why="its size does not follow from that of an input by a common name of a dimension",
        fix="feed the sizes of a gear",
    )


def _change(padded: Array, exact: Array) -> str:
    """Say how two results differ; "" when they agree within rounding (as compare judges, D5)."""
    if padded.shape != exact.shape:
        return f"shape {padded.shape} instead of {exact.shape}"
    if exact.dtype.kind in "OUSbiu":
        return "" if np.array_equal(padded, exact) else "other values"
    tolerance = 1e-3 if exact.dtype.itemsize > 2 else 1e-2
    wide = np.complex128 if exact.dtype.kind == "c" else np.float64
    a, b = padded.astype(wide), exact.astype(wide)
    if not np.array_equal(np.isfinite(a), np.isfinite(b)):
        return "NaN or infinity at other places"
    off = np.where(np.isfinite(b), np.abs(a - b), 0.0)
    size = np.where(np.isfinite(b), np.abs(b), 0.0)
    if off.max(initial=0.0) <= 1e-6 + tolerance * size.max(initial=0.0):
        return ""
    return f"by up to {off.max():.3g}, where the largest value is {size.max():.3g}"
