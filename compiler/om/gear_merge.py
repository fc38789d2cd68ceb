"""Reading gears back: which there are, and the one model that they are copies of.

The gears' own graphs are what is read, so a change to one gear is a change of what that gear runs.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from cannc.compiler.core.errors import ModelError
from cannc.compiler.om import gears as layout
from cannc.compiler.om import own
from cannc.compiler.om.attributes import prefixed, typed
from cannc.compiler.om.descriptors import is_tensor, unbind
from cannc.compiler.om.gears import Gear, GearKind, GearSet, suffix
from cannc.compiler.om.proto import GraphDef, ModelDef


def has_gears(definition: Any) -> bool:
    """Did `split` make this definition?"""
    return own.GEARS in definition.attr


def read_gears(definition: Any) -> GearSet | None:
    """Return the gears of a host artifact; None when it has none.

    Raises:
        ValueError: the graphs do not have the layout of `split`.
    """
    if not has_gears(definition):
        return None
    case = _case(definition)
    sizes = prefixed(case.attr, layout.SIZES)
    gears = []
    for number in range(len(case.subgraph_name)):
        row = sizes.get(str(number))
        if not isinstance(row, list) or not all(isinstance(size, int) for size in row):
            raise _broken(f"gear {number} has no sizes")
        gears.append(Gear(tuple(row), dict(_inputs(_gear_graph(definition, number), number))))
    if not gears or len(gears) != typed(definition.attr, own.GEARS, "i", 0):
        raise _broken(f"{len(gears)} gears are listed")
    order = typed(case.attr, layout.ORDER, "list:s", [])
    kind = GearKind(typed(case.attr, layout.KIND, "i", 0))
    return GearSet(kind, tuple(map(str, order)), tuple(gears))


def merge(definition: Any, gear: int) -> Any:
    """Return the definition as it was before `split`, made from the graphs of one gear.

    Raises:
        ValueError: the graphs do not have the layout of `split`.
    """
    merged = ModelDef(name=definition.name, version=definition.version)
    for key in definition.attr:
        merged.attr[key].CopyFrom(definition.attr[key])
    merged.graph.extend(_restored(definition, gear))
    return merged


def fingerprints(definition: Any) -> tuple[bytes, ...]:
    """Return one digest per gear; gears that differ in shapes only have the same.

    Raises:
        ValueError: the graphs do not have the layout of `split`.
    """
    found = []
    for gear in range(len(_case(definition).subgraph_name)):
        state = hashlib.sha256()
        for graph in _restored(definition, gear):
            state.update(graph.SerializeToString(deterministic=True))
        found.append(state.digest())
    return tuple(found)


def common_model(definition: Any, path: Path) -> Any:
    """Return the definition that all gears are copies of; one without gears is returned as it is.

    Raises:
        ModelError: ``OM011`` the gears are not copies of one model.
        ValueError: the graphs do not have the layout of `split`.
    """
    if not has_gears(definition):
        return definition
    marks = fingerprints(definition)
    odd = [number for number, mark in enumerate(marks) if mark != marks[0]]
    if odd:
        raise ModelError(
            "OM011",
            "the gears of the artifact hold different models",
            where=str(path),
            why=f"gear {odd[0]} and gear 0 differ in more than shapes; the file was edited",
            fix="run it (each gear runs its own graph), or compile it again",
        )
    return merge(definition, 0)


def gear_faults(definition: Any) -> Iterator[str]:
    """Yield what readers of gears would stumble over in a file that was just written."""
    if not has_gears(definition):
        return
    try:
        found = read_gears(definition)
        marks = fingerprints(definition)
    except ValueError as error:
        yield str(error)
        return
    assert found is not None
    if len(set(marks)) > 1:
        yield "the gears are not copies of one model"
    if len({gear.sizes for gear in found.gears}) < len(found.gears):
        yield "two gears have the same sizes"
    yield from (
        f"gear {number} has open dims: {gear}"
        for number, gear in enumerate(found.gears)
        if any(dim < 0 for dims in gear.inputs.values() for dim in dims)
    )
    if typed(_case(definition).attr, layout.BATCH_NUM, "i", 0) != len(found.gears):
        yield f"{layout.BATCH_NUM} is not {len(found.gears)}"


def main_graphs(definition: Any) -> list[Any]:
    """Return the graphs that the main graph of the model is stored in: one, or one per gear."""
    if not has_gears(definition):
        return list(definition.graph[:1])
    names = set(_case(definition).subgraph_name)
    return [graph for graph in definition.graph if graph.name in names]


def _case(definition: Any) -> Any:
    for op in definition.graph[0].op if definition.graph else ():
        if op.name == layout.CASE:
            return op
    raise _broken(f"there is no op '{layout.CASE}'")


def _gear_graph(definition: Any, number: int) -> Any:
    return _graph(definition, _case(definition).subgraph_name[number])


def _graph(definition: Any, name: str) -> Any:
    for graph in definition.graph:
        if graph.name == name:
            return graph
    raise _broken(f"there is no graph '{name}'")


def _inputs(graph: Any, number: int) -> Iterator[tuple[str, tuple[int, ...]]]:
    data = [op for op in graph.op if op.type == "Data" and own.CAPTURE not in op.attr]
    for op in sorted(data, key=lambda op: typed(op.attr, "index", "i", 0)):
        names = typed(op.attr, own.OUTPUTS, "list:s", [_cut(op.name, number)])
        if len(names) != 1 or len(op.output_desc) != 1:
            raise _broken(f"op '{op.name}' is no input")
        if is_tensor(op.output_desc[0]):  # sequences and optionals have no one shape
            yield str(names[0]), tuple(op.output_desc[0].shape.dim)


def _restored(definition: Any, gear: int) -> Iterator[Any]:
    """Yield the graphs of a gear, main graph first, under the names that they had."""
    graphs = {graph.name: graph for graph in definition.graph}
    end = suffix(gear)
    pending = [_case(definition).subgraph_name[gear]]
    for name in pending:
        if name not in graphs:
            raise _broken(f"graph '{name}' does not exist or is used twice")
        graph = GraphDef()
        graph.CopyFrom(graphs.pop(name))
        for op in graph.op:
            pending.extend(op.subgraph_name)
        _restore(graph, gear)
        yield graph
    own_graphs = [name for name in graphs if name.endswith(end)]
    if own_graphs:
        raise _broken(f"graph '{own_graphs[0]}' belongs to no op")


def _restore(graph: Any, gear: int) -> None:
    graph.name = _cut(graph.name, gear)
    graph.input[:] = [_cut_edge(edge, gear) for edge in graph.input]
    for op in graph.op:
        op.name = _cut(op.name, gear)
        op.input[:] = [_cut_edge(edge, gear) for edge in op.input]
        for names in (op.src_name, op.subgraph_name):
            names[:] = [_cut(name, gear) for name in names]
        for name in layout.GEAR_ATTRS:
            op.attr.pop(name, None)
        for desc in (*op.input_desc, *op.output_desc):
            unbind(desc)
            desc.attr.pop(layout.PARENT_INDEX, None)


def _cut(name: str, gear: int) -> str:
    end = suffix(gear)
    if not name.endswith(end):
        raise _broken(f"'{name}' does not end with '{end}'")
    return name[: -len(end)]


def _cut_edge(edge: str, gear: int) -> str:
    name, colon, index = edge.rpartition(":")
    return f"{_cut(name, gear)}:{index}" if colon else edge


def _broken(why: str) -> ValueError:
    return ValueError(f"the gears are broken: {why}")
