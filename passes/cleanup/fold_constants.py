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
                arrays = _evaluate(ctx, region.nodes, written)
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


def _evaluate(
    ctx: PassContext, nodes: Sequence[ir.Node], wanted: Sequence[ir.Node]
) -> dict[ir.Value, Array]:
    """Run `nodes` in one model of their own and return all outputs of `wanted`."""
    stand_ins: dict[ir.Value, ir.Value] = {}
    leaves: list[ir.Value] = []
    copies: list[ir.Node] = []

    def stand_in(value: ir.Value | None) -> ir.Value | None:
        if value is None:
            return None
        if value not in stand_ins:
            tensor = constant_of(value)
            assert tensor is not None  # what is no output of `nodes` is a leaf of the region
            leaf = ir.Value(name=f"c{len(leaves)}", const_value=tensor)
            leaf.shape, leaf.type = tensor.shape, ir.TensorType(tensor.dtype)  # type: ignore[assignment]
            leaves.append(leaf)
            stand_ins[value] = leaf
        return stand_ins[value]

    for node in nodes:
        inputs = [stand_in(value) for value in node.inputs]
        outputs = [
            ir.Value(name=f"v{len(copies)}_{index}", type=value.type, shape=value.shape)
            for index, value in enumerate(node.outputs)
        ]
        stand_ins.update(zip(node.outputs, outputs, strict=True))
        attributes = list(node.attributes.values())
        copies.append(
            ir.Node(
                node.domain,
                node.op_type,
                inputs,
                attributes,
                overload=node.overload,
                outputs=outputs,
                name=f"n{len(copies)}",
            )
        )
    results = {value: stand_ins[value] for node in wanted for value in node.outputs}
    graph = ir.Graph(
        [],
        list(results.values()),
        nodes=copies,
        initializers=leaves,
        opset_imports=dict(ctx.model.opset_imports),
        name="constants",
    )
    functions = [function.clone() for function in ctx.model.functions.values()]
    model = ir.Model(graph, ir_version=ctx.model.ir_version, functions=functions)
    arrays = ctx.runner.run(model, {}, [value.name or "" for value in results.values()])
    return {value: arrays[copy.name or ""] for value, copy in results.items()}


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
            _evaluate(ctx, [*needs[node], node], [node])
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
    return ir.Tensor(np.ascontiguousarray(array), dtype=dtype)
