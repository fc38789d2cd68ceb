"""Do the sizes of a gear fit each other: equal names, and shapes that meet in a node."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property

import onnx_ir as ir

from cannc.compiler.backends.atc import gears as gear_rules
from cannc.compiler.backends.atc.gears import Gears
from cannc.compiler.backends.atc.refusal import refuse
from cannc.compiler.backends.atc.shapes import Shapes, declared, feeds, format_shapes
from cannc.compiler.core.shapes import ShapeTrial

Sizes = Mapping[str, tuple[int, ...]]


def place(gears: Gears, given: Shapes, model: ir.Model) -> tuple[Shapes, list[str]]:
    """Return the shapes that the gears vary, all inputs listed, and notes.

    Args:
        gears: The gears.
        given: What ``--input_shape`` says; empty when it was left out. Then the model's own shapes
            count, with its inputs in the first order in which the sizes of a gear fit.
        model: The model; not changed.

    Raises:
        UsageError: ``ATC042`` to ``ATC044`` as `gears.check_places`, ``ATC048`` the sizes of a
            gear contradict each other.
    """
    judge = _Judge(model)
    whole = {**given, **{k: v for k, v in declared(model).items() if k not in given}}
    gear_rules.check_places(gears, whole)
    conflict = judge.conflict(gears, whole)
    if conflict is None:
        return whole, []
    if not given and gears.flag == "dynamic_dims":
        for shapes in gear_rules.orders(model):
            if judge.conflict(gears, shapes) is None:
                order = ", ".join(name for name, dims in shapes.items() if -1 in dims)
                return shapes, [f"--dynamic_dims without --input_shape: the order taken is {order}"]
    raise refuse(
        "ATC048",
        gears.flag,
        f"--{gears.flag}: the sizes of a gear do not fit each other",
        why=conflict,
        fix=f"sizes follow the -1 of {format_shapes(whole)}, in that order",
    )


class _Judge:
    """Compares sizes with one model."""

    def __init__(self, model: ir.Model) -> None:
        self._model = model

    def conflict(self, gears: Gears, shapes: Shapes) -> str | None:
        """Return the first gear with sizes that contradict each other, and how; or None."""
        sizes = [*gears.shapes(shapes)]
        # All gears by name first: shape inference over a large model takes a while.
        for judge in (self._by_name, self._by_graph):
            for one in sizes:
                found = judge(one)
                if found:
                    text = "; ".join(f"{k}:{','.join(map(str, v))}" for k, v in one.items())
                    return f"gear {text}: {found}"
        return None

    def _by_name(self, sizes: Sizes) -> str | None:
        bound: dict[str, int] = {}
        inputs = feeds(self._model)
        for name, dims in sizes.items():
            for dim, size in zip(inputs[name].shape or (), dims, strict=False):
                symbol = dim.value if isinstance(dim, ir.SymbolicDim) else None
                if symbol and bound.setdefault(symbol, size) != size:
                    return f"dimension '{symbol}' would be {bound[symbol]} and {size} ('{name}')"
        return None

    def _by_graph(self, sizes: Sizes) -> str | None:
        return self._trial.conflict(sizes) if self._inference_works else None

    @cached_property
    def _trial(self) -> ShapeTrial:
        return ShapeTrial(self._model)

    @cached_property
    def _inference_works(self) -> bool:
        """Can shape inference judge at all: it must not fail with the dimensions open."""
        return self._trial.conflict({}) is None
