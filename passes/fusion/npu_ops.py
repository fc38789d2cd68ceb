"""Fused operators of Ascend's parser as model-local functions (D7).

A fused operator is a node in domain ``npu``; the model carries a function of that name whose body
says what the kernel computes, so the file runs everywhere.
"""

from __future__ import annotations

from functools import cache

import onnx.parser
import onnx_ir as ir

from cannc.compiler.core.errors import ModelError, PassError, nearest
from cannc.compiler.core.graphs import all_graphs, unique, walk
from cannc.passes.fusion.npu_bodies import BODIES, OTHER_SPELLINGS

NPU_DOMAIN = "npu"
NPU_VERSION = 1
MIN_OPSET = 15
"""CastLike begins there."""
_MIN_IR_VERSION = 10


def npu_function(op_type: str, model: ir.Model, num_outputs: int) -> ir.Function:
    """Return the body of a fused operator at the model's own opset.

    Nodes must give every attribute that the function lists: the reference evaluator knows no
    defaults of function attributes. `use_npu_op` sees to that.

    Args:
        op_type: Name in domain ``npu``, e.g. ``NPURmsNorm``.
        model: The model that will hold the function; only its opset is read.
        num_outputs: How many outputs the nodes list (kernels have optional trailing outputs).

    Raises:
        PassError: ``NPU001`` no body for that name, ``NPU002`` more outputs than the kernel has.
        ModelError: ``NPU003`` the model's opset is below 15.
    """
    opset = opset_of(model)
    if opset < MIN_OPSET:
        raise ModelError(
            "NPU003",
            f"opset {opset} cannot hold the body of {op_type}",
            why=f"its body needs CastLike, which begins at opset {MIN_OPSET}",
            fix="bring the model to opset 18 first (pass opset-to-18)",
        )
    function = _parse(op_type, opset)
    for name, attribute in function.attributes.items():
        function.attributes[name] = ir.Attr(name, attribute.type, None)
    if not 1 <= num_outputs <= len(function.outputs):
        what = f"{op_type} has {len(function.outputs)} outputs, {num_outputs} asked for"
        raise PassError("NPU002", what)
    del function.outputs[num_outputs:]
    _remove_unused(function)
    return function


def use_npu_op(model: ir.Model, op_type: str, num_outputs: int = 1) -> None:
    """Register the body of a fused operator and its domain in `model`, in place.

    Call it when the nodes are in the graph. All nodes of one name must list as many outputs as the
    function has, so nodes with fewer get further, named, unused ones; attributes left out are
    written with the kernel's default.

    Args:
        model: The model.
        op_type: Name in domain ``npu``.
        num_outputs: Outputs that the caller's nodes list.

    Raises:
        PassError, ModelError: see `npu_function`.
    """
    nodes = [s.node for s in walk(model.graph) if is_npu(s.node, op_type)]
    count = max([num_outputs, *(len(node.outputs) for node in nodes)])
    function = npu_function(op_type, model, count)
    for node in nodes:
        _complete(node)
    short = [node for node in nodes if len(node.outputs) < count]
    if short:
        _lengthen(model, short, count)
    model.functions[function.identifier()] = function
    model.opset_imports[NPU_DOMAIN] = NPU_VERSION
    model.ir_version = max(model.ir_version, _MIN_IR_VERSION)


def refresh_npu_ops(model: ir.Model) -> None:
    """Give every ``npu`` node of a known operator our body, at the model's opset, in place.

    For models that changed their opset, and for nodes that came without a body (D8).
    """
    present = {s.node.op_type for s in walk(model.graph) if s.node.domain == NPU_DOMAIN}
    for op_type in sorted(present & BODIES.keys()):
        use_npu_op(model, op_type)


def is_npu(node: ir.Node, op_type: str) -> bool:
    """Return whether `node` is the fused operator `op_type`."""
    return node.domain == NPU_DOMAIN and node.op_type == op_type


def opset_of(model: ir.Model) -> int:
    """Return the version of the default operator domain that the model imports."""
    return model.opset_imports.get("", model.opset_imports.get("ai.onnx", 1))


def _parse(op_type: str, opset: int) -> ir.Function:
    if op_type not in BODIES:
        raise PassError("NPU001", f"no function body for '{op_type}'{nearest(op_type, BODIES)}")
    text = f'<domain: "{NPU_DOMAIN}", opset_import: ["" : {opset}]>{BODIES[op_type]}'
    return ir.serde.deserialize_function(onnx.parser.parse_function(text))


@cache
def _defaults(op_type: str) -> dict[str, ir.Attr]:
    return dict(_parse(op_type, MIN_OPSET).attributes)


def _complete(node: ir.Node) -> None:
    """Write all attributes of a fused node, under the names that its body uses."""
    for name in list(node.attributes):
        if spelling := OTHER_SPELLINGS.get((node.op_type, name)):
            value = node.attributes.pop(name)
            node.attributes[spelling] = ir.Attr(spelling, value.type, value.value)
    for name, default in _defaults(node.op_type).items():
        node.attributes.setdefault(name, default)
    if node.op_type == "NPUAntiQuant" and node.attributes["dst_dtype"].value != 1:
        raise ModelError(
            "NPU004",
            "NPUAntiQuant to bfloat16 has no function body",
            where=node.name or "",
            why="one function cannot give two dtypes, and float16 is the one in use",
            fix="use dst_dtype 1 (float16)",
        )


def _remove_unused(function: ir.Function) -> None:
    """Remove the nodes that only the outputs left out needed."""
    outputs = set(function.outputs)
    for node in reversed(list(function)):
        if not any(value.uses() or value in outputs for value in node.outputs):
            function.remove(node, safe=True)


def _lengthen(model: ir.Model, nodes: list[ir.Node], count: int) -> None:
    """Append named outputs: an empty name would be wired to every empty input (npu-ops.md)."""
    taken: set[str | None] = {v.name for s in walk(model.graph) for v in s.node.outputs}
    for _, graph in all_graphs(model.graph):
        taken.update(graph.initializers)
        taken.update(value.name for value in graph.inputs)
    for node in nodes:
        first = len(node.outputs)
        node.resize_outputs(count)
        for index in range(first, count):
            name = unique(f"{node.outputs[0].name}__output{index}", taken)
            node.outputs[index].name = name
            taken.add(name)
