"""PyTorch modules to ONNX: exported with dynamo at opset 18, and checked against PyTorch.

The graph is taken as the exporter traced it (its own optimizer off), so that every later rewrite
is one of ours: verified, named and traced back to the PyTorch module.
"""

from __future__ import annotations

import contextlib
import inspect
import io
import logging
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx_ir as ir

from cannc.compiler.core.errors import (
    CanncError,
    GoldenMismatchError,
    MissingToolError,
    ModelError,
    UsageError,
    nearest,
)
from cannc.compiler.core.runner import Array, Runner
from cannc.compiler.core.unit import CompileUnit
from cannc.compiler.frontend.source import Example

log = logging.getLogger(__name__)

OPSET = 18
"""ATC's parser knows opsets 8 to 18 (onnx_ops.json); 18 keeps the most exporter forms."""

_FREE_THE_SIZE = "a Python branch or a constant in the model fixes that size: find and free it"

_NEEDS_TORCH = (ImportError, ModuleNotFoundError)


@dataclass(frozen=True)
class Sample:
    """Inputs and PyTorch's own outputs for them, name -> array."""

    inputs: dict[str, Array]
    outputs: dict[str, Array]


def import_torch() -> Any:
    """Return the torch module.

    Raises:
        MissingToolError: ``DEP001`` torch is not installed.
    """
    try:
        import torch
    except _NEEDS_TORCH as error:
        raise MissingToolError(
            "DEP001",
            "PyTorch is not installed",
            why="converting from PyTorch needs it; every other command works without",
            fix="pip install 'cannc[torch]'",
        ) from error
    return torch


def as_example(result: Any, where: str) -> Example:
    """Read what a source callable returned: ``(module, inputs)`` or ``(module, inputs, dynamic)``.

    Inputs may be a dict by name, or a tuple in the order of ``forward``'s parameters.

    Raises:
        UsageError: ``SRC005`` something else was returned.
    """
    torch = import_torch()
    if isinstance(result, Example):
        return result
    parts = result if isinstance(result, tuple) else (result,)
    if len(parts) not in (2, 3) or not isinstance(parts[0], torch.nn.Module):
        raise UsageError(
            "SRC005",
            "the callable must return (module, inputs) or (module, inputs, dynamic)",
            where=where,
            why=f"it returned {type(result).__name__}",
            fix="inputs: dict name -> tensor; dynamic: dict name -> {axis: 'batch'}",
        )
    module, inputs = parts[0], parts[1]
    if not isinstance(inputs, Mapping):
        values = inputs if isinstance(inputs, (tuple, list)) else (inputs,)
        inputs = dict(zip(inspect.signature(module.forward).parameters, values, strict=False))
    tensors = {name: torch.as_tensor(value) for name, value in inputs.items()}
    return Example(module, tensors, parts[2] if len(parts) == 3 else {})


def export(example: Example) -> tuple[CompileUnit, list[Sample]]:
    """Export a module; return the unit and samples to verify it with.

    Dynamic axes whose example has size 1 are exported with two copies along that axis: the tracer
    would take a size of 1 for a constant.

    Raises:
        ModelError: ``EXP001`` PyTorch could not trace the module.
    """
    torch = import_torch()
    _check_names(example)
    example.module.eval()
    inputs = widen_unit_axes(example.inputs, example.dynamic)
    with torch.no_grad(), _quiet_exporter():
        outputs = _first_run(example, inputs)
        try:
            program = torch.onnx.export(
                example.module,
                (),
                kwargs=inputs,
                dynamo=True,
                opset_version=OPSET,
                optimize=False,
                verbose=False,
                input_names=list(inputs),
                output_names=list(outputs),
                dynamic_shapes=_dynamic_shapes(inputs, example.dynamic),
            )
        except Exception as error:
            raise _explain(error) from error
        samples = [_sample(example, given) for given in (example.inputs, inputs)]
        resized = _resized(inputs, example.dynamic)
        if resized is not None:
            samples += _try_sample(example, resized)
    unit = CompileUnit.of(program.model)
    _check_dynamic(unit.model, example.dynamic)
    unit.examples = dict(samples[0].inputs)
    return unit, samples


