"""Inputs whose value ATC needs at compile time, and shapes that depend on data."""

from __future__ import annotations

from collections.abc import Iterator

import onnx_ir as ir

from cannc.op_support.report import Finding, Severity
from cannc.op_support.schema import Operator
from cannc.op_support.site import PLUGIN, Site

DATA_DEPENDENT = frozenset(
    {"ai.onnx::NonZero", "ai.onnx::Unique", "ai.onnx::Compress", "ai.onnx::NonMaxSuppression"}
)


def check(site: Site, entry: Operator) -> Iterator[Finding]:
    """Yield findings about values that are known only at run time."""
    for index in entry.value_inputs:
        value = site.input(index)
        if value is None or _known(value, site):
            continue
        yield site.finding(
            "OP040",
            Severity.RISK,
            f"input {index} is not constant; its value decides shapes",
            source="value dependence of the GE kernels",
            cure="fix the input shapes so that it folds to a constant",
        )
    if site.key in DATA_DEPENDENT:
        yield site.finding(
            "OP041",
            Severity.RISK,
            "the shape of its output depends on data; what follows runs with dynamic shapes",
            source=PLUGIN,
            cure="replace it by a form of fixed size, e.g. a mask",
        )


def _known(value: ir.Value, site: Site) -> bool:
    """Is it a constant? What a function's parameter holds is only known at the call."""
    if value.is_graph_input() and site.in_function:
        return True
    return ir.convenience.get_const_tensor(value) is not None
