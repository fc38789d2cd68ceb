"""ATC's options that shape the model, as far as the host backend acts on them (D23)."""

from __future__ import annotations

from collections.abc import Mapping

import onnx_ir as ir
from onnx_ir.passes.common import RemoveUnusedNodesPass

from cannc.compiler.backends.atc.names import split
from cannc.compiler.backends.atc.resolve import Resolved, resolve
from cannc.compiler.backends.atc.shapes import Dim, Shapes, feeds
from cannc.compiler.backends.base import CompileOptions
from cannc.compiler.core.errors import UsageError
from cannc.compiler.core.shapes import infer_shapes
from cannc.compiler.core.target import Target
from cannc.compiler.core.unit import CompileUnit
from cannc.compiler.memory.sizing import dim_sizes
from cannc.compiler.runtime.casts import Casts

_DTYPES = {
    "FP32": ir.DataType.FLOAT,
    "FP16": ir.DataType.FLOAT16,
    "DOUBLE": ir.DataType.DOUBLE,
    **{name: ir.DataType[name] for name in ("UINT8", "INT8", "UINT16", "INT16")},
    **{name: ir.DataType[name] for name in ("UINT32", "INT32", "UINT64", "INT64")},
}
_CANNOT = ("insert_op_conf", "is_input_adjust_hw_layout", "is_output_adjust_hw_layout")


def resolved_options(unit: CompileUnit, asked: CompileOptions, target: Target) -> Resolved | None:
    """Return the options as ATC would take them; None where none was given.

    Raises:
        UsageError: ATC would refuse them.
    """
    if not asked.atc_options and not asked.gears and asked.shapes is None:
        return None
    return resolve(asked, unit.model, target)


def apply_options(unit: CompileUnit, resolved: Resolved | None) -> CompileUnit:
    """Return the unit with its interface as the options ask for it.

    Static sizes of ``input_shape`` are fixed; dimensions with gears or ranges stay open. Options
    about kernels have no meaning here.

    Raises:
        UsageError: ``BCK006`` the host cannot do what the options ask.
    """
    if resolved is None:
        return unit
    options = resolved.options
    for flag in _CANNOT:
        value = options.get(flag, "")
        if value and value.replace(" ", "").split(",") != ["false"] * (value.count(",") + 1):
            raise _cannot(flag)
    shaped = unit.copy()
    model = shaped.model
    _fix_shapes(model, resolved.shapes)
    if "out_nodes" in options:
        _choose_outputs(model, split(options["out_nodes"]))
    _half_inputs(model, split(options.get("input_fp16_nodes", "")))
    _type_outputs(model, options)
    infer_shapes(model)
    return shaped


def planned_sizes(unit: CompileUnit, resolved: Resolved | None) -> list[dict[str, tuple[int, ...]]]:
    """Return the input shapes to plan memory for: gears, fixed shapes, else the example inputs."""
    model = unit.model
    examples = {name: tuple(array.shape) for name, array in unit.examples.items()}
    if resolved is None:
        return [{name: examples[name] for name in feeds(model) if name in examples}]
    if resolved.gears is not None:
        return list(resolved.gears.shapes(resolved.shapes))
    given = {name: tuple(map(_greatest, dims)) for name, dims in resolved.shapes.items()}
    sizes = dim_sizes(model, {name: dims for name, dims in given.items() if -1 not in dims})
    found = {}
    for name, value in feeds(model).items():
        dims = given.get(name) or tuple(_size(dim, sizes) for dim in value.shape or (None,))
        known = examples.get(name, dims)
        found[name] = tuple(old if new == -1 else new for new, old in zip(dims, known, strict=True))
    return [{name: dims for name, dims in found.items() if -1 not in dims}]


def _greatest(dim: Dim) -> int:
    """Return the size of a dim, of a range the greatest; -1 where it is open."""
    return dim if isinstance(dim, int) else dim[1]


def _size(dim: int | ir.SymbolicDim | None, sizes: Mapping[str, int]) -> int:
    return dim if isinstance(dim, int) else sizes.get((dim and dim.value) or "", -1)


def _fix_shapes(model: ir.Model, shapes: Shapes) -> None:
    inputs = feeds(model)
    for name, dims in shapes.items():
        value = inputs[name]
        old = list(value.shape) if value.shape is not None else [None] * len(dims)
        fixed = [
            new if isinstance(new, int) and new > 0 else before
            for before, new in zip(old, dims, strict=True)
        ]
        value.shape = ir.Shape(fixed)


def _choose_outputs(model: ir.Model, entries: list[str]) -> None:
    graph = model.graph
    infer_shapes(model)
    produced = {value.name: value for node in graph for value in node.outputs}
    produced |= {
        f"{node.name}:{index}": value for node in graph for index, value in enumerate(node.outputs)
    }
    graph.outputs[:] = [produced[entry] for entry in entries]
    RemoveUnusedNodesPass()(model)


def _half_inputs(model: ir.Model, names: list[str]) -> None:
    casts = Casts(model)
    inputs = feeds(model)
    for name in names:
        value = inputs[name]
        if value.dtype == ir.DataType.FLOAT:
            casts.behind(value, ir.DataType.FLOAT, casts.fresh(f"{name}__float32"))
            value.type = ir.TensorType(ir.DataType.FLOAT16)


def _type_outputs(model: ir.Model, options: Mapping[str, str]) -> None:
    graph = model.graph
    listed = split(options.get("out_nodes", ""))
    casts = Casts(model)
    for entry in split(options.get("output_type", "")):
        node, _, name = entry.rpartition(":")
        if name not in _DTYPES:
            raise _cannot("output_type")
        wanted = _DTYPES[name]
        indices = [listed.index(node)] if node else range(len(graph.outputs))
        for index in indices:
            if graph.outputs[index].dtype != wanted:
                casts.output(graph, index, wanted, "__typed")


def _cannot(flag: str) -> UsageError:
    return UsageError(
        "BCK006",
        f"the host backend cannot apply --{flag}",
        where=f"--{flag}",
        why="it compiles the network, not what the device does around it",
        fix="leave the option out for the host, or use --backend atc",
    )
