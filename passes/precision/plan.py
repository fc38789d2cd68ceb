"""Which nodes stay float32, and in which dtype each value is therefore stored."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

import onnx_ir as ir

from cannc.compiler.core.graphs import Scoped, subgraphs, walk
from cannc.passes.base import MayUseKernel
from cannc.passes.pattern import constant_of
from cannc.passes.precision import index_paths, islands
from cannc.passes.precision.slots import CONTROL_FLOW, FLOAT, HALF, SlotTable, carried

MOVERS = frozenset(
    {
        "Cast",
        "CastLike",
        "Concat",
        "Expand",
        "Flatten",
        "Gather",
        "Identity",
        "Reshape",
        "Slice",
        "Split",
        "Squeeze",
        "Tile",
        "Transpose",
        "Unsqueeze",
    }
)
"""Nodes that only move numbers: they follow the dtype of their neighbours."""
ANY_DTYPE = frozenset({"Cast", "Shape", "Size"})
"""Nodes that take their input in whatever dtype it is stored."""
UNKNOWN = "operators without a known definition"
NO_KERNEL = "fused operators without a float16 kernel on the target"
BETWEEN = "only moves numbers between float32 places"


@dataclass
class Plan:
    """The decision for every float32 value of a model.

    Attributes:
        table: What operators allow.
        border: Inputs and outputs of the model that keep float32.
        half_inputs: Inputs of the model that become float16, when its interface does.
        kept: Nodes that compute in float32 -> the reason.
        groups: Carried values (sequences, branches, loops) -> all that share its dtype.
        single: Values whose whole group stays float32.
    """

    table: SlotTable
    border: frozenset[ir.Value]
    half_inputs: frozenset[ir.Value]
    kept: dict[ir.Node, str] = field(default_factory=dict)
    groups: dict[ir.Value, list[ir.Value]] = field(default_factory=dict)
    single: set[ir.Value] = field(default_factory=set)

    @classmethod
    def of(
        cls,
        model: ir.Model,
        table: SlotTable,
        may_use_kernel: MayUseKernel,
        *,
        keep: Mapping[str, str] | None = None,
        half_io: bool = False,
    ) -> Plan:
        """Decide; `keep` names nodes that the caller wants in float32, and why."""
        graph = model.graph
        interface = (*graph.inputs, *graph.outputs)
        border = frozenset(v for v in interface if not half_io or _is_container(v))
        inputs = frozenset(v for v in graph.inputs if not v.is_initializer())
        plan = cls(table, border, inputs - border)
        nodes = list(walk(model.graph))
        fused = [s.node for s in nodes if s.node.domain == "npu"]
        reasons = [
            *_asked(nodes, keep or {}),
            (index_paths.AUTHORED, index_paths.authored(nodes)),
            (index_paths.REASON, index_paths.find(nodes, table)),
            *islands.find(nodes),
            (NO_KERNEL, {n for n in fused if may_use_kernel(n.op_type, HALF) is not None}),
            (UNKNOWN, {s.node for s in nodes if plan._unknown(s.node)}),
        ]
        for reason, found in reasons:
            for node in found:
                floats = any(v.dtype == FLOAT for v in _values(node))
                if floats and (node.op_type not in CONTROL_FLOW or reason == UNKNOWN):
                    plan.kept.setdefault(node, reason)
        plan._keep_bodies()
        plan._tie(nodes)
        plan._settle(nodes)
        plan._spread_to_movers(nodes)
        return plan

    def stores_half(self, value: ir.Value) -> bool:
        """Say whether the value, float32 so far, will be computed or carried as float16.

        Inputs of a model whose interface stays float32 are never, nor are constants: what reads
        them gets a cast or a copy.
        """
        if value.dtype != FLOAT:
            return False
        node = value.producer()
        if node is None:
            return value in self.half_inputs or (self.carries_half(value))
        if node.op_type in CONTROL_FLOW or _is_container(value):
            return self.carries_half(value)
        if node in self.kept:
            return False
        slots = self.table.of(node)
        return slots is not None and slots.outputs[value.index() or 0]

    def carries_half(self, value: ir.Value) -> bool:
        """Say whether the value crosses the border of a branch or loop, or a sequence, as half."""
        return value in self.groups and value not in self.single

    def wants_half(self, node: ir.Node, index: int) -> bool | None:
        """Say what a float32 input should come in: half, float32, or either (None)."""
        if node.op_type in ANY_DTYPE:
            return None
        if node in self.kept:
            return False
        if node.op_type in CONTROL_FLOW:
            return self._operand(node, index)
        slots = self.table.of(node)
        return slots is not None and slots.inputs[index]

    def counts(self) -> Counter[str]:
        """Return reason -> number of nodes kept for it, but for those that only follow."""
        return Counter(reason for reason in self.kept.values() if reason != BETWEEN)

    # -- inside --------------------------------------------------------------------------------

    def _unknown(self, node: ir.Node) -> bool:
        if node.op_type in CONTROL_FLOW and not _is_scan8(node, self.table):
            return False
        return any(True for _ in subgraphs(node)) or self.table.of(node) is None

    def _operand(self, node: ir.Node, index: int) -> bool:
        """A carried operand of a Loop or Scan comes in what its body input stores."""
        (_, body), *_ = subgraphs(node)
        return self.stores_half(body.inputs[index])

    def _tie(self, nodes: list[Scoped]) -> None:
        for scoped in nodes:
            node = scoped.node
            if node in self.kept:
                continue
            if node.op_type in CONTROL_FLOW:
                for group in carried(node):
                    self._unite(group)
            self._unite(v for v in _values(node) if _is_container(v))

    def _unite(self, values: Iterable[ir.Value]) -> None:
        merged: list[ir.Value] = []
        for value in values:
            if value.dtype == FLOAT and value not in merged:
                merged += [v for v in self.groups.get(value, [value]) if v not in merged]
        for value in merged:
            self.groups[value] = merged

    def _keep_bodies(self) -> None:
        """Keep all that stands inside a body whose node is not understood."""
        for owner, reason in list(self.kept.items()):
            for _, body in subgraphs(owner):
                for scoped in walk(body):
                    self.kept.setdefault(scoped.node, reason)

    def _settle(self, nodes: list[Scoped]) -> None:
        """Leave groups float32 that touch the interface as sequences, or a kept node."""
        border = set(self.border)
        for node in self.kept:
            border.update(v for v in _values(node) if _is_container(v))
        for value in border & set(self.groups):
            if _is_container(value):
                self.single.update(self.groups[value])
        for scoped in nodes:
            node = scoped.node
            touches = any(v in self.single and _is_container(v) for v in _values(node))
            if touches and node.op_type not in CONTROL_FLOW:
                self.kept.setdefault(node, "sequences at the model's interface")

    def _spread_to_movers(self, nodes: list[Scoped]) -> None:
        """Keep nodes that only carry float32 from one float32 place to another: no cast pair."""
        wanted: set[ir.Node] = set()
        for scoped in reversed(nodes):
            node = scoped.node
            if node.op_type in MOVERS and node.domain == "" and self._only_single(node, wanted):
                wanted.add(node)
        for scoped in nodes:
            node = scoped.node
            if node in wanted and node not in self.kept and self._fed_single(node):
                self.kept[node] = BETWEEN

    def _only_single(self, node: ir.Node, wanted: set[ir.Node]) -> bool:
        (value, *_rest) = node.outputs
        if value.dtype != FLOAT or any(_is_container(v) for v in _values(node)):
            return False
        outer = all(v in self.border for v in node.outputs if v.is_graph_output())
        uses = [use for v in node.outputs for use in v.uses()]
        return outer and all(
            user in wanted or self.wants_half(user, index) is False for user, index in uses
        )

    def _fed_single(self, node: ir.Node) -> bool:
        fed = [v for v in node.inputs if v is not None and constant_of(v) is None]
        return not any(v.dtype == FLOAT and self.stores_half(v) for v in fed)


def _asked(nodes: list[Scoped], keep: Mapping[str, str]) -> Iterator[tuple[str, set[ir.Node]]]:
    for reason in dict.fromkeys(keep.values()):
        yield reason, {s.node for s in nodes if keep.get(s.node.name or "") == reason}


def _values(node: ir.Node) -> Iterator[ir.Value]:
    yield from (v for v in node.inputs if v is not None)
    yield from node.outputs


def _is_container(value: ir.Value) -> bool:
    return isinstance(value.type, (ir.SequenceType, ir.OptionalType))


def _is_scan8(node: ir.Node, table: SlotTable) -> bool:
    schema = table.schema(node)
    return node.op_type == "Scan" and schema is not None and schema.since_version < 9
