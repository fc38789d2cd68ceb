"""Float numbers that are really integers: ids, positions, sizes. They never go to half precision.

Half counts exactly only up to 2048: ids above that would look up other rows (an embedding of 4096
rows), sizes would resize to other shapes, and positions would turn rotary angles into noise.
"""

from __future__ import annotations

import onnx_ir as ir

from cannc.compiler.core.graphs import Scoped
from cannc.passes.pattern import constant_of
from cannc.passes.precision.slots import CONTROL_FLOW, FLOAT, HALF, SlotTable

_INTEGERS = frozenset(
    {
        ir.DataType.INT64,
        ir.DataType.INT32,
        ir.DataType.INT16,
        ir.DataType.INT8,
        ir.DataType.UINT64,
        ir.DataType.UINT32,
        ir.DataType.UINT16,
        ir.DataType.UINT8,
    }
)
_PERIODIC = frozenset({"Sin", "Cos"})
_LOW = frozenset({HALF, ir.DataType.BFLOAT16})
REASON = "integers in float form (ids, positions, sizes) that half cannot count"
AUTHORED = "float32 region that the model's author cast to and back from half"


def find(nodes: list[Scoped], table: SlotTable) -> set[ir.Node]:
    """Return the float nodes between an integer source and a use that needs exact integers.

    Such uses are casts back to an integer, inputs that are float32 by definition (Resize scales,
    Range limits) and the angles of Sin and Cos.
    """
    derived = _derived(nodes)
    wanted: set[ir.Node] = set()
    for scoped in reversed(nodes):
        node = scoped.node
        if node in derived and (
            node.op_type in _PERIODIC or any(_exact(v, wanted, table) for v in node.outputs)
        ):
            wanted.add(node)
    return wanted


def _derived(nodes: list[Scoped]) -> set[ir.Node]:
    """Return float nodes that compute from integers and constants only, but not constants."""
    found: set[ir.Node] = set()
    for scoped in nodes:
        node = scoped.node
        if node.op_type in CONTROL_FLOW or not any(v.dtype == FLOAT for v in node.outputs):
            continue
        varying = [v for v in node.inputs if v is not None and constant_of(v) is None]
        floats = [v for v in varying if v.dtype not in _INTEGERS]
        sources_are_integers = all(v.producer() in found for v in floats)
        starts = node.op_type == "Cast" or bool(floats)
        if varying and starts and sources_are_integers:
            found.add(node)
    return found


def _exact(value: ir.Value, wanted: set[ir.Node], table: SlotTable) -> bool:
    for user, index in value.uses():
        if user in wanted:
            return True
        if user.op_type == "Cast" and user.outputs[0].dtype in _INTEGERS:
            return True
        slots = table.of(user) if user.op_type not in CONTROL_FLOW else None
        if slots is not None and not slots.inputs[index] and user.domain == "":
            return True
    return False


def authored(nodes: list[Scoped]) -> set[ir.Node]:
    """Return the nodes between a Cast from half to float32 and a Cast back, both in the model."""
    forward: set[ir.Node] = set()
    for scoped in nodes:
        node = scoped.node
        inputs = [v for v in node.inputs if v is not None]
        raised = node.op_type == "Cast" and inputs[0].dtype in _LOW
        fed = any(v.producer() in forward and v.dtype == FLOAT for v in inputs)
        if (raised or fed) and any(v.dtype == FLOAT for v in node.outputs):
            forward.add(node)
    both: set[ir.Node] = set()
    for scoped in reversed(nodes):
        node = scoped.node
        if node in forward and any(
            user in both or (user.op_type == "Cast" and user.outputs[0].dtype in _LOW)
            for value in node.outputs
            for user, _ in value.uses()
        ):
            both.add(node)
    return both