def verify(unit: CompileUnit, samples: list[Sample], runner: Runner) -> float:
    """Run the exported graph on each sample; return the greatest relative L2 error.

    Raises:
        GoldenMismatchError: ``EXP002`` the graph computes something else than PyTorch,
            ``EXP003`` a dimension that was asked to be dynamic is fixed in the graph.
    """
    worst = 0.0
    for sample in samples:
        shapes = {name: list(array.shape) for name, array in sample.inputs.items()}
        try:
            found = runner.run(unit.model, sample.inputs, list(sample.outputs))
        except CanncError as error:
            raise GoldenMismatchError(
                "EXP003",
                "the exported graph does not run at another size of a dynamic dimension",
                where=f"inputs {shapes}",
                why=str(error.why or error.what),
                fix=_FREE_THE_SIZE,
            ) from error
        for name, want in sample.outputs.items():
            error_here = _distance(want, found[name])
            worst = max(worst, error_here)
            if not error_here <= _tolerance(want):
                raise GoldenMismatchError(
                    "EXP002",
                    f"output '{name}' of the exported graph differs from PyTorch",
                    where=f"inputs {shapes}",
                    why=f"relative L2 error {error_here:.2e}, shape {want.shape} against "
                    f"{found[name].shape}",
                    fix="the tracer may have frozen a value: compare layer by layer, or report it",
                )
    return worst


def run_module(example: Example, inputs: Mapping[str, Any]) -> dict[str, Any]:
    """Run the module; return its outputs by name (``output``, ``output_0`` ... when unnamed)."""
    result = example.module(**inputs)
    if isinstance(result, Mapping):
        return {str(k): v for k, v in result.items() if v is not None}
    if isinstance(result, (tuple, list)):
        return {f"output_{index}": value for index, value in enumerate(result)}
    return {"output": result}


def _first_run(example: Example, inputs: Mapping[str, Any]) -> dict[str, Any]:
    """Run the module on its examples; what fails here is the model or its inputs, not the export.

    Raises:
        ModelError: ``EXP004``.
    """
    try:
        return run_module(example, inputs)
    except Exception as error:
        given = ", ".join(f"{n} {str(t.dtype)[6:]}{[*t.shape]}" for n, t in inputs.items())
        names = ", ".join(inspect.signature(example.module.forward).parameters)
        raise ModelError(
            "EXP004",
            "the model itself fails in PyTorch on these inputs",
            where=f"inputs {given}",
            why=f"{type(error).__name__}: {error}",
            fix=f"check names, shapes and dtypes; forward takes: {names}",
        ) from error


def widen_unit_axes(
    inputs: Mapping[str, Any], dynamic: Mapping[str, Mapping[int, str]]
) -> dict[str, Any]:
    """Repeat inputs twice along each dynamic axis that has size 1 in all its inputs."""
    units = {
        dim
        for name, axes in dynamic.items()
        for axis, dim in axes.items()
        if inputs[name].shape[axis] == 1
    }
    return _along(inputs, dynamic, units, lambda tensor, axis: tensor.repeat_interleave(2, axis))


def _resized(
    inputs: Mapping[str, Any], dynamic: Mapping[str, Mapping[int, str]]
) -> dict[str, Any] | None:
    """Return the inputs with one element less along every dynamic dimension, or None."""
    dims = {dim for axes in dynamic.values() for dim in axes.values()}
    if not dims:
        return None
    return _along(
        inputs, dynamic, dims, lambda t, axis: t.narrow(axis, 0, max(1, t.shape[axis] - 1))
    )


def _along(
    inputs: Mapping[str, Any], dynamic: Mapping[str, Mapping[int, str]], dims: set[str], change: Any
) -> dict[str, Any]:
    changed = dict(inputs)
    for name, axes in dynamic.items():
        for axis, dim in axes.items():
            if dim in dims:
                changed[name] = change(changed[name], axis)
    return changed


def _dynamic_shapes(
    inputs: Mapping[str, Any], dynamic: Mapping[str, Mapping[int, str]]
) -> dict[str, dict[int, str]] | None:
    if not dynamic:
        return None
    return {name: dict(dynamic.get(name, {})) for name in inputs}


