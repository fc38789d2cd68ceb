"""Splitting a unit into parts that run one after the other and together equal the whole."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import onnx_ir as ir

from cannc.compiler.core.collector import collector_paused
from cannc.compiler.core.graphs import node_count
from cannc.compiler.core.unit import CompileUnit, Stage
from cannc.passes.inference import refresh_types
from cannc.passes.split.choose import Request, choose_cuts
from cannc.passes.split.costs import Costs, size_of
from cannc.passes.split.history import share_provenance
from cannc.passes.split.layers import Layer
from cannc.passes.split.line import Line
from cannc.passes.split.parts import Interface, interfaces, part_model


@dataclass(frozen=True)
class Part:
    """One part and what is known about it.

    Attributes:
        unit: The part as a model of its own.
        name: ``part_00``, ``part_01``, ...
        layers: Names of the layers that it holds, as far as layers were found.
        weight_bytes: Bytes of its weights, those that other parts have, too, included.
        activation_bytes: Estimated peak of its activations, inputs and outputs included.
        received_bytes: Estimated bytes that it gets from earlier parts.
    """

    unit: CompileUnit
    name: str
    layers: tuple[str, ...]
    weight_bytes: int
    activation_bytes: int
    received_bytes: int


@dataclass(frozen=True)
class Shared:
    """A weight that several parts have a copy of.

    Attributes:
        name: Name of the stored constant.
        bytes: Its size.
        parts: Indices of the parts.
    """

    name: str
    bytes: int
    parts: tuple[int, ...]


@dataclass(frozen=True)
class Split:
    """A model in parts.

    Attributes:
        strategy: How the cuts were chosen.
        parts: In the order in which they run.
        shared: Weights that were copied into several parts.
        inputs: Inputs of the whole model, in order.
        outputs: Outputs of the whole model, in order.
    """

    strategy: str
    parts: tuple[Part, ...]
    shared: tuple[Shared, ...]
    inputs: tuple[ir.Value, ...]
    outputs: tuple[ir.Value, ...]


def split_unit(
    unit: CompileUnit, request: Request, shapes: Mapping[str, tuple[int, ...]] | None = None
) -> Split:
    """Split a unit.

    Args:
        unit: Any unit; not changed.
        request: How to split.
        shapes: Value name -> shape of that value for some sizes of the inputs; tells what values
            cost, and the rank of those that shape inference cannot tell about.

    Raises:
        UsageError: ``SPL001`` to ``SPL007``, see `Request` and `choose_cuts`.
    """
    with collector_paused():
        return _split(unit, request.checked(), shapes or {})


def _split(unit: CompileUnit, request: Request, shapes: Mapping[str, tuple[int, ...]]) -> Split:
    started = time.perf_counter()
    whole = unit.copy()
    _complete_shapes(whole.model, shapes)
    line = Line(whole.model)
    costs = Costs(line, shapes)
    cuts, layers = choose_cuts(line, costs, whole.provenance, request)
    faces = interfaces(line, cuts)
    width = max(2, len(str(len(faces) - 1)))
    names = [f"part_{index:0{width}}" for index in range(len(faces))]
    models = [part_model(line, face, name) for face, name in zip(faces, names, strict=True)]
    records = share_provenance(whole.provenance, whole.model, models)
    shared = _shared(faces)
    stage = Stage(
        "split",
        applied=len(models),
        nodes_before=node_count(whole.model),
        nodes_after=sum(node_count(model) for model in models),
        seconds=time.perf_counter() - started,
        notes=tuple(_notes(shared)),
    )
    parts = []
    edges = [0, *cuts, len(line.nodes)]
    for index, (model, record) in enumerate(zip(models, records, strict=True)):
        weights, activations = costs.memory(edges[index], edges[index + 1])
        arriving = [v for v in faces[index].inputs if v.producer() is not None]
        parts.append(
            Part(
                unit=_unit_of(whole, model, stage, CompileUnit(model, record)),
                name=names[index],
                layers=tuple(_inside(layers, edges[index], edges[index + 1])),
                weight_bytes=weights,
                activation_bytes=activations,
                received_bytes=sum(size_of(v, shapes) for v in arriving),
            )
        )
    graph = whole.model.graph
    fed = tuple(v for v in graph.inputs if not v.is_initializer())
    return Split(request.strategy, tuple(parts), shared, fed, tuple(graph.outputs))


def _complete_shapes(model: ir.Model, shapes: Mapping[str, tuple[int, ...]]) -> None:
    """Infer shapes; what stays without a rank keeps the declared shape or gets the known rank."""
    declared = {value: value.shape for node in model.graph for value in node.outputs}
    refresh_types(model)
    for value, shape in declared.items():
        known = shapes.get(value.name or "")
        if value.shape is None and shape is not None:
            value.shape = shape
        elif value.shape is None and known is not None:
            value.shape = ir.Shape([None] * len(known))


def _unit_of(whole: CompileUnit, model: ir.Model, stage: Stage, bare: CompileUnit) -> CompileUnit:
    """Fill in what a part inherits; its examples only where they are complete."""
    fed = [v.name or "" for v in model.graph.inputs if not v.is_initializer()]
    complete = all(name in whole.examples for name in fed)
    return replace(
        bare,
        target=whole.target,
        log=[*whole.log, stage],
        examples={name: whole.examples[name] for name in fed} if complete else {},
        source=whole.source,
    )


def _inside(layers: Sequence[Layer], start: int, end: int) -> list[str]:
    """Return the layers most of which lie in [start, end)."""
    return [
        layer.name
        for layer in layers
        if sum(start <= place < end for place in layer.places) * 2 > len(layer.places)
    ]


def _shared(faces: Sequence[Interface]) -> tuple[Shared, ...]:
    holders: dict[ir.Value, list[int]] = {}
    for index, face in enumerate(faces):
        for value in face.stored:
            holders.setdefault(value, []).append(index)
    return tuple(
        Shared(value.name or "", size_of(value, {}), tuple(parts))
        for value, parts in holders.items()
        if len(parts) > 1
    )


_SMALL_BYTES = 1024


def _notes(shared: Sequence[Shared]) -> list[str]:
    """Tell about copies that cost something; shapes and scalars are not worth a line."""
    return [
        f"{copy.name} ({copy.bytes} bytes) is stored in parts {', '.join(map(str, copy.parts))}"
        for copy in shared
        if copy.bytes > _SMALL_BYTES
    ]
