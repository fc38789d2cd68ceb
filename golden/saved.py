"""Comparison of saved arrays, matched by exact name: there is no graph, so all are outputs."""

from __future__ import annotations

import onnx_ir as ir

from cannc.compiler.core.runner import Array
from cannc.golden.facts import facts_of_saved
from cannc.golden.metrics import measure
from cannc.golden.report import GoldenReport, Layer, Tally
from cannc.golden.sources import Saved
from cannc.golden.verdict import Grade, Thresholds


def compare_saved(golden: Saved, candidate: Saved, bounds: Thresholds) -> GoldenReport:
    """Compare arrays of equal name; one that the candidate lacks fails."""
    layers = [
        _layer(name, array, candidate.arrays.get(name), bounds)
        for name, array in golden.arrays.items()
    ]
    extra = [name for name in candidate.arrays if name not in golden.arrays]
    warnings = [f"only in the candidate, not compared: {', '.join(extra)}"] if extra else []
    facts = facts_of_saved(golden, candidate, bounds)
    return GoldenReport(tuple(layers), tuple(golden.arrays), facts, tuple(warnings))


def _layer(name: str, golden: Array, candidate: Array | None, bounds: Thresholds) -> Layer:
    if candidate is None:
        return Layer(name, "compared", shape=golden.shape, note="missing in the candidate")
    dtype = candidate.dtype.name
    if golden.shape != candidate.shape:
        note = f"shape {golden.shape} became {candidate.shape}"
        return Layer(name, "compared", dtype=dtype, shape=golden.shape, note=note)
    grade = max(_grade(golden), _grade(candidate))
    metrics = measure(golden, candidate, half=grade > Grade.FLOAT32)
    tally = Tally(grade, bounds.of_layer(name))
    tally.add(metrics)
    return Layer(
        name,
        "compared",
        candidate=name,
        dtype=dtype,
        shape=golden.shape,
        arriving=tally.finding(),
    )


def _grade(array: Array) -> Grade:
    if array.dtype.kind in "OSUT":
        return Grade.FLOAT32
    return Grade.of(ir.DataType.from_numpy(array.dtype))
