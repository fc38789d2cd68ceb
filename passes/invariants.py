"""What holds after every pass, whatever it does: checked by the manager, in linear time."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import onnx_ir as ir

from cannc.compiler.core.errors import PassError
from cannc.compiler.core.graphs import subgraphs, survey
from cannc.compiler.core.unit import CompileUnit

STANDARD_DOMAINS = frozenset({"", "ai.onnx", "ai.onnx.ml", "ai.onnx.preview.training"})

Interface = tuple[tuple[str | None, str, str], ...]


@dataclass(frozen=True)
class Before:
    """What a pass may not change, noted before it runs.

    Attributes:
        inputs: Name, type and shape of each graph input, in order; weights do not count (D25).
        outputs: The same of the graph outputs.
        undefined: Operators outside the standard domains that have no function.
    """

    inputs: Interface
    outputs: Interface
    undefined: frozenset[ir.OperatorIdentifier]

    @classmethod
    def of(cls, model: ir.Model) -> Before:
        """Note them for a model."""
        weights = model.graph.initializers
        inputs = [value for value in model.graph.inputs if value.name not in weights]
        return cls(_interface(inputs), _interface(model.graph.outputs), _undefined(model))


def check_after(pass_name: str, unit: CompileUnit, before: Before) -> Before:
    """Check a model that a pass has changed; return what the next pass may not change.

    Raises:
        PassError: ``PASS010`` with everything that is broken (at most ten are listed).
    """
    after = Before.of(unit.model)
    faults = list(_faults(unit, before, after))
    if faults:
        raise PassError(
            "PASS010",
            f"pass '{pass_name}' broke the graph",
            where="; ".join(faults[:10]),
            why="a pass may never do this, whatever the model looks like",
            fix=f"leave it out with --passes -{pass_name} and report it with the model",
        )
    return after


def _faults(unit: CompileUnit, before: Before, after: Before) -> Iterator[str]:
    if before.inputs != after.inputs:
        yield f"inputs changed from {before.inputs} to {after.inputs}"
    if before.outputs != after.outputs:
        yield f"outputs changed from {before.outputs} to {after.outputs}"
    for domain, name, _ in sorted(after.undefined - before.undefined):
        yield f"operator {domain}::{name} has no function"
    yield from _graph_faults(unit.model.graph, set(), set())
    yield from (f"lost track of '{value}'" for value in unit.provenance.lost(unit.model))


def _graph_faults(graph: ir.Graph, known: set[ir.Value], names: set[str]) -> Iterator[str]:
    """Yield breaches of single assignment and order; `known` and `names` are the outer ones.

    Both sets are restored before the end, so that nested graphs cost no copies.
    """
    mine: list[ir.Value] = []

    def define(value: ir.Value) -> bool:
        """Note a value; return whether its name is its own."""
        if value in known:
            return True
        mine.append(value)
        known.add(value)
        is_new = bool(value.name) and value.name not in names
        names.add(value.name or "")
        return is_new

    shared = [v for v in (*graph.inputs, *graph.initializers.values()) if not define(v)]
    for node in graph:
        for value in node.inputs:
            if value is not None and value not in known:
                yield f"node '{node.name}' reads '{value.name}' before it is produced"
        for _, inner in subgraphs(node):
            yield from _graph_faults(inner, known, names)
        shared += [value for value in node.outputs if not define(value)]
    yield from (f"value '{value.name}' has no name of its own" for value in shared)
    for value in graph.outputs:
        if value not in known:
            yield f"output '{value.name}' is produced by nothing"
    known.difference_update(mine)
    names.difference_update(value.name or "" for value in mine)


def _interface(values: Iterable[ir.Value]) -> Interface:
    return tuple((value.name, str(value.type), str(value.shape)) for value in values)


def _undefined(model: ir.Model) -> frozenset[ir.OperatorIdentifier]:
    foreign = {
        node.op_identifier()
        for surveyed in survey(model.graph)
        for node in surveyed.nodes
        if node.domain not in STANDARD_DOMAINS
    }
    return frozenset(foreign - model.functions.keys())
