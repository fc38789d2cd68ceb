"""GatherND whose leading axes are batches; the plugin demands none.

Before:  GatherND<batch_dims=b>(x, i)
After:   Reshape(GatherND(Reshape(x, [B, ...]), Concat(n, Reshape(i, [B, ..., k]))), shape)

B is the product of the first b axes, n the number of the batch that each index belongs to.
"""

from __future__ import annotations

import math

import numpy as np

from cannc.compiler.core.shapes import static_shape
from cannc.passes.base import Numerics
from cannc.passes.legalize.base import EditCure
from cannc.passes.opset.edit import Edit


class BatchGatherND(EditCure):
    """See the module."""

    name = "batch-gather-nd"
    summary = "GatherND with batch_dims -> batch numbers in the indices"
    numerics = Numerics.EXACT
    op_types = frozenset({"GatherND"})

    def needs(self, edit: Edit) -> bool:
        """Has it batch axes?"""
        return edit.node.attributes.get_int("batch_dims", 0) > 0

    def obstacle(self, edit: Edit) -> str | None:
        """Batch numbers are a constant of the size of the indices."""
        known = [static_shape(edit.data()), static_shape(edit.input(1))]
        return None if None not in known else "batch_dims with shapes that are not static"

    def apply(self, edit: Edit) -> None:
        """Number the batches."""
        batch = edit.node.attributes.get_int("batch_dims", 0)
        data, indices = static_shape(edit.data()), static_shape(edit.input(1))
        assert data is not None
        assert indices is not None
        total = math.prod(data[:batch])
        rows = (total, *indices[batch:-1])
        numbers = np.arange(total, dtype=np.int64).reshape(-1, *[1] * len(rows))
        table = edit.make("Reshape", edit.data(), edit.constant([total, *data[batch:]]))
        places = edit.make("Reshape", edit.input(1), edit.constant([*rows, indices[-1]]))
        full = edit.make(
            "Concat",
            edit.constant(np.broadcast_to(numbers, (*rows, 1))),
            places.outputs[0],
            attributes={"axis": -1},
        )
        found = edit.make("GatherND", table.outputs[0], full.outputs[0])
        shape = [*indices[:-1], *data[batch + indices[-1] :]]
        back = edit.make("Reshape", found.outputs[0], edit.constant(shape))
        edit.put([table, places, full, found, back])
