"""The `Runner` that passes use to fold constants and to verify rewrites."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import onnx_ir as ir
from onnx_ir.passes.common import RemoveUnusedNodesPass

from cannc.compiler.core.runner import Array
from cannc.compiler.runtime.host_session import HostSession, with_outputs


class HostRunner:
    """Runs a model once with the numerics of the simulated device; see `core.runner.Runner`."""

    def run(
        self, model: ir.Model, feeds: Mapping[str, Array], fetches: Sequence[str]
    ) -> dict[str, Array]:
        """Run `model` once and return the named values, in the order of `fetches`."""
        part = _part_for(model, fetches)
        needed = {value.name for value in part.graph.inputs}
        session = HostSession(part)
        results = session.run({name: array for name, array in feeds.items() if name in needed})
        return {name: results[name] for name in fetches}


def _part_for(model: ir.Model, fetches: Sequence[str]) -> ir.Model:
    """Return a copy with only what the fetched values depend on, inputs included."""
    copy = with_outputs(model, fetches)
    RemoveUnusedNodesPass()(copy)
    for value in [*copy.graph.inputs]:
        if not value.uses() and not value.is_graph_output():
            copy.graph.inputs.remove(value)
    return copy
