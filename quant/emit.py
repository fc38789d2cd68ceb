"""Puts quantized weights into the graph, each in its form."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx_ir as ir

from cannc.compiler.core.shapes import rank
from cannc.passes.fusion.npu_ops import NPU_DOMAIN, use_npu_op
from cannc.passes.rewrite import Rewriter
from cannc.quant.collect import flag
from cannc.quant.forms import Form
from cannc.quant.plan import Emittable, Plan
from cannc.quant.reshaping import Nodes, Reshaper

_TO_FLOAT16 = 1
"""NPUAntiQuant's dst_dtype: a GE code, not an ONNX one."""


@dataclass(frozen=True)
class _Operands:
    """Initializers of one stored weight."""

    levels: ir.Value
    scale: ir.Value
    offset: ir.Value | None


class Emitter:
    """Rewrites one model. Stored weights and what is computed from them are made once."""

    def __init__(self, rewriter: Rewriter) -> None:
        """Args: the rewriter of the model."""
        self._rewriter = rewriter
        self._reshaper = Reshaper(rewriter)
        self._operands: dict[int, _Operands] = {}
        self._expanded: dict[tuple[int, object], ir.Value] = {}

    def emit(self, plans: Sequence[Plan[Emittable]]) -> None:
        """Give every planned node its quantized weight."""
        for plan in plans:
            if plan.stored.choice.form is Form.FUSED:
                self._fused(plan)
            elif plan.use.node.op_type == "Gather":
                self._gathered(plan)
            else:
                self._expand(plan)
        used = {plan.stored.choice.form for plan in plans}
        for form in (Form.FUSED, Form.ANTIQUANT):
            if form in used:
                use_npu_op(self._rewriter.model, form.value)

    def name_of(self, stored: Emittable) -> str:
        """Return the name under which the integers of an emitted weight stand in the model."""
        return self._operands[id(stored)].levels.name or ""

    def _fused(self, plan: Plan[Emittable]) -> None:
        """Replace MatMul or Gemm by WeightQuantBatchMatmulV2, which takes 2-D activations.

        Gemm: alpha is inside the scales, ``beta * C`` is added after the product.
        """
        node, stored = plan.use.node, plan.stored
        operands = self._store(stored)
        (out,), x = node.outputs, node.inputs[0]
        assert x is not None
        new = Nodes(self._rewriter)
        if flag(node, "transA"):
            x = new.add("Transpose", [x], {"perm": [1, 0]}, like=x, shape=_reversed(x))
        is_flat = node.op_type == "Gemm" or rank(x) == 2
        flat = x if is_flat else self._reshaper.flatten(node, x, plan.use.layout.k, new)
        group = stored.choice.scheme.group
        y = new.add(
            Form.FUSED.value,
            [flat, operands.levels, operands.scale, operands.offset],
            {} if group is None else {"antiquant_group_size": group},
            domain=NPU_DOMAIN,
            like=out,
            shape=out.shape if is_flat else ir.Shape([None, plan.use.layout.n]),
        )
        if not is_flat:
            y = self._reshaper.restore(node, x, y, plan.use.layout.n, new)
        y = self._add_bias(node, y, new)
        self._rewriter.replace([node], new.nodes, {out: y})

    def _add_bias(self, node: ir.Node, y: ir.Value, new: Nodes) -> ir.Value:
        """Return ``y + beta * C`` of a Gemm, or `y` when there is no C."""
        bias = node.inputs[2] if len(node.inputs) > 2 else None
        beta = node.attributes.get("beta")
        factor = 1.0 if beta is None else beta.as_float()
        if bias is None or factor == 0.0:
            return y
        if factor != 1.0:
            number = np.array(factor, _numpy_dtype(bias))
            constant = self._rewriter.constant(bias, number)
            bias = new.add("Mul", [bias, constant], {}, like=bias, shape=bias.shape)
        return new.add("Add", [y, bias], {}, like=node.outputs[0], shape=node.outputs[0].shape)

    def _expand(self, plan: Plan[Emittable]) -> None:
        """Keep the node; let it read the weight dequantized in the graph."""
        node, stored = plan.use.node, plan.stored
        new = Nodes(self._rewriter)
        key = (id(stored), node.graph)
        if key not in self._expanded:
            self._expanded[key] = self._dequantized(plan, new)
        inputs = list(node.inputs)
        inputs[plan.use.operand] = self._expanded[key]
        attributes: dict[str, Any] = dict(node.attributes)
        if stored.choice.form is Form.ANTIQUANT and node.op_type == "Gemm":
            attributes["transB"] = 0
        (out,) = node.outputs
        y = new.add(node.op_type, inputs, attributes, like=out, shape=out.shape, domain=node.domain)
        self._rewriter.replace([node], new.nodes, {out: y})

    def _dequantized(self, plan: Plan[Emittable], new: Nodes) -> ir.Value:
        """Return the float weight, computed by nodes added to `new`."""
        stored, weight, layout = plan.stored, plan.use.weight, plan.use.layout
        operands = self._store(stored)
        if stored.choice.form is Form.ANTIQUANT:
            return new.add(
                Form.ANTIQUANT.value,
                [operands.levels, operands.scale, operands.offset],
                {"dst_dtype": _TO_FLOAT16},
                domain=NPU_DOMAIN,
                like=weight.value,
                shape=ir.Shape((layout.k, layout.n)),
            )
        if stored.choice.form is Form.QDQ:
            return _dequantize_linear(plan, operands, new)
        return self._scaled(plan, operands.levels, operands, None, new, ir.Shape(layout.shape))

    def _gathered(self, plan: Plan[Emittable]) -> None:
        """Gather integers and their scales, and dequantize only what was gathered."""
        node = plan.use.node
        (out,), (_, indices) = node.outputs, node.inputs
        operands = self._store(plan.stored)
        new = Nodes(self._rewriter)
        taken = new.add(
            "Gather",
            [operands.levels, indices],
            {},
            like=out,
            shape=out.shape,
            dtype=ir.DataType.INT8,
        )
        y = self._scaled(plan, taken, operands, indices, new, out.shape)
        self._rewriter.replace([node], new.nodes, {out: y})

    def _scaled(
        self,
        plan: Plan[Emittable],
        levels: ir.Value,
        operands: _Operands,
        rows: ir.Value | None,
        new: Nodes,
        shape: ir.Shape | None,
    ) -> ir.Value:
        """Return ``(levels + offset) * scale`` in the weight's dtype.

        With `rows` the levels are rows gathered from the stored ones, else all of them.
        """
        weight, dtype = plan.use.weight.value, plan.use.weight.dtype
        y = new.add("Cast", [levels], {"to": dtype.value}, like=weight, shape=shape, dtype=dtype)
        for op_type, table in (("Add", operands.offset), ("Mul", operands.scale)):
            if table is None:
                continue
            other = self._spread(plan, table, new) if rows is None else None
            if rows is not None:
                other = new.add("Gather", [table, rows], {}, like=table, shape=None)
            y = new.add(op_type, [y, other], {}, like=weight, shape=shape, dtype=dtype)
        return y

    def _spread(self, plan: Plan[Emittable], table: ir.Value, new: Nodes) -> ir.Value:
        """Return scales or offsets that broadcast against the weight: groups are repeated."""
        group = plan.stored.choice.scheme.group
        if group is None:
            return table
        layout = plan.use.layout
        (axis,) = layout.reduced
        index = self._rewriter.constant(table, np.arange(layout.k, dtype=np.int64) // group)
        return new.add(
            "Gather", [table, index], {"axis": axis}, like=table, shape=ir.Shape(layout.shape)
        )

    def _store(self, stored: Emittable) -> _Operands:
        """Return the initializers of a stored weight."""
        if id(stored) not in self._operands:
            root, offset = stored.first.weight.root, stored.offset()
            self._operands[id(stored)] = _Operands(
                self._rewriter.constant(root, stored.levels()),
                self._rewriter.constant(root, stored.scale()),
                None if offset is None else self._rewriter.constant(root, offset),
            )
        return self._operands[id(stored)]


def _dequantize_linear(plan: Plan[Emittable], operands: _Operands, new: Nodes) -> ir.Value:
    """Return the weight in its dtype; before opset 19 the operator gives float32 only."""
    weight, layout = plan.use.weight, plan.use.layout
    inputs = [operands.levels, operands.scale, operands.offset]
    if operands.offset is None:
        inputs = inputs[:2]
    shape = ir.Shape(layout.shape)
    y = new.add(
        Form.QDQ.value,
        inputs,
        {"axis": layout.channels[0]},
        like=weight.value,
        shape=shape,
        dtype=ir.DataType.FLOAT,
    )
    if weight.dtype == ir.DataType.FLOAT:
        return y
    attributes = {"to": weight.dtype.value}
    return new.add("Cast", [y], attributes, like=weight.value, shape=shape, dtype=weight.dtype)


def _reversed(x: ir.Value) -> ir.Shape | None:
    return None if x.shape is None else ir.Shape(list(x.shape)[::-1])


def _numpy_dtype(value: ir.Value) -> np.dtype[Any]:
    assert value.dtype is not None
    return value.dtype.numpy()
