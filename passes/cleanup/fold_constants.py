"""Replaces what depends on constants only by its value.

    y = MatMul(x, Transpose(w))      ->      y = MatMul(x, w_transposed)

All such nodes of a model are evaluated in one run. Random operators and operators that nobody
defines are never folded, and a result that would make the model larger is not kept (see
`constant_region`). Constant nodes become initializers of the same name. Large weights that are only
laid out anew or cast stay lazy: their numbers are read when the model is written.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import onnx_ir as ir

from cannc.compiler.core.graphs import Names
from cannc.compiler.core.runner import Array
from cannc.passes.base import Numerics, Pass, PassContext
from cannc.passes.cleanup.constant_region import Region
from cannc.passes.cleanup.lazy_layout import lazy_result
from cannc.passes.pattern import constant_of
from cannc.passes.rewrite import scoped_nodes

_MAX_TRIES = 4


class FoldConstants(Pass):
    """See the module."""

    name = "fold-constants"
    summary = "evaluate what depends on constants only"
    numerics = Numerics.EXACT

    def run(self, ctx: PassContext) -> None:
        """See `Pass.run`."""
        for scoped in scoped_nodes(ctx.model):
            tensor = _literal(scoped.node) or lazy_result(scoped.node)
            if tensor is not None:
                ctx.rewriter.fold(scoped.node, [tensor])
        blocked: set[ir.Node] = set()
        sizes: dict[ir.Value, int] = {}
        for _ in range(_MAX_TRIES):
            region = Region(ctx.model, blocked)
            written, _ = region.results(sizes)
            if not written:
                return
            try:
                arrays = evaluate(ctx, region.nodes, written)
            except Exception as error:
                failed = _find_failing(ctx, region.nodes)
                if not failed:
                    ctx.note(f"constants were not folded: {error}")
                    return
                blocked |= failed
                continue
            sizes = {value: array.nbytes for value, array in arrays.items()}
            kept, vanishing = region.results(sizes)
            if set(kept) <= set(written):
                _write(ctx, kept, vanishing, arrays)
                return


def _literal(node: ir.Node) -> ir.TensorProtocol | None:
    """Return the tensor of a Constant node that may become an initializer."""
    if node.op_type != "Constant" or node.domain not in ("", "ai.onnx"):
        return None
    if node.outputs[0].is_graph_output():
        return None
    return constant_of(node.outputs[0])


def evaluate(
    ctx: PassContext, nodes: Sequence[ir.Node], wanted: Sequence[ir.Node]
) -> dict[ir.Value, Array]:
    """Run `nodes` in one model of their own and return all outputs of `wanted`."""
    copies = _Copies()
    for node in nodes:
        copies.add(node)
    results = {value: copies.of[value] for node in wanted for value in node.outputs}
    graph = ir.Graph(
        [],
        list(results.values()),
        nodes=copies.nodes,
        initializers=copies.leaves,
        opset_imports=dict(ctx.model.opset_imports),
        name="constants",
    )
    functions = [function.clone() for function in ctx.model.functions.values()]
    model = ir.Model(graph, ir_version=ctx.model.ir_version, functions=functions)
    arrays = ctx.runner.run(model, {}, [value.name or "" for value in results.values()])
    return {value: arrays[copy.name or ""] for value, copy in results.items()}


class _Copies:
    """Copies of nodes that read constants only, for a graph of their own."""

    def __init__(self) -> None:
        self.of: dict[ir.Value, ir.Value] = {}
        self.leaves: list[ir.Value] = []
        self.nodes: list[ir.Node] = []
        self._names = Names()

    def add(self, node: ir.Node) -> None:
        """Copy a node whose inputs are constants or outputs of nodes added before."""
        inputs = [self._stand_in(value) if value is not None else None for value in node.inputs]
        outputs = [
            ir.Value(name=self._names.fresh(value.name or ""), type=value.type, shape=value.shape)
            for value in node.outputs
        ]
        self.of.update(zip(node.outputs, outputs, strict=True))
        copy = ir.Node(
            node.domain,
            node.op_type,
            inputs,
            list(node.attributes.values()),
            overload=node.overload,
            outputs=outputs,
            name=node.name,
        )
        self.nodes.append(copy)

    def _stand_in(self, value: ir.Value) -> ir.Value:
        if value not in self.of:
            tensor = constant_of(value)
            assert tensor is not None  # what no added node computes is a constant
            name = self._names.fresh(value.name or "")
            if name != value.name:
                # A value names its tensor after itself, and this tensor is the model's.
                shared = tensor
                tensor = ir.LazyTensor(lambda: shared, dtype=shared.dtype, shape=shared.shape)  # type: ignore[arg-type]
            leaf = ir.Value(
                name=name,
                type=ir.TensorType(tensor.dtype),
                shape=tensor.shape,  # type: ignore[arg-type]
                const_value=tensor,
            )
            self.leaves.append(leaf)
            self.of[value] = leaf
        return self.of[value]


def _find_failing(ctx: PassContext, nodes: Sequence[ir.Node]) -> set[ir.Node]:
    """Return the nodes that cannot be evaluated, found by running each with what it needs."""
    failing: set[ir.Node] = set()
    needs: dict[ir.Node, list[ir.Node]] = {}
    for node in nodes:
        before = [value.producer() for value in node.inputs if value is not None]
        if any(producer in failing for producer in before):
            continue
        needs[node] = list(dict.fromkeys(n for p in before if p in needs for n in (*needs[p], p)))
        try:
            evaluate(ctx, [*needs[node], node], [node])
        except Exception as error:
            reason = str(error).strip().splitlines()[0]
            ctx.note(f"{node.name} ({node.op_type}) cannot be evaluated: {reason}")
            failing.add(node)
    return failing


def _write(
    ctx: PassContext,
    kept: Sequence[ir.Node],
    vanishing: Sequence[ir.Node],
    arrays: dict[ir.Value, Array],
) -> None:
    for node in kept:
        ctx.rewriter.fold(node, [_tensor(arrays[value], value) for value in node.outputs])
    for node in vanishing:
        ctx.rewriter.erase([node], folded=True)


def _tensor(array: Array, value: ir.Value) -> ir.TensorProtocol:
    if array.dtype.kind in "OSU":
        return ir.StringTensor([str(x).encode() for x in array.flat], shape=ir.Shape(array.shape))
    dtype = value.dtype if value.dtype is not None and value.dtype.itemsize else None
    # Not ascontiguousarray: that turns a scalar into a vector.
    return ir.Tensor(np.asarray(array, order="C"), dtype=dtype)
