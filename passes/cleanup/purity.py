"""Which nodes always give the same result for the same inputs."""

from __future__ import annotations

import onnx_ir as ir

from cannc.compiler.core.graphs import subgraphs, walk
from cannc.passes.pattern import array_of

STANDARD = frozenset({"", "ai.onnx", "ai.onnx.ml"})
_RANDOM = frozenset(
    {
        "Bernoulli",
        "Multinomial",
        "RandomNormal",
        "RandomNormalLike",
        "RandomUniform",
        "RandomUniformLike",
    }
)


def is_deterministic(node: ir.Node, model: ir.Model) -> bool:
    """Is the node a pure function of its inputs? Operators that nobody defines are not trusted."""
    function = model.functions.get(node.op_identifier())
    if function is not None:
        return all(is_deterministic(inner, model) for inner in function.all_nodes())
    if node.domain not in STANDARD or node.op_type in _RANDOM:
        return False
    if node.op_type == "Dropout" and len(node.inputs) > 2 and node.inputs[2] is not None:
        training = array_of(node.inputs[2])
        return training is not None and not training.any()
    bodies = (scoped.node for _, graph in subgraphs(node) for scoped in walk(graph))
    return all(is_deterministic(inner, model) for inner in bodies)
