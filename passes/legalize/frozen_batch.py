"""A batch that tracing froze to a number in a model whose inputs leave it open.

Before:  Reshape(x, [1, 3, -1]), x float[N, 3, 2, 2]      After:  Reshape(x, [0, 3, -1])
         GatherElements(w, i), w [1, 5], i [N, 2]                 GatherElements(Expand(w), i)
         Add(Expand(p, [2, 4]), x), p [1, 4], x [N, 4]            Add(p, x)

For the batch that it was traced with nothing changes. For any other the node failed or, worse,
mixed the samples. A Reshape with an open size could mean that, so it is only changed if the batch
otherwise would not reach a graph output that declares it. Every change is noted.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np
import onnx_ir as ir

from cannc.compiler.core.shapes import rank
from cannc.passes.base import Numerics, PassContext
from cannc.passes.inference import refresh_types
from cannc.passes.legalize.base import EditCure
from cannc.passes.opset.edit import Edit
from cannc.passes.pattern import ints_of

_KEEP_BATCH = frozenset(
    {"Cast", "Clip", "Elu", "Erf", "Exp", "Gelu", "HardSigmoid", "HardSwish", "Identity",
     "LeakyRelu", "Neg", "Relu", "Sigmoid", "Sqrt", "Tanh"}
)  # fmt: skip
_BROADCAST = frozenset({"Add", "Div", "Mul", "Sub", "Where"})


class UnfreezeBatch(EditCure):
    """See the module."""

    name = "unfreeze-batch"
    summary = "a batch frozen by tracing stays open where the inputs leave it open"
    numerics = Numerics.EXACT
    op_types = frozenset({"Expand", "GatherElements", "Reshape"})

    def run(self, ctx: PassContext) -> None:
        """Rewrite, then infer the shapes of what follows."""
        before = ctx.rewriter.applied
        super().run(ctx)
        if ctx.rewriter.applied > before:
            refresh_types(ctx.model)

    def needs(self, edit: Edit) -> bool:
        """Is an open batch met by a number?"""
        return _TESTS[edit.node.op_type](edit)

    def obstacle(self, edit: Edit) -> str | None:
        """There is none."""
        return None

    def apply(self, edit: Edit) -> None:
        """Leave the batch open."""
        node = edit.node
        edit.ctx.note(f"{node.name} ({node.op_type}): the batch was frozen to a number; now open")
        if node.op_type == "Reshape":
            target = ints_of(edit.input(1))
            assert target is not None
            edit.swap("Reshape", [edit.data(), edit.constant([0, *target[1:]])], node.attributes)
        elif node.op_type == "Expand":
            target = ints_of(edit.input(1))
            assert target is not None
            edit.swap("Expand", [edit.data(), edit.constant([1, *target[1:]])], {})
        else:
            _expand_table(edit)


def _frozen_reshape(edit: Edit) -> bool:
    target, shape = ints_of(edit.input(1)), edit.data().shape
    if target is None or shape is None or len(target) < 2 or target[0] <= 0:
        return False
    sample = [dim for dim in list(shape)[1:] if isinstance(dim, int)]
    if not _is_open(shape) or len(sample) < len(shape) - 1:
        return False
    if edit.node.attributes.get_int("allowzero", 0):
        return False
    size = int(np.prod(sample))
    rest = [sample[i] if n == 0 and i < len(sample) else n for i, n in enumerate(target[1:])]
    if -1 not in rest:
        return int(np.prod(rest)) == size
    known = -int(np.prod(rest))
    return size % max(known, 1) == 0 and any(_declares_batch(edit.node.outputs[0]))


def _frozen_table(edit: Edit) -> bool:
    table, indices = edit.data(), edit.input(1)
    axis = edit.node.attributes.get_int("axis", 0) % (rank(table) or 1)
    single = table.shape is not None and len(table.shape) > 1 and table.shape[0] == 1
    return single and axis != 0 and indices is not None and _is_open(indices.shape)


def _expand_table(edit: Edit) -> None:
    table, indices = edit.data(), edit.input(1)
    sizes = edit.make("Shape", indices)
    sizes.outputs[0].type = ir.TensorType(ir.DataType.INT64)
    first = edit.make("Slice", sizes.outputs[0], *(edit.constant([n]) for n in (0, 1, 0)))
    ones = edit.constant([1] * ((rank(table) or 1) - 1))
    target = edit.make("Concat", first.outputs[0], ones, attributes={"axis": 0})
    whole = edit.make("Expand", table, target.outputs[0])
    found = edit.make("GatherElements", whole.outputs[0], indices, attributes=edit.node.attributes)
    edit.put([sizes, first, target, whole, found])


def _frozen_expand(edit: Edit) -> bool:
    target, shape = ints_of(edit.input(1)), edit.data().shape
    if target is None or shape is None or len(target) != len(shape) or len(target) < 2:
        return False
    return shape[0] == 1 and target[0] > 1 and _meets_batch(edit.node.outputs[0])


def _meets_batch(value: ir.Value) -> bool:
    """Do all users broadcast it against a value of the same rank with an open batch?"""
    if value.is_graph_output() or not value.uses():
        return False
    for user, position in value.uses():
        if user.op_type in _BROADCAST:
            others = [v for v in user.inputs if v is not None and v is not value]
            if not any(rank(v) == rank(value) and _is_open(v.shape) for v in others):
                return False
        else:
            passes_on = _looks_up(user, position) or user.op_type in _KEEP_BATCH
            if not passes_on or not _meets_batch(user.outputs[0]):
                return False
    return True


def _looks_up(node: ir.Node, position: int) -> bool:
    """Is it a table that is read at these places, row by row?"""
    axis = node.attributes.get_int("axis", 0)
    return node.op_type == "Gather" and position == 1 and axis == 0


def _declares_batch(value: ir.Value) -> Iterator[bool]:
    """Yield, for each graph output that the first axis reaches, whether it is open there."""
    if value.is_graph_output():
        yield _is_open(value.shape)
    for user, _ in value.uses():
        perm = user.attributes.get_ints("perm") if user.op_type == "Transpose" else None
        if user.op_type in _KEEP_BATCH or (perm is not None and perm[0] == 0):
            yield from _declares_batch(user.outputs[0])


def _is_open(shape: ir.Shape | None) -> bool:
    return shape is not None and len(shape) > 0 and not isinstance(shape[0], int)


_TESTS: dict[str, Callable[[Edit], bool]] = {
    "Expand": _frozen_expand,
    "GatherElements": _frozen_table,
    "Reshape": _frozen_reshape,
}
