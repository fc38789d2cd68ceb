"""Cut a graph apart at chosen values, so that one run gives every layer's own error (D6).

    x -> A -> a -> B -> b            x -> A -> a          a__golden -> B -> b

Every consumer of a cut value reads a fresh graph input instead, which gets golden's value; the
value itself is still computed, from cut values upstream. What lies between two cut values is one
region and counts whole: casts and reshapes that passes inserted have no counterpart in the
original model and are recomputed inside their region.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import onnx_ir as ir

from cannc.compiler.core.graphs import unique, walk
from cannc.compiler.core.runner import Array

_SUFFIX = "__golden"


@dataclass(frozen=True)
class Exploded:
    """A graph cut apart.

    Attributes:
        model: A copy with the cuts made.
        inputs: Cut value -> the fresh graph input that its consumers read.
    """

    model: ir.Model
    inputs: dict[str, ir.Value]


def explode(model: ir.Model, golden: Mapping[str, Array]) -> Exploded:
    """Cut `model` at values of its main graph.

    Values that nobody reads, and constants that equal golden's, need no cut: operators that want
    a constant there keep it.

    Args:
        model: The candidate, not lowered; its values carry dtypes. Not changed.
        golden: Candidate value -> golden's value in the candidate's layout. Only the shape and, for
            constants, the numbers are looked at.
    """
    copy = model.clone()
    taken = {value.name for scoped in walk(copy.graph) for value in scoped.node.outputs}
    taken |= {value.name for value in copy.graph.inputs} | {*copy.graph.initializers}
    inputs: dict[str, ir.Value] = {}
    for value in _outputs(copy.graph):
        array = golden.get(value.name or "")
        if array is None or not isinstance(value.type, ir.TensorType) or not value.uses():
            continue
        if _is_constant(value, array):
            continue
        fresh = ir.Value(
            name=unique(f"{value.name}{_SUFFIX}", taken),
            type=value.type,
            shape=_open_shape(value, array.shape),
        )
        taken.add(fresh.name)
        # Users in nested graphs are among the uses; graph outputs are not.
        for user, index in tuple(value.uses()):
            user.replace_input_with(index, fresh)
        inputs[value.name or ""] = fresh
    copy.graph.inputs.extend(inputs.values())
    return Exploded(copy, inputs)


def _outputs(graph: ir.Graph) -> Iterable[ir.Value]:
    return [value for node in graph for value in node.outputs if value.name]


def _is_constant(value: ir.Value, golden: Array) -> bool:
    tensor = ir.convenience.get_const_tensor(value)
    if tensor is None:
        return False
    constant = tensor.numpy()
    return constant.shape == golden.shape and bool(
        (constant == golden.astype(constant.dtype)).all()
    )


def _open_shape(value: ir.Value, golden: tuple[int, ...]) -> ir.Shape:
    """Return the static dims that hold for golden's value; others may differ between samples."""
    declared = value.shape
    if declared is None or len(declared) != len(golden):
        return ir.Shape([None] * len(golden))
    pairs = zip(declared, golden, strict=True)
    return ir.Shape([dim if isinstance(dim, int) and dim == size else None for dim, size in pairs])
