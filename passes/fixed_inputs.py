"""Inputs that the user fixes to a value: a sampling rate, a mode, a flag."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import onnx_ir as ir

from cannc.compiler.core.errors import UsageError, nearest
from cannc.compiler.core.runner import Array
from cannc.compiler.core.unit import CompileUnit, Stage
from cannc.passes.manager import count_nodes


def fix_inputs(unit: CompileUnit, fixed: Mapping[str, Any]) -> None:
    """Turn graph inputs into constants, in place; the inputs are gone afterwards.

    Args:
        unit: A private copy; changed.
        fixed: Input name -> numbers of its dtype and shape; a single number also fits any shape
            of one element.

    Raises:
        UsageError: ``PASS004`` no such input, ``PASS005`` numbers that the input cannot hold.
    """
    graph = unit.model.graph
    inputs = {value.name or "": value for value in graph.inputs}
    for name, numbers in fixed.items():
        if name not in inputs:
            raise UsageError(
                "PASS004",
                f"no input is called '{name}'{nearest(name, inputs)}",
                where="--fix-input",
                fix=f"inputs: {', '.join(inputs)}",
            )
        value = inputs[name]
        value.const_value = ir.Tensor(_as_held(value, numbers), dtype=value.dtype, name=name)
        graph.inputs.remove(value)
        graph.initializers.add(value)
        unit.examples.pop(name, None)
    if fixed:
        count = count_nodes(unit.model)
        note = ", ".join(f"{name} = {numbers}" for name, numbers in fixed.items())
        unit.log.append(Stage("fix-inputs", len(fixed), count, count, notes=(note,)))


def _as_held(value: ir.Value, numbers: Any) -> Array:
    """Return the numbers in the input's dtype and shape."""
    given = np.asarray(numbers)
    dims = [] if value.shape is None else list(value.shape)
    if given.ndim != len(dims) and given.size == 1 and all(dim in (1, None) for dim in dims):
        given = given.reshape([1] * len(dims))
    fits = value.dtype is not None and given.ndim == len(dims)
    fits = fits and all(
        not isinstance(dim, int) or dim == size for dim, size in zip(dims, given.shape, strict=True)
    )
    held = given.astype(value.dtype.numpy()) if fits and value.dtype is not None else given
    if not fits or not np.array_equal(held.astype(given.dtype), given):
        raise UsageError(
            "PASS005",
            f"input '{value.name}' cannot hold {numbers}",
            where="--fix-input",
            why=f"it is {value.dtype} of shape {value.shape}",
            fix="give numbers of that dtype and shape",
        )
    return held
