"""What operators do to buffers: which ones only look at one, overwrite one, or draw random numbers.

Names are those of the default domain of ONNX; an operator of another domain does none of this.
"""

from __future__ import annotations

import onnx_ir as ir

from cannc.compiler.core.graphs import subgraphs, walk

_VIEWS = frozenset({"Reshape", "Identity", "Squeeze", "Unsqueeze", "Flatten"})
_ELEMENTWISE = frozenset(
    [
        "Abs",
        "Acos",
        "Acosh",
        "Add",
        "And",
        "Asin",
        "Asinh",
        "Atan",
        "Atanh",
        "BitShift",
        "BitwiseAnd",
        "BitwiseNot",
        "BitwiseOr",
        "BitwiseXor",
        "Cast",
        "CastLike",
        "Ceil",
        "Celu",
        "Clip",
        "Cos",
        "Cosh",
        "Div",
        "Elu",
        "Equal",
        "Erf",
        "Exp",
        "Floor",
        "Gelu",
        "Greater",
        "GreaterOrEqual",
        "HardSigmoid",
        "HardSwish",
        "IsInf",
        "IsNaN",
        "LeakyRelu",
        "Less",
        "LessOrEqual",
        "Log",
        "Max",
        "Mean",
        "Min",
        "Mish",
        "Mod",
        "Mul",
        "Neg",
        "Not",
        "Or",
        "PRelu",
        "Pow",
        "Reciprocal",
        "Relu",
        "Round",
        "Selu",
        "Shrink",
        "Sigmoid",
        "Sign",
        "Sin",
        "Sinh",
        "Softplus",
        "Softsign",
        "Sqrt",
        "Sub",
        "Sum",
        "Swish",
        "Tan",
        "Tanh",
        "ThresholdedRelu",
        "Where",
        "Xor",
    ]
)
_MOVEMENT = frozenset(
    [
        "Concat",
        "ConstantOfShape",
        "DepthToSpace",
        "DequantizeLinear",
        "Expand",
        "Gather",
        "GatherElements",
        "GatherND",
        "Pad",
        "Range",
        "Slice",
        "SpaceToDepth",
        "Split",
        "Tile",
        "Transpose",
        "Trilu",
    ]
)
_RANDOM = frozenset(
    [
        "Bernoulli",
        "Multinomial",
        "RandomNormal",
        "RandomNormalLike",
        "RandomUniform",
        "RandomUniformLike",
    ]
)


def _is_onnx(node: ir.Node) -> bool:
    return node.domain in ("", "ai.onnx")


def viewed(node: ir.Node) -> ir.Value | None:
    """Return the input that the node's only output shows unchanged, in another shape at most."""
    if not _is_onnx(node) or not node.inputs or len(node.outputs) != 1:
        return None
    source = node.inputs[0]
    if node.op_type in _VIEWS:
        return source
    if node.op_type == "Dropout" and len(node.inputs) < 3:
        return source  # without training_mode it does nothing
    if node.op_type == "Cast" and source is not None and source.dtype is not None:
        return source if node.attributes.get_int("to", 0) == source.dtype else None
    return None


def is_elementwise(node: ir.Node) -> bool:
    """Is each element of the only output made from the elements at its place alone?"""
    return _is_onnx(node) and node.op_type in _ELEMENTWISE and len(node.outputs) == 1


def is_cheap(node: ir.Node) -> bool:
    """May the node be computed twice to save memory: no multiplication of matrices, no chance?"""
    return is_elementwise(node) or viewed(node) is not None or _moves(node)


def _moves(node: ir.Node) -> bool:
    return _is_onnx(node) and node.op_type in _MOVEMENT and len(node.outputs) == 1


def is_random(node: ir.Node) -> bool:
    """Does it, or a graph inside it, draw random numbers?"""
    inner = (scoped.node for _, graph in subgraphs(node) for scoped in walk(graph))
    return _draws(node) or any(_draws(one) for one in inner)


def _draws(node: ir.Node) -> bool:
    # Dropout with a training_mode input may draw; so may any operator that we do not know.
    if not _is_onnx(node):
        return node.domain != "npu" and "random" in node.op_type.lower()
    return node.op_type in _RANDOM or (node.op_type == "Dropout" and len(node.inputs) > 2)
