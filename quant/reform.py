"""Moves quantized weights from Cast + Mul into the fused kernel where that has become possible.

A float32 model has no choice but Cast + Mul; once its activations are float16, or when it goes to
a chip that has the kernel, the same integers can go into WeightQuantBatchMatmulV2 (D11). Scales
are those of the graph, so nothing is quantized a second time.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, replace

import numpy as np
import onnx_ir as ir

from cannc.compiler.core.graphs import walk
from cannc.compiler.core.runner import Array
from cannc.compiler.core.target import Target
from cannc.compiler.core.unit import CompileUnit, Stage
from cannc.passes.fusion.npu_ops import opset_of
from cannc.passes.pattern import array_of, constant_of
from cannc.passes.rewrite import Rewriter
from cannc.quant.collect import WeightUse, flag
from cannc.quant.emit import Emitter
from cannc.quant.forms import Choice, Form, FormRules, MayUseKernel
from cannc.quant.layout import Layout
from cannc.quant.plan import Plan
from cannc.quant.report import QUANT_KEY, QuantReport
from cannc.quant.scheme import Scheme
from cannc.quant.weights import Weight


@dataclass(frozen=True)
class Existing:
    """A weight that stands dequantized in the graph, offered like `cannc.quant.plan.Stored`.

    Attributes:
        first: The node that reads it, with the integers as its weight.
        choice: The fused form.
        factor: Alpha of a Gemm; goes into the scales.
        table: Scales of the graph.
        offsets: Offsets of the graph, or None.
        nodes: The dequantizing nodes, the last one first.
    """

    first: WeightUse
    choice: Choice
    factor: float
    table: ir.Value
    offsets: ir.Value | None
    nodes: tuple[ir.Node, ...]

    @property
    def key(self) -> object:
        """Nodes with equal keys read the same integers and scales."""
        return self.first.key, self.factor

    def levels(self) -> ir.TensorProtocol:
        """Return the integers (k, n)."""
        layout = self.first.layout

        def integers(array: Array) -> Array:
            return layout.to_matrix(array).astype(np.int8)

        return self.first.weight.derive(integers, ir.DataType.INT8, (layout.k, layout.n))

    def scale(self) -> Array:
        """Return the scales (n) or (groups, n), alpha included."""
        scale = self._rows(self.table).astype(np.float32) * np.float32(self.factor)
        return scale.astype(self.first.weight.dtype.numpy())

    def offset(self) -> Array | None:
        """Return the offsets like `scale`; the kernel's body needs them (D7)."""
        return np.zeros_like(self.scale()) if self.offsets is None else self._rows(self.offsets)

    def _rows(self, value: ir.Value) -> Array:
        tensor = constant_of(value)
        assert tensor is not None
        table = tensor.numpy() if self.first.layout.channels == (1,) else tensor.numpy().T
        return np.ascontiguousarray(table[0] if table.shape[0] == 1 else table)


def fuse_quantized(
    unit: CompileUnit, *, target: Target, may_use_kernel: MayUseKernel
) -> CompileUnit:
    """Return a copy of a quantized unit with WeightQuantBatchMatmulV2 wherever it fits now.

    Args:
        unit: Not changed. Without Cast + Mul weights the copy is equal.
        target: SoC that the result is for; stamped on it.
        may_use_kernel: See `cannc.passes.base.PassContext`.
    """
    started = time.perf_counter()
    work = unit.copy()
    work.target = target
    rules = FormRules(target, may_use_kernel, opset_of(work.model))
    nodes = [scoped.node for scoped in walk(work.model.graph)]
    found = [stored for node in nodes if (stored := _existing(node, rules)) is not None]
    rewriter = Rewriter(work.model, work.provenance, "fuse-quantized")
    emitter = Emitter(rewriter)
    shared: dict[object, Existing] = {}
    plans = [Plan(stored.first, shared.setdefault(stored.key, stored)) for stored in found]
    emitter.emit(plans)
    for stored in found:
        _sweep(rewriter, stored)
    stored_as = {plan.use.node.name or "": emitter.name_of(plan.stored) for plan in plans}
    _update_report(work, stored_as)
    after = sum(1 for _ in walk(work.model.graph))
    seconds = time.perf_counter() - started
    work.log.append(Stage("fuse-quantized", len(found), len(nodes), after, seconds))
    return work


