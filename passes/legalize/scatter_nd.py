"""ScatterND with a reduction; the device may overwrite instead.

Before:  ScatterND<reduction=mul>(x, i, u)
After:   ScatterND(x, i, Mul(GatherND(x, i), u))

That holds where no element is written twice, so constant indices are cut into rounds without
repetition, one after the other: the order in which ONNX applies them. Of computed indices, each one
is a round of its own, if they are few. Add, Max and Min work alike.
"""

from __future__ import annotations

from collections import Counter

import numpy as np
import onnx_ir as ir

from cannc.compiler.core.runner import Array
from cannc.compiler.core.shapes import static_shape
from cannc.passes.base import Numerics
from cannc.passes.legalize.base import EditCure
from cannc.passes.opset.edit import Edit
from cannc.passes.pattern import array_of

_COMBINE = {"add": "Add", "mul": "Mul", "max": "Max", "min": "Min"}
_MOST_ROUNDS = 16


class ScatterReduction(EditCure):
    """See the module."""

    name = "scatter-nd-reduction"
    summary = "ScatterND with a reduction -> GatherND, the operation, ScatterND"
    numerics = Numerics.REASSOCIATED
    op_types = frozenset({"ScatterND"})

    def needs(self, edit: Edit) -> bool:
        """Has it a reduction?"""
        return edit.node.attributes.get_string("reduction", "none") in _COMBINE

    def obstacle(self, edit: Edit) -> str | None:
        """Repetitions must be known."""
        indices, shape = array_of(edit.input(1)), static_shape(edit.data())
        reduction = edit.node.attributes.get_string("reduction", "none")
        if indices is None:
            rows = _computed_rows(edit)
            few = rows is not None and rows <= _MOST_ROUNDS
            return None if few else f"reduction={reduction}: its indices are computed, may repeat"
        if shape is None and np.less(indices, 0).any():
            return f"reduction={reduction}: negative indices into an unknown shape"
        if len(_rounds(indices, shape)) > _MOST_ROUNDS:
            return f"reduction={reduction}: an element is written more than {_MOST_ROUNDS} times"
        return None

    def apply(self, edit: Edit) -> None:
        """Write out the rounds."""
        indices, shape = array_of(edit.input(1)), static_shape(edit.data())
        combine = _COMBINE[edit.node.attributes.get_string("reduction", "none")]
        if indices is not None:
            rounds = _rounds(indices, shape)
        else:
            rounds = [[row] for row in range(_computed_rows(edit) or 0)]
        nodes: list[ir.Node] = []
        parts = [(edit.input(1), edit.input(2))]
        if len(rounds) > 1:
            parts = _cut(edit, rounds, nodes)
        current = edit.data()
        for places, updates in parts:
            old = edit.make("GatherND", current, places)
            new = edit.make(combine, old.outputs[0], updates)
            nodes += [old, new, edit.make("ScatterND", current, places, new.outputs[0])]
            current = nodes[-1].outputs[0]
            current.type, current.shape = edit.data().type, edit.data().shape
        edit.put(nodes)


def _cut(
    edit: Edit, rounds: list[list[int]], nodes: list[ir.Node]
) -> list[tuple[ir.Value | None, ir.Value | None]]:
    """Return indices and updates of each round; the nodes that cut them are added to `nodes`."""
    flat: list[ir.Value | None] = []
    for value, kept in ((edit.input(1), 1), (edit.input(2), None)):
        lead = len(static_shape(edit.input(1)) or ()) - 1
        sizes = static_shape(value) or ()
        tail = sizes[-kept:] if kept else sizes[lead:]
        if lead != 1:
            count = int(np.prod(sizes[:lead]))
            nodes.append(edit.make("Reshape", value, edit.constant([count, *tail])))
            value = nodes[-1].outputs[0]
        flat.append(value)
    parts = []
    for rows in rounds:
        pick = edit.constant(rows)
        nodes += [edit.make("Gather", value, pick) for value in flat]
        parts.append((nodes[-2].outputs[0], nodes[-1].outputs[0]))
    return parts  # type: ignore[return-value]


def _computed_rows(edit: Edit) -> int | None:
    """Return how many indices there are; None when that is not known."""
    places, updates = static_shape(edit.input(1)), static_shape(edit.input(2))
    return None if places is None or updates is None else int(np.prod(places[:-1]))


def _rounds(indices: Array, shape: tuple[int, ...] | None) -> list[list[int]]:
    """Return rows of the indices in groups in which none repeats, in order of writing."""
    rows = indices.reshape(-1, indices.shape[-1])
    if shape is not None:
        rows = rows % np.array(shape[: rows.shape[1]])
    seen: Counter[tuple[int, ...]] = Counter()
    rounds: list[list[int]] = []
    for number, row in enumerate(map(tuple, rows.tolist())):
        if seen[row] == len(rounds):
            rounds.append([])
        rounds[seen[row]].append(number)
        seen[row] += 1
    return rounds
