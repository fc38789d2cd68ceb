"""The part of a graph that depends on constants only: what it is, and what to keep of it.

All nodes of the region are evaluated together. Which of their results become constants is decided
from the last node to the first: a result is written only if a node that stays reads it, and only
if it is small or replaces weights of about its own size.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

import onnx_ir as ir

from cannc.compiler.core.graphs import subgraphs, walk
from cannc.compiler.core.shapes import static_shape
from cannc.passes.cleanup.purity import is_deterministic
from cannc.passes.pattern import constant_of

SMALL_BYTES = 64 * 1024
GROWTH = 2
"""A larger result may have at most this many times the bytes of the weights that it replaces."""
EVALUATED_BYTES = 256 * 2**20
"""No single intermediate result may be larger while constants are evaluated."""

_QUANTIZED_BITS = 8

# Results of any size from a few numbers: they wait until shape inference has told the size.
_GROWING = frozenset({"ConstantOfShape", "Expand", "EyeLike", "OneHot", "Pad", "Range", "Resize"})
_GROWING |= {"Tile", "Upsample"}
# No tensors come out of these, or (Unique) results whose order versions differ in.
_KEPT = frozenset({"Constant", "Optional", "OptionalGetElement", "Unique"})


class Region:
    """The nodes that depend on constants only.

    Attributes:
        nodes: In an order in which they can be evaluated.
    """

    def __init__(self, model: ir.Model, blocked: Collection[ir.Node] = ()) -> None:
        """Collect the region of a model, branches and bodies included, without `blocked`."""
        self._members: set[ir.Node] = set()
        self._replaced: dict[ir.Node, float] = {}
        self._shares: dict[ir.Value, float] = {}
        self.nodes: list[ir.Node] = []
        for scoped in walk(model.graph):
            node = scoped.node
            if node not in blocked and self._is_constant(node) and _may_fold(node, model):
                self._members.add(node)
                self.nodes.append(node)
        for node in self.nodes:
            self._replaced[node] = sum(self._share(value) for value in set(node.inputs))

    def results(
        self, sizes: Mapping[ir.Value, int] | None = None
    ) -> tuple[list[ir.Node], list[ir.Node]]:
        """Return the nodes whose outputs become constants, and those that nothing needs then.

        Args:
            sizes: Bytes of values as evaluated; what is not in it is taken from shapes.
        """
        known = sizes or {}
        staying = set(self.nodes)
        written: list[ir.Node] = []
        vanishing: list[ir.Node] = []
        for node in reversed(self.nodes):
            if not _is_needed(node, self._members, staying):
                staying.discard(node)
                vanishing.append(node)
            elif self._is_worth(node, known):
                staying.discard(node)
                written.append(node)
        return written, vanishing

    def _is_constant(self, node: ir.Node) -> bool:
        given = [value for value in node.inputs if value is not None]
        return bool(given) and all(
            value.producer() in self._members or constant_of(value) is not None for value in given
        )

    def _share(self, value: ir.Value | None) -> float:
        """Bytes that go away with a constant, per user; none if a user outside the region stays."""
        if value is None:
            return 0.0
        if value not in self._shares:
            self._shares[value] = self._compute_share(value)
        return self._shares[value]

    def _compute_share(self, value: ir.Value) -> float:
        users = value.consumers()
        producer = value.producer()
        if producer is not None and producer in self._members:
            return self._replaced[producer] / len(producer.outputs) / len(users)
        tensor = constant_of(value)
        if tensor is None or value.is_graph_input() or value.is_graph_output():
            return 0.0
        goes = all(user in self._members for user in users)
        return tensor.nbytes / len(users) if goes else 0.0

    def _is_worth(self, node: ir.Node, known: Mapping[ir.Value, int]) -> bool:
        size = sum(known.get(value, predicted_bytes(value) or 0) for value in node.outputs)
        return size <= SMALL_BYTES or size <= GROWTH * self._replaced[node]


def predicted_bytes(value: ir.Value) -> int | None:
    """Return the size of a value by its dtype and shape, None when they are not known."""
    shape = static_shape(value)
    if shape is None or value.dtype is None or value.dtype.is_string():
        return None
    count = 1
    for dim in shape:
        count *= dim
    return (count * value.dtype.bitwidth + 7) // 8


def _may_fold(node: ir.Node, model: ir.Model) -> bool:
    if node.op_type in _KEPT or "Sequence" in node.op_type or subgraphs(node):
        return False
    if node.op_type == "Identity" and node.outputs[0].is_graph_output():
        return False  # A constant that is a graph output has this form already.
    if _widens_quantized_weight(node):
        return False
    sizes = [predicted_bytes(value) for value in node.outputs]
    if node.op_type in _GROWING and None in sizes:
        return False
    return sum(size or 0 for size in sizes) <= EVALUATED_BYTES and is_deterministic(node, model)


def _widens_quantized_weight(node: ir.Node) -> bool:
    """Does the node turn a matrix of small integers into floats? Folding it undoes quantization.

    DequantizeLinear is not meant: ATC has no plugin for it, so it has to go.
    """
    source, result = node.inputs[0], node.outputs[0]
    return (
        node.op_type in ("Cast", "NPUAntiQuant")
        and source is not None
        and source.dtype is not None
        and source.dtype.is_integer()
        and source.dtype.bitwidth <= _QUANTIZED_BITS
        and source.shape is not None
        and len(source.shape) > 1
        and (result.dtype is None or result.dtype.is_floating_point())
    )


def _is_needed(node: ir.Node, region: Collection[ir.Node], staying: Collection[ir.Node]) -> bool:
    """Does a graph output or a node that stays read one of the results?"""
    for value in node.outputs:
        if value.is_graph_output():
            return True
        if any(user not in region or user in staying for user in value.consumers()):
            return True
    return False