def _existing(node: ir.Node, rules: FormRules) -> Existing | None:
    """Return the dequantized weight that `node` reads, if the fused kernel can take it."""
    if node.op_type not in ("MatMul", "Gemm") or node.domain not in ("", "ai.onnx"):
        return None
    value = node.inputs[1]
    mul = _producer(value, "Mul")
    if value is None or mul is None or value.dtype is None or value.is_graph_output():
        return None
    add = _producer(mul.inputs[0], "Add")
    cast = _producer((add or mul).inputs[0], "Cast")
    levels = constant_of(cast.inputs[0]) if cast is not None else None
    if cast is None or levels is None or levels.dtype != ir.DataType.INT8 or len(levels.shape) != 2:
        return None
    shape = tuple(levels.shape.numpy())
    layout = Layout(shape, (0,) if flag(node, "transB") else (1,))
    group, table = _table(mul.inputs[1], layout)
    offset_group, offsets = _table(add.inputs[1], layout) if add is not None else (group, None)
    if table is None or group != offset_group or (add is not None and offsets is None):
        return None
    root = cast.inputs[0]
    assert root is not None
    use = WeightUse(node, 1, Weight(value, root, levels, shape, value.dtype), layout)
    choice = rules.choose(use, Scheme(8, add is None, group))
    if choice.form is not Form.FUSED or choice.scheme.group != group:
        return None
    alpha = node.attributes.get("alpha")
    spread = [_producer(n.inputs[1], "Gather") for n in (mul, add) if n is not None]
    chain = (mul, add, cast, *spread)
    factor = 1.0 if alpha is None else alpha.as_float()
    return Existing(use, choice, factor, table, offsets, tuple(n for n in chain if n is not None))


def _table(value: ir.Value | None, layout: Layout) -> tuple[int | None, ir.Value | None]:
    """Return the group size and the stored table behind scales or offsets of a weight."""
    gather = _producer(value, "Gather")
    (axis,) = layout.reduced
    if gather is None:
        tensor = constant_of(value)
        expected = tuple(1 if a == axis else dim for a, dim in enumerate(layout.shape))
        fits = tensor is not None and tuple(tensor.shape.numpy()) == expected
        return None, value if fits else None
    index, table = array_of(gather.inputs[1]), gather.inputs[0]
    if index is None or constant_of(table) is None or gather.attributes.get_int("axis", 0) != axis:
        return None, None
    group = int(np.count_nonzero(index == 0))
    regular = group and np.array_equal(index, np.arange(layout.k) // group)
    return (group, table) if regular else (None, None)


def _producer(value: ir.Value | None, op_type: str) -> ir.Node | None:
    node = value.producer() if value is not None else None
    return node if node is not None and node.op_type == op_type else None


def _sweep(rewriter: Rewriter, stored: Existing) -> None:
    """Remove dequantizing nodes and constants that nothing reads any more."""
    read: list[ir.Value] = []
    for node in stored.nodes:
        if node.graph is not None and not any(value.uses() for value in node.outputs):
            read += [value for value in node.inputs if value is not None]
            rewriter.erase([node])
    for value in dict.fromkeys(read):
        interface = value.is_graph_input() or value.is_graph_output()
        if value.is_initializer() and not value.uses() and not interface:
            rewriter.drop_initializer(value)


def _update_report(unit: CompileUnit, stored_as: dict[str, str]) -> None:
    report = QuantReport.of(unit)
    if report is None or unit.target is None:
        return
    rows = tuple(
        replace(row, form=Form.FUSED.value, stored=stored_as[row.node], reason="")
        if row.node in stored_as and row.status == "quantized"
        else row
        for row in report.rows
    )
    updated = replace(report, rows=rows, soc=unit.target.soc)
    unit.model.metadata_props[QUANT_KEY] = updated.to_json()
