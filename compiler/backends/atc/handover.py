"""The copy of a model that ATC's parser gets (D9, D13, D14, D15; parser-run.md)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import onnx_ir as ir
from onnx_ir.passes.common import InlinePass

from cannc.compiler.backends.atc.weights import refer_to_weights
from cannc.compiler.core.errors import ModelError
from cannc.compiler.core.files import atomic_write
from cannc.compiler.core.graphs import Names, all_graphs, name_nodes, name_outputs, walk
from cannc.compiler.core.onnx_io import to_proto
from cannc.compiler.core.shapes import infer_shapes
from cannc.compiler.core.target import Target
from cannc.op_support.kernels import hand_over_name
from cannc.op_support.releases import single_import_only
from cannc.op_support.table import fused_operators, operators

LEAST_OPSET, MOST_OPSET = 8, 18
MODEL_FILE = "model.onnx"
_DEFAULT = ("", "ai.onnx")


@dataclass(frozen=True)
class HandOver:
    """The copy.

    Attributes:
        model: What ATC will parse; the weights are still where they were.
        nodes: Node name in it -> node name in the unit; ATC's messages use the former.
        float32_nodes: Nodes that compute in float32 although the model is float16.
    """

    model: ir.Model
    nodes: dict[str, str]
    float32_nodes: tuple[str, ...]

    def write(self, folder: Path) -> Path:
        """Write the model into a folder, with links to its weight files; return its path."""
        refer_to_weights(self.model, folder)
        path = folder / MODEL_FILE
        with atomic_write(path) as stream:
            stream.write(to_proto(self.model).SerializeToString(deterministic=True))
        return path


def prepare(model: ir.Model, target: Target) -> HandOver:
    """Return the copy of a model that the target's parser takes.

    Raises:
        ModelError: ``ATC070`` an opset that no plugin is registered for, ``ATC071`` a fused
            operator without a name in the default domain.
    """
    # Where it is not known which form a release takes, the one that all of them take.
    single = single_import_only(target) is not False
    copy = model.clone()
    # Before the functions go: dtypes behind fused nodes follow from their bodies.
    infer_shapes(copy)
    _inline(copy, single=single)
    _check_opset(copy)
    _drop_constant_inputs(copy.graph)
    _place_domains(copy, single=single)
    before = {scoped.node: scoped.node.name or "" for scoped in walk(copy.graph)}
    _name(copy)
    renamed = {scoped.node.name or "": before[scoped.node] for scoped in walk(copy.graph)}
    _strip(copy)
    return HandOver(copy, renamed, tuple(_float32_nodes(copy)))


def _inline(model: ir.Model, *, single: bool) -> None:
    """Replace calls that the parser does not know by their bodies, and drop all functions."""

    def unknown(function: ir.Function) -> bool:
        if operators().get(f"{function.domain or 'ai.onnx'}::{function.name}") is None:
            return True
        return single and function.domain == "npu" and hand_over_name(function.name) is None

    InlinePass(criteria=unknown)(model)
    model.functions.clear()


def _check_opset(model: ir.Model) -> None:
    version = next((model.opset_imports[d] for d in _DEFAULT if d in model.opset_imports), None)
    standard = any(scoped.node.domain in _DEFAULT for scoped in walk(model.graph))
    if not standard or (version is not None and LEAST_OPSET <= version <= MOST_OPSET):
        return
    raise ModelError(
        "ATC070",
        f"opset {version} cannot be given to ATC",
        why=f"its plugins are registered for opsets {LEAST_OPSET} to {MOST_OPSET}; "
        "ATC refuses every node as E13010",
        fix="'cannc optimize' brings the model to opset 18",
    )


def _drop_constant_inputs(graph: ir.Graph) -> None:
    """Inputs with a default value are constants (D25); ATC would ask for them as inputs."""
    for value in [*graph.inputs]:
        if value.name in graph.initializers:
            graph.inputs.remove(value)


def _place_domains(model: ir.Model, *, single: bool) -> None:
    """Move fused nodes into the domain that they are registered in; drop unused imports."""
    for scoped in walk(model.graph):
        node = scoped.node
        if node.domain != "npu":
            continue
        if single or f"npu::{node.op_type}" not in fused_operators():
            name = hand_over_name(node.op_type)
            if name is None:
                raise ModelError(
                    "ATC071",
                    f"{node.op_type} has no name in the default domain",
                    where=f"node {node.name}",
                    why="this CANN release reads one operator domain only (E16005), and the node "
                    "has no function body to put in its place",
                    fix="optimize again with --cann, so that the fusion is left out",
                )
            node.domain, node.op_type = "", name
    used = {"" if s.node.domain in _DEFAULT else s.node.domain for s in walk(model.graph)}
    imports = model.opset_imports
    for domain in [*imports]:
        if ("" if domain in _DEFAULT else domain) not in used:
            del imports[domain]


def _name(model: ir.Model) -> None:
    """Give every node a name that no input, weight or other node has (E13009)."""
    name_nodes(model)
    name_outputs(model)
    taken = Names(
        value.name
        for _, graph in all_graphs(model.graph)
        for value in (*graph.inputs, *graph.initializers.values())
    )
    for scoped in walk(model.graph):
        scoped.node.name = taken.fresh(scoped.node.name or scoped.node.op_type)


def _strip(model: ir.Model) -> None:
    """Drop provenance, notes of exporters and documentation (D13)."""
    model.metadata_props.clear()
    model.doc_string = None
    for _, graph in all_graphs(model.graph):
        graph.metadata_props.clear()
        graph.doc_string = None
        for value in (*graph.inputs, *graph.initializers.values()):
            value.metadata_props.clear()
            value.doc_string = None
        for node in graph:
            node.metadata_props.clear()
            node.doc_string = None
            for value in node.outputs:
                value.metadata_props.clear()
                value.doc_string = None


def _float32_nodes(model: ir.Model) -> Iterator[str]:
    """Yield the float32 islands of a float16 model; nothing for a model of one precision."""
    nodes = [scoped.node for scoped in walk(model.graph)]
    half = {v for node in nodes for v in node.outputs if v.dtype == ir.DataType.FLOAT16}
    if not half:
        return
    for node in nodes:
        values = (*node.inputs, *node.outputs)
        dtypes = {value.dtype for value in values if value is not None}
        if node.op_type != "Cast" and ir.DataType.FLOAT in dtypes and node.name:
            yield node.name
