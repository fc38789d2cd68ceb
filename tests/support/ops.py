"""One-node models for the operator check."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto as T
from onnx import helper as h
from onnx import numpy_helper

from cannc.compiler.core.target import Target
from cannc.compiler.core.unit import load
from cannc.op_support.checker import check
from cannc.op_support.report import Finding, Severity, SupportReport

B4 = Target("Ascend910B4")


def node_model(
    op_type: str,
    inputs: Sequence[Any] = ((T.FLOAT, (1, 2, 4, 4)),),
    *,
    opset: int = 18,
    domain: str = "",
    outputs: int = 1,
    **attributes: Any,
) -> onnx.ModelProto:
    """Return a model of one node.

    Args:
        op_type: Operator.
        inputs: Per input: (dtype, shape) for a graph input, an array for a constant, None for an
            input left empty.
        opset: Version of the default domain; `domain` is imported at 1.
        domain: Domain of the node.
        outputs: Number of outputs; all are graph outputs of unknown type.
        **attributes: Attributes of the node.
    """
    graph_inputs, weights, names = [], [], []
    for index, given in enumerate(inputs):
        name = f"in{index}"
        if given is None:
            names.append("")
            continue
        names.append(name)
        if isinstance(given, np.ndarray):
            weights.append(numpy_helper.from_array(given, name))
        else:
            graph_inputs.append(h.make_tensor_value_info(name, *given))
    if not graph_inputs:
        graph_inputs.append(h.make_tensor_value_info("unused", T.FLOAT, (1,)))
    results = [f"out{index}" for index in range(outputs)]
    node = h.make_node(op_type, names, results, name="node", domain=domain, **attributes)
    imports = [h.make_opsetid("", opset)] + ([h.make_opsetid(domain, 1)] if domain else [])
    values = [h.make_empty_tensor_value_info(name) for name in results]
    graph = h.make_graph([node], "g", graph_inputs, values, weights)
    return h.make_model(graph, opset_imports=imports, ir_version=10)


def check_node(op_type: str, *args: Any, target: Target = B4, **kwargs: Any) -> SupportReport:
    """Check the model that `node_model` makes of the same arguments."""
    return check(load(node_model(op_type, *args, **kwargs)), target)


def texts(report: SupportReport, severity: Severity) -> list[str]:
    """Return the reasons of all findings of one severity."""
    return [finding.why for finding in report.of_severity(severity)]


def codes(findings: Sequence[Finding]) -> set[str]:
    """Return the codes of findings."""
    return {finding.code for finding in findings}
