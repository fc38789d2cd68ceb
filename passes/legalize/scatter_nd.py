"""ScatterND with a reduction; the device may overwrite instead.

Before:  ScatterND<reduction=mul>(x, i, u)
After:   ScatterND(x, i, Mul(GatherND(x, i), u))

That holds where no element is written twice, so constant indices are cut into rounds without
repetition, one after the other: the order in which ONNX applies them. Max and Min work alike.
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
            return f"reduction={reduction}: its indices are computed and may repeat"
        if shape is None and np.less(indices, 0).any():
            return f"reduction={reduction}: negative indices into an unknown shape"
        if len(_rounds(indices, shape)) > _MOST_ROUNDS:
            return f"reduction={reduction}: an element is written more than {_MOST_ROUNDS} times"
        return None

    def apply(self, edit: Edit) -> None:
        """Write out the rounds."""
        indices, shape = array_of(edit.input(1)), static_shape(edit.data())
        combine = _COMBINE[edit.node.attributes.get_string("reduction", "none")]
        assert indices is not None
        rounds = _rounds(indices, shape)
        lead, updates = indices.ndim - 1, edit.input(2)
        nodes: list[ir.Node] = []
        if len(rounds) > 1 and lead != 1:
            tail = (static_shape(updates) or ())[lead:]
            flat = edit.make("Reshape", updates, edit.constant([indices[..., 0].size, *tail]))
            nodes.append(flat)
            updates = flat.outputs[0]
        current = edit.data()
        for rows in rounds:
            places, part = edit.input(1), updates
            if len(rounds) > 1:
                places = edit.constant(indices.reshape(-1, indices.shape[-1])[rows])
                nodes.append(edit.make("Gather", updates, edit.constant(rows)))
                part = nodes[-1].outputs[0]
            old = edit.make("GatherND", current, places)
            new = edit.make(combine, old.outputs[0], part)
            nodes += [old, new, edit.make("ScatterND", current, places, new.outputs[0])]
            current = nodes[-1].outputs[0]
            current.type, current.shape = edit.data().type, edit.data().shape
        edit.put(nodes)


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