def _check_names(example: Example) -> None:
    for name, axes in example.dynamic.items():
        if name not in example.inputs:
            raise UsageError(
                "SRC006",
                f"dynamic axes for '{name}', which is no input{nearest(name, example.inputs)}",
                fix=f"inputs: {', '.join(example.inputs)}",
            )
        dims = example.inputs[name].dim()
        if any(not 0 <= axis < dims for axis in axes):
            raise UsageError(
                "SRC007",
                f"input '{name}' has {dims} dimensions, axes {sorted(axes)} were named",
                fix=f"axes go from 0 to {dims - 1}",
            )


def _check_dynamic(model: ir.Model, dynamic: Mapping[str, Mapping[int, str]]) -> None:
    """Refuse an export in which the tracer silently fixed a size that was to stay open."""
    values = {value.name: value for value in model.graph.inputs}
    for name, axes in dynamic.items():
        shape = values[name].shape
        for axis, dim in axes.items():
            if shape is not None and isinstance(shape[axis], int):
                raise GoldenMismatchError(
                    "EXP003",
                    f"dimension '{dim}' of input '{name}' is fixed to {shape[axis]} in the graph",
                    where=f"axis {axis}",
                    why="something in the model works with this size only",
                    fix=_FREE_THE_SIZE,
                )


def _sample(example: Example, inputs: Mapping[str, Any]) -> Sample:
    outputs = run_module(example, inputs)
    return Sample(
        {name: tensor.detach().cpu().numpy() for name, tensor in inputs.items()},
        {name: tensor.detach().cpu().numpy() for name, tensor in outputs.items()},
    )


def _try_sample(example: Example, inputs: Mapping[str, Any]) -> list[Sample]:
    """Return a sample at other sizes; none if PyTorch itself cannot run at them."""
    try:
        return [_sample(example, inputs)]
    except (RuntimeError, ValueError, IndexError) as error:
        log.info("not verified at other sizes: PyTorch fails there (%s)", error)
        return []


def _distance(want: Array, found: Array) -> float:
    if want.shape != found.shape:
        return float("inf")
    a, b = want.astype(np.float64), found.astype(np.float64)
    same = (a == b) | (np.isnan(a) & np.isnan(b))
    difference = np.where(same, 0.0, a - b)
    scale = float(np.linalg.norm(np.where(np.isfinite(a), a, 0.0)))
    return float(np.linalg.norm(difference)) / (scale or 1.0)


def _tolerance(want: Array) -> float:
    return {"float16": 1e-2, "float32": 1e-4, "float64": 1e-6}.get(want.dtype.name, 0.0)


@contextmanager
def _quiet_exporter() -> Iterator[None]:
    """Keep the exporter's chatter in the debug log: it speaks of things users cannot act on."""
    logger = logging.getLogger("torch")
    level, printed = logger.level, io.StringIO()
    logger.setLevel(logging.CRITICAL)
    try:
        with (
            warnings.catch_warnings(record=True) as caught,
            contextlib.redirect_stdout(printed),
            contextlib.redirect_stderr(printed),
        ):
            warnings.simplefilter("always")
            yield
    finally:
        logger.setLevel(level)
        log.debug("exporter printed: %s", printed.getvalue())
    for warning in caught:
        log.debug("exporter: %s", warning.message)


def _explain(error: Exception) -> CanncError:
    """Turn the exporter's report into ours: its own first line says nothing but that it failed."""
    root: BaseException = error
    while root.__cause__ is not None:
        root = root.__cause__
    lines = [line.strip(" -") for line in str(root).splitlines() if line.strip()]
    why = " ".join(lines[:3]) or type(root).__name__
    if "inferred a static shape" in why:
        return GoldenMismatchError(
            "EXP003", "a dimension that was to be dynamic is fixed", why=why, fix=_FREE_THE_SIZE
        )
    if "data-dependent" in why:
        return ModelError(
            "EXP001",
            "PyTorch could not export the model",
            why=f"the model branches on the value of a tensor: {lines[0]}",
            fix="replace the Python 'if' by torch.where or torch.cond, or fix the branch",
        )
    return ModelError(
        "EXP001",
        "PyTorch could not export the model",
        why=why[:600],
        fix="--debug shows PyTorch's own report, with the line of the model concerned",
    )
