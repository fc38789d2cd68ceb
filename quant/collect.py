"""Which constants of a model are weights that can be quantized, and which are not and why.

Only operands that a node multiplies and sums over count: biases, norm factors, position tables and
shape constants are never touched. Nothing is left out silently: whatever is big or looks like a
weight but stays as it is gets a reason.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

import onnx_ir as ir

from cannc.compiler.core.graphs import walk
from cannc.passes.fusion.npu_ops import NPU_DOMAIN
from cannc.passes.pattern import constant_of
from cannc.quant.layout import Layout
from cannc.quant.weights import FLOATS, Weight, stored_integers, weight_of

_NOTEWORTHY_ELEMENTS = 4096
_OPERANDS = {"MatMul": (0, 1), "Gemm": (0, 1), "Conv": (1,), "ConvTranspose": (1,), "Gather": (0,)}


@dataclass(frozen=True)
class WeightUse:
    """One node that reads one weight.

    Attributes:
        node: The node.
        operand: Index of the input.
        weight: The constant behind it.
        layout: Which of its axes are channels.
    """

    node: ir.Node
    operand: int
    weight: Weight
    layout: Layout

    @property
    def key(self) -> tuple[ir.Value, Layout]:
        """Uses with equal keys can share one stored weight."""
        return self.weight.value, self.layout


@dataclass(frozen=True)
class Skip:
    """An operand that stays as it is.

    Attributes:
        node: The node that reads it.
        weight: Name of the constant; empty when the operand is computed.
        reason: Why it stays, in the reader's terms.
        quantized: It already is quantized.
        shape: Shape of the constant.
        nbytes: Its size.
    """

    node: ir.Node
    weight: str
    reason: str
    quantized: bool = False
    shape: tuple[int, ...] = ()
    nbytes: int = 0


@dataclass
class Found:
    """What `collect` found, both in graph order."""

    uses: list[WeightUse] = field(default_factory=list)
    skips: list[Skip] = field(default_factory=list)


def collect(model: ir.Model, *, embeddings: bool = False) -> Found:
    """Find the weights of MatMul, Gemm, Conv and ConvTranspose, and of Gather if asked for.

    Args:
        model: The model; nested graphs included.
        embeddings: Take tables of Gather too.
    """
    found = Found()
    for scoped in walk(model.graph):
        node = scoped.node
        if node.domain == NPU_DOMAIN and node.op_type == "WeightQuantBatchMatmulV2":
            found.skips.append(_already(node, node.inputs[1]))
        elif node.domain in ("", "ai.onnx") and node.op_type in _OPERANDS:
            _look_at(node, found, embeddings)
        else:
            found.skips += _other_constants(node, range(len(node.inputs)))
    return found


def _look_at(node: ir.Node, found: Found, embeddings: bool) -> None:
    """Sort the operands of one weighted node."""
    if node.op_type == "Gather" and _gathers_scales(node):
        return
    operands = _OPERANDS[node.op_type]
    weights = {i: w for i in operands if (w := weight_of(_input(node, i))) is not None}
    integers = next((v for i in operands if (v := stored_integers(_input(node, i)))), None)
    if not weights:
        if integers is not None:
            found.skips += [_already(node, integers)] if len(integers.shape or ()) > 1 else []
        elif node.op_type != "Gather":
            found.skips.append(Skip(node, "", "no operand is a constant"))
        return
    operand, weight = next(iter(weights.items()))
    if len(weights) == 2:
        layout: Layout | str = "both operands are constants: constant folding removes this node"
    elif node.op_type == "Gather" and not embeddings:
        layout = "an embedding table; embeddings are quantized only when asked for"
    else:
        layout = _layout(node, operand, weight.shape)
    if isinstance(layout, Layout):
        found.uses.append(WeightUse(node, operand, weight, layout))
    elif len(weight.shape) > 1 or node.op_type != "Gather":
        found.skips.append(_skip(node, weight, layout))
    found.skips += _other_constants(node, set(range(len(node.inputs))) - {*operands})


def _gathers_scales(node: ir.Node) -> bool:
    """Return whether a Gather only spreads the scales of integer weights."""
    users = [user for user, _ in node.outputs[0].uses()]
    return bool(users) and all(
        user.op_type == "Mul" and any(stored_integers(value) for value in user.inputs)
        for user in users
    )


def _layout(node: ir.Node, operand: int, shape: tuple[int, ...]) -> Layout | str:
    """Return the layout of a weight, or why it cannot be quantized."""
    if len(shape) < 2:
        return "a vector has no channels" if shape else "a scalar is no weight"
    if 0 in shape:
        return "it is empty"
    channels = _CHANNELS[node.op_type](node, operand, len(shape))
    return channels if isinstance(channels, str) else Layout(shape, channels)


Channels = tuple[int, ...]


def _matmul_channels(node: ir.Node, operand: int, rank: int) -> Channels | str:
    summed = rank - 1 if operand == 0 else rank - 2
    return tuple(axis for axis in range(rank) if axis != summed)


def _gemm_channels(node: ir.Node, operand: int, rank: int) -> Channels | str:
    """A is (m, k), B is (k, n), each the other way round when transposed; m and n are channels."""
    return (operand ^ int(flag(node, "transB" if operand else "transA")),)


def _conv_channels(node: ir.Node, operand: int, rank: int) -> Channels | str:
    return (0,)


def _conv_transpose_channels(node: ir.Node, operand: int, rank: int) -> Channels | str:
    group = node.attributes.get("group")
    if group is not None and group.as_int() > 1:
        return "ConvTranspose with groups: channels of different groups share one index"
    return (1,)


def _gather_channels(node: ir.Node, operand: int, rank: int) -> Channels | str:
    axis = node.attributes.get("axis")
    if axis is not None and axis.as_int() not in (0, -rank):
        return "Gather along another axis than 0"
    return (0,)


_CHANNELS: dict[str, Callable[[ir.Node, int, int], Channels | str]] = {
    "MatMul": _matmul_channels,
    "Gemm": _gemm_channels,
    "Conv": _conv_channels,
    "ConvTranspose": _conv_transpose_channels,
    "Gather": _gather_channels,
}


def flag(node: ir.Node, name: str) -> bool:
    """Return an integer attribute as a truth value; absent means false."""
    attribute = node.attributes.get(name)
    return attribute is not None and bool(attribute.as_int())


def _other_constants(node: ir.Node, operands: Iterable[int]) -> list[Skip]:
    """Report large float constants that no weighted operand reads."""
    found = []
    for index in operands:
        tensor = constant_of(_input(node, index))
        if tensor is None or tensor.dtype not in FLOATS or tensor.size < _NOTEWORTHY_ELEMENTS:
            continue
        if sum(dim > 1 for dim in tensor.shape.numpy()) < 2 or node.op_type in _LAYOUT_ONLY:
            continue
        weight = weight_of(node.inputs[index])
        assert weight is not None
        found.append(_skip(node, weight, f"{node.op_type} has no form with integer weights"))
    return found


_LAYOUT_ONLY = frozenset(
    {"Identity", "Cast", "Transpose", "Reshape", "Squeeze", "Unsqueeze", "Flatten"}
)


def _already(node: ir.Node, integers: ir.Value | None) -> Skip:
    tensor = constant_of(integers)
    if integers is None or tensor is None:
        return Skip(node, "", "its weight is computed", quantized=True)
    shape = tuple(tensor.shape.numpy())
    return Skip(node, integers.name or "", "already quantized", True, shape, tensor.nbytes)


def _skip(node: ir.Node, weight: Weight, reason: str) -> Skip:
    tensor = constant_of(weight.root)
    assert tensor is not None
    return Skip(node, weight.name, reason, shape=weight.shape, nbytes=tensor.nbytes)


def _input(node: ir.Node, index: int) -> ir.Value | None:
    return node.inputs[index] if index < len(node.inputs) else None
