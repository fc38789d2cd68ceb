"""Which node output of the compiled model each dumped tensor is.

Three records say so; the first that speaks counts: the dump file itself, the attributes of the
device's .om (pyacl.md section 8), and the op's name, which is the node's where nothing was fused.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import onnx_ir as ir

from cannc.compiler.om.attributes import typed
from cannc.compiler.om.reader import OmFile
from cannc.golden.dumps.file import DumpTensor
from cannc.golden.dumps.folder import DumpRun
from cannc.golden.dumps.names import mapped

_STANDS_FOR = "_datadump_original_op_names"
_NAME = "_datadump_origin_name"
_INDEX = "_datadump_origin_output_index"
_VIEWS = frozenset({"Reshape", "Squeeze", "Unsqueeze", "Flatten", "Identity"})


@dataclass(frozen=True)
class DeviceOp:
    """What an .om says about one op.

    Attributes:
        outputs: Original node and output index of each output; None where nothing is said.
        stands_for: Original nodes that it does the work of; empty for ops that GE inserted.
    """

    outputs: tuple[tuple[str, int] | None, ...]
    stands_for: tuple[str, ...]


@dataclass
class Dumped:
    """What a run shows of the compiled model.

    Attributes:
        tensors: Value name -> its dump.
        makers: Value name -> the device op that dumped it.
        inside: Node name -> the device op that does its work, for nodes whose value is not shown.
        notes: What could not be placed, and why.
    """

    tensors: dict[str, DumpTensor] = field(default_factory=dict)
    makers: dict[str, str] = field(default_factory=dict)
    inside: dict[str, str] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)


def device_ops(om: OmFile) -> dict[str, DeviceOp]:
    """Return op name -> what an .om of a device says about it."""
    return {op.name: _device_op(op) for graph in om.definition.graph for op in graph.op}


def _device_op(op: Any) -> DeviceOp:
    # Without the list an op is its own original; an empty one marks what GE inserted.
    own = [] if _STANDS_FOR in op.attr else [op.name]
    places: list[tuple[str, int] | None] = []
    for desc in op.output_desc:
        name = typed(desc.attr, _NAME, "s", "")
        places.append((name, typed(desc.attr, _INDEX, "i", 0)) if name else None)
    return DeviceOp(tuple(places), tuple(typed(op.attr, _STANDS_FOR, "list:s", own)))


def place(run: DumpRun, graph: ir.Graph, ops: Mapping[str, DeviceOp]) -> Dumped:
    """Match the dumps of a run with the values of the compiled model's main graph."""
    nodes = _by_mapped(node.name or "" for node in graph)
    known = {node.name or "": node for node in graph}
    device = _by_mapped(ops)
    found = Dumped(notes=[*run.notes])
    for name, dump in run.files:
        op_name = _exact(dump.op_name, name.op_name, device) or dump.op_name or name.op_name
        op = ops.get(op_name)
        for index, tensor in enumerate(dump.outputs):
            stated = tensor.original or _stated(op, index)
            node_name = stated[0] if stated else op_name
            node = known.get(_exact(node_name, mapped(node_name), nodes) or "")
            if node is None or (op is not None and not op.stands_for and not stated):
                continue
            output = stated[1] if stated else index
            if output < len(node.outputs):
                value = node.outputs[output].name or ""
                found.tensors[value], found.makers[value] = tensor, op_name
        for original in op.stands_for if op else ():
            found.inside[original] = op_name
    _look_through_views(found, graph)
    found.notes += _collisions(nodes, run)
    return found


def _look_through_views(found: Dumped, graph: ir.Graph) -> None:
    """Let values that only have another shape be shown by what they are a view of.

    Such nodes have no task on the device, so nothing is dumped for them.
    """
    for node in graph:
        if node.op_type not in _VIEWS or node.domain or node.inputs[0] is None:
            continue
        source, view = node.inputs[0].name or "", node.outputs[0].name or ""
        if source in found.tensors and view not in found.tensors:
            found.tensors[view], found.makers[view] = found.tensors[source], found.makers[source]


def _stated(op: DeviceOp | None, index: int) -> tuple[str, int] | None:
    if op is None or index >= len(op.outputs):
        return None
    stated = op.outputs[index]
    return stated or ((op.stands_for[-1], index) if op.stands_for else None)


def _by_mapped(names: Iterable[str]) -> dict[str, list[str]]:
    groups: dict[str, list[str]] = {}
    for name in names:
        groups.setdefault(mapped(name), []).append(name)
    return groups


def _exact(name: str, short: str, groups: Mapping[str, list[str]]) -> str | None:
    """Return the one name that is meant, or None when there is none or the choice is open."""
    candidates = groups.get(short) or groups.get(mapped(name)) or []
    if name in candidates:
        return name
    return candidates[0] if len(candidates) == 1 else None


def _collisions(nodes: Mapping[str, list[str]], run: DumpRun) -> list[str]:
    unclear = {
        name.op_name
        for name, dump in run.files
        if len(nodes.get(name.op_name, ())) > 1 and dump.op_name not in nodes[name.op_name]
    }
    return [f"dumps of '{name}' could be of {nodes[name]}: left out" for name in sorted(unclear)]
