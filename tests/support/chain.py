"""Running the parts of a split model by hand: values are known by their names."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np
import onnx_ir as ir
from tests.support.runner import run_plain

from cannc.compiler.core.graphs import all_graphs
from cannc.compiler.core.runner import Array
from cannc.compiler.core.unit import CompileUnit
from cannc.compiler.runtime.host_session import HostSession

Run = Callable[[ir.Model, Mapping[str, Array]], Mapping[str, Array]]


def run_half(model: ir.Model, feeds: Mapping[str, Array]) -> Mapping[str, Array]:
    """Run with the device's float16 (D1), nothing fused."""
    return HostSession(model, fuse=False).run(feeds)


def run_parts(
    parts: Sequence[CompileUnit], feeds: Mapping[str, Array], run: Run = run_plain
) -> dict[str, Array]:
    """Return all values that parts take and give, each part fed by name."""
    values = dict(feeds)
    for part in parts:
        taken = [v for v in part.model.graph.inputs if not v.is_initializer()]
        values.update(run(part.model, {v.name or "": values[v.name or ""] for v in taken}))
    return values


def assert_equals_whole(
    whole: CompileUnit,
    parts: Sequence[CompileUnit],
    feeds: Mapping[str, Array],
    run: Run = run_plain,
) -> None:
    """The parts give the outputs of the whole bit for bit, and every original value has a fate."""
    expected, actual = run(whole.model, feeds), run_parts(parts, feeds, run)
    for name, array in expected.items():
        assert actual[name].dtype == array.dtype, name
        np.testing.assert_array_equal(actual[name], array, err_msg=name)
    for part in parts:
        assert part.provenance.lost(part.model) == []
        assert part.provenance.digest == whole.provenance.digest
    kinds = {fate.value: fate.kind for fate in whole.fates()}
    told: dict[str, set[str]] = {}
    for part in parts:
        for fate in part.fates():
            told.setdefault(fate.value, set()).add(fate.kind)
    assert told == {value: {kind} for value, kind in kinds.items()}


def names(values: Sequence[ir.Value]) -> list[str | None]:
    """Return the names of values."""
    return [value.name for value in values]


def held(part: CompileUnit) -> set[str]:
    """Return the names of all weights of a part, nested graphs included."""
    return {name for _, graph in all_graphs(part.model.graph) for name in graph.initializers}
