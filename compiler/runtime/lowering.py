"""Lowering of 16-bit floats to what a device does with them (D1).

onnxruntime's CPU keeps float32 between float16 nodes, so running a float16 graph there shows
float32's numbers. A device stores float16 between kernels and accumulates in float32 inside them.
The same numerics come from a float32 graph in which every value stored between two nodes passes
``Cast(float16)`` and ``Cast(float32)``:

    x ─▶ MatMul ─▶ y__raw ─▶ Cast(f16) ─▶ y__half ─▶ Cast(f32) ─▶ y ─▶ next node

The rounded value carries the original name, so whoever taps ``y`` sees what the consumer sees.
Nodes that only move or select numbers need no rounding: what they read is rounded already. Calls of
functions are inlined first. The body of a fused operator (domain ``npu``) casts to float32,
computes and casts back (D7): what its kernel keeps in float32 stays so, what it rounds is rounded.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal

import onnx_ir as ir
from onnx_ir.passes.common import InlinePass

from cannc.compiler.core.graphs import all_graphs, walk
from cannc.compiler.core.tensors import cast_to
from cannc.compiler.runtime.casts import Casts
from cannc.compiler.runtime.dtypes import (
    DTYPE_ATTRIBUTES,
    HALF,
    half_of,
    infer_types,
    mentions_half,
    values_of,
    with_dtype,
)

Half = Literal["round", "widen"]

FLOAT = ir.DataType.FLOAT

_MOVES = """
    Identity Reshape Transpose Slice Concat Gather GatherElements GatherND Flatten Squeeze Unsqueeze
    Expand Tile Split Pad Where Compress ScatterElements Scatter ScatterND TensorScatter
    DepthToSpace SpaceToDepth ReverseSequence Trilu CenterCropPad Unique OneHot EyeLike Constant
    ConstantOfShape Dropout If Loop Scan SequenceMap SequenceAt SequenceConstruct SequenceEmpty
    SequenceInsert SequenceErase SplitToSequence ConcatFromSequence Optional OptionalGetElement
"""
_SELECTS = """
    Max Min Clip Relu Neg Abs Sign Ceil Floor Round ReduceMax ReduceMin MaxPool GlobalMaxPool
    MaxUnpool TopK Hardmax Bernoulli
"""
EXACT_OPS = frozenset((_MOVES + _SELECTS).split())
"""Operators whose float outputs are exact in float16 when their inputs are."""

STANDARD = frozenset({"", "ai.onnx"})


def lower(model: ir.Model, *, half: Half) -> ir.Model:
    """Return a float32 model with the numerics of the 16-bit float `model`; see the module.

    Args:
        model: Any model; not changed.
        half: ``"round"`` simulates the device. ``"widen"`` computes everything in float32 without
            rounding, which is what a golden reference wants.

    Returns:
        A copy. Tensors of float16 at the graph's border keep their dtype, except that outputs are
        float32 in ``"widen"``; bfloat16 tensors, sequences and optionals become float32 there, for
        onnxruntime's Python cannot pass them. Weights keep their storage and are cast by a node, so
        that nothing is read here. A model without 16-bit floats comes back as it was.
    """
    lowered = model.clone()
    if not mentions_half(lowered):
        return lowered
    InlinePass()(lowered)
    infer_types(lowered)
    _Lowering(lowered, half).run()
    return lowered


class _Lowering:
    """One run over one model, in place."""

    def __init__(self, model: ir.Model, half: Half) -> None:
        self.model = model
        self.half = half
        self.casts = Casts(model)

    def run(self) -> None:
        graph = self.model.graph
        border = [half_of(value) for value in graph.outputs]
        graphs = [g for _, g in all_graphs(graph)]
        weights = [v for g in graphs for v in g.initializers.values() if half_of(v)]
        inputs = [v for v in graph.inputs if half_of(v) == ir.DataType.FLOAT16]
        stored = [(v, half_of(v)) for s in walk(graph) for v in s.node.outputs if v.name]
        for scoped in walk(graph):
            _widen_attributes(scoped.node)
        keep = dict.fromkeys((*weights, *inputs))
        for g in graphs:
            _widen_types(v for v in values_of(g) if v not in keep)
        if self.half == "round":
            for value, dtype in stored:
                if dtype is not None and not _is_exact(value.producer()):
                    self._round(value, dtype)
        for value in keep:
            self._read_as_float(value)
        if self.half == "round":
            for index, dtype in enumerate(border):
                self._narrow_output(index, dtype)

    def _round(self, value: ir.Value, dtype: ir.DataType) -> None:
        """Round what `value`'s users read to `dtype`."""
        name = value.name or "value"
        value.name = self.casts.fresh(f"{name}__raw")
        rounded = self.casts.behind(value, dtype, self.casts.fresh(f"{name}__half"))
        self.casts.behind(rounded, FLOAT, name)

    def _read_as_float(self, value: ir.Value) -> None:
        """Give users of a float16 input or weight a float32 copy of it.

        In the main graph it may itself be an output, of its own dtype; a branch yields float32.
        """
        inner = value.graph is not self.model.graph
        if value.uses() or (inner and value.is_graph_output()):
            name = self.casts.fresh(f"{value.name}__float")
            self.casts.behind(value, FLOAT, name, outputs=inner)

    def _narrow_output(self, index: int, dtype: ir.DataType | None) -> None:
        """Give a graph output its declared dtype back; its name moves with it."""
        value = self.model.graph.outputs[index]
        if dtype == ir.DataType.FLOAT16 and value.dtype == FLOAT:
            self.casts.output(self.model.graph, index, dtype, "__float")


def _widen_attributes(node: ir.Node) -> None:
    """Let attributes that name or hold 16-bit floats say float32."""
    for name, attribute in [*node.attributes.items()]:
        if attribute.is_ref():
            continue
        if attribute.type == ir.AttributeType.TENSOR and attribute.as_tensor().dtype in HALF:
            node.attributes[name] = ir.AttrTensor(name, cast_to(attribute.as_tensor(), FLOAT))
        elif attribute.type == ir.AttributeType.TYPE_PROTO:
            kind = attribute.value
            if kind.type.dtype in HALF:
                wide = ir.TypeAndShape(with_dtype(kind.type, FLOAT), kind.shape)
                node.attributes[name] = ir.Attr(name, attribute.type, wide)
        elif _is_half_code(node, attribute):
            node.attributes[name] = ir.AttrInt64(name, FLOAT)


def _is_exact(node: ir.Node | None) -> bool:
    if node is None or node.domain not in STANDARD or node.op_type not in EXACT_OPS:
        return False
    if node.op_type in ("ScatterElements", "ScatterND"):
        return node.attributes.get_string("reduction", "none") == "none"
    return node.op_type != "Dropout" or len(node.inputs) < 3  # else it may scale, as in training


def _is_half_code(node: ir.Node, attribute: ir.Attr) -> bool:
    # Fused operators count dtypes as GE does, so only standard ones are read this way.
    return (
        node.domain in STANDARD
        and attribute.name in DTYPE_ATTRIBUTES
        and attribute.type == ir.AttributeType.INT
        and attribute.value in HALF
    )


def _widen_types(values: Iterable[ir.Value]) -> None:
    for value in values:
        if value.type is not None and value.type.dtype in HALF:
            value.type = with_dtype(value.type, FLOAT)
