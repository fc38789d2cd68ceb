"""Concrete shapes of all values, for given sizes of the inputs.

Where shape inference alone stops (ranges, slices by computed bounds), the small integer nodes that
the shapes depend on are evaluated and inference goes on from there, inside functions too.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple, TypeAlias

import numpy as np
import onnx
import onnx_ir as ir
from onnx.reference import ReferenceEvaluator
from onnx_ir.passes.common import InlinePass

from cannc.compiler.core.errors import UsageError
from cannc.compiler.core.graphs import all_graphs, subgraphs
from cannc.compiler.core.runner import Array
from cannc.compiler.core.shapes import infer_shapes, static_shape
from cannc.compiler.memory.effects import is_random

log = logging.getLogger(__name__)

Shape: TypeAlias = tuple[int, ...]
InputShapes: TypeAlias = Mapping[str, Shape]


class Form(NamedTuple):
    """What a tensor looks like at the planned sizes; `dtype` is None for what is no tensor."""

    shape: Shape
    dtype: ir.DataType | None


Forms: TypeAlias = Mapping[str, Form]
"""Scope and name of a value (see `core.graphs.Scoped`) -> its form."""

_SMALL = 1024
"""Elements; what shapes are computed from is far smaller."""
_ROUNDS = 8
# What the reference evaluator raises on operators or types that it does not implement.
_EVALUATION_ERRORS = (
    RuntimeError,
    NotImplementedError,
    TypeError,
    ValueError,
    IndexError,
    KeyError,
    AttributeError,
)


def open_dims(model: ir.Model, shapes: InputShapes) -> list[str]:
    """Return the dims of inputs that have no size: by name, or ``input[axis]`` without one."""
    known = dim_sizes(model, shapes)
    names: dict[str, None] = {}
    for value in _feeds(model):
        if value.name in shapes or not isinstance(value.type, ir.TensorType):
            continue
        if value.shape is None:
            names[f"{value.name}[...]"] = None
            continue
        for axis, dim in enumerate(value.shape):
            if isinstance(dim, ir.SymbolicDim) and dim.value not in known:
                names[dim.value or f"{value.name}[{axis}]"] = None
    return list(names)


def dim_sizes(model: ir.Model, shapes: InputShapes) -> dict[str, int]:
    """Return the size of each named dim of the inputs.

    Raises:
        UsageError: ``MEM003`` a name would get two sizes, or a shape has another rank.
    """
    sizes: dict[str, int] = {}
    for value in _feeds(model):
        given = shapes.get(value.name or "")
        if given is None or value.shape is None:
            continue
        if len(given) != len(value.shape):
            raise _contradiction(value.name, f"rank {len(value.shape)}, given {list(given)}")
        for dim, size in zip(value.shape, given, strict=True):
            name = dim.value if isinstance(dim, ir.SymbolicDim) else None
            expected = dim if isinstance(dim, int) else sizes.setdefault(name or "", size)
            if name == "" or (name is None and not isinstance(dim, int)):
                continue
            if expected != size:
                raise _contradiction(value.name, f"'{dim}' is {expected}, given {size}")
    sizes.pop("", None)
    return sizes


def _contradiction(name: str | None, why: str) -> UsageError:
    return UsageError(
        "MEM003", f"the sizes for input '{name}' contradict the model", why=why, fix="mend the size"
    )


def forms_at(model: ir.Model, shapes: InputShapes) -> dict[str, Form]:
    """Return shape and dtype of every value, when the inputs have these shapes.

    Values whose shape depends on data, or is no tensor's, are left out. The model is not changed.

    Raises:
        UsageError: ``MEM003`` the given shapes contradict the model or each other.
    """
    sizes = dim_sizes(model, shapes)
    bound = model.clone()
    for value in _feeds(bound):
        given = shapes.get(value.name or "")
        value.shape = ir.Shape(given) if given is not None else _substitute(value.shape, sizes)
    known = _forms(bound)
    for _ in range(_ROUNDS):
        for value in bound.graph.outputs:
            if value.producer() is not None:
                value.shape = None  # what is declared would win over what is inferred
        infer_shapes(bound)
        known |= _forms(bound)
        if all(key in known for key, _ in _keyed(bound)):
            break
        if not _evaluate(bound):
            if not bound.functions:
                break
            InlinePass()(
                bound
            )  # inference stops at bodies that compute shapes; evaluation can go on
    return {**_forms(model, sizes), **known}


def largest(gears: Sequence[InputShapes]) -> list[InputShapes]:
    """Return the gears that no other gear covers in every dimension."""

    def flat(gear: InputShapes) -> Shape:
        return tuple(size for name in sorted(gear) for size in gear[name])

    rows = [flat(gear) for gear in gears]
    return [
        gear
        for index, (gear, row) in enumerate(zip(gears, rows, strict=True))
        if not any(
            all(a >= b for a, b in zip(other, row, strict=True)) and (other != row or place < index)
            for place, other in enumerate(rows)
            if place != index
        )
    ]


def _feeds(model: ir.Model) -> Iterable[ir.Value]:
    return (v for v in model.graph.inputs if v.name not in model.graph.initializers)


def _substitute(shape: ir.Shape | None, sizes: Mapping[str, int]) -> ir.Shape | None:
    if shape is None:
        return None
    return ir.Shape(
        [
            sizes.get(dim.value or "", dim) if isinstance(dim, ir.SymbolicDim) else dim
            for dim in shape
        ]
    )


def _keyed(model: ir.Model) -> Iterator[tuple[str, ir.Value]]:
    for scope, graph in all_graphs(model.graph):
        made = (value for node in graph for value in node.outputs)
        for value in (*graph.inputs, *graph.initializers.values(), *made):
            yield f"{scope}{value.name}", value


def _forms(model: ir.Model, sizes: Mapping[str, int] | None = None) -> dict[str, Form]:
    """Return the forms of values whose shape is static once `sizes` are put in."""
    found = {}
    for key, value in _keyed(model):
        shape = _substitute(value.shape, sizes or {})
        if shape is not None and shape.is_static():
            dtype = value.dtype if isinstance(value.type, ir.TensorType) else None
            found[key] = Form(tuple(int(dim) for dim in shape.numpy()), dtype)
    return found


def _evaluate(model: ir.Model) -> int:
    """Replace small nodes with known operands by their results; return how many."""
    graph = model.graph
    opsets = dict(model.opset_imports)
    count = 0
    for node in list(graph):
        if any(value.is_graph_output() for value in node.outputs):
            continue
        results = _results(node, opsets)
        if results is None:
            continue
        for value, array in zip(node.outputs, results, strict=True):
            constant = ir.Value(
                name=value.name,
                type=ir.TensorType(ir.DataType.from_numpy(array.dtype)),
                shape=ir.Shape(array.shape),
                const_value=ir.tensor(array, name=value.name),
            )
            value.replace_all_uses_with(constant)
            graph.initializers.add(constant)
        graph.remove(node)
        count += 1
    return count


def _results(node: ir.Node, opsets: dict[str, int]) -> list[Array] | None:
    if node.domain not in ("", "ai.onnx") or subgraphs(node) or is_random(node):
        return None
    if node.op_type == "Shape":
        shape = static_shape(node.inputs[0])
        if shape is None:
            return None
        start = node.attributes.get_int("start", 0)
        end = node.attributes.get_int("end", len(shape))
        return [np.array(shape[start:end], np.int64)]
    operands = {}
    for value in node.inputs:
        if value is None:
            continue
        if value.const_value is None or value.const_value.size > _SMALL:
            return None
        operands[value.name or ""] = value.const_value.numpy()
    return _run(node, operands, opsets)


def _run(node: ir.Node, operands: dict[str, Array], opsets: dict[str, int]) -> list[Array] | None:
    proto: onnx.NodeProto = ir.to_proto(node)
    try:
        results = ReferenceEvaluator(proto, opsets=opsets).run(None, operands)
    except _EVALUATION_ERRORS as error:
        log.debug("%s (%s) is not evaluated: %s", node.name, node.op_type, error)
        return None
    arrays = [np.asarray(result) for result in results]
    if len(arrays) != len(node.outputs) or any(a.size > _SMALL for a in arrays):
        return None
    return arrays
