"""The smallest pair of models that shows an error: one layer of golden and of the candidate.

Both are cut at the values around the layer that both sides show, and get golden's numbers there, so
the pair shows the layer's isolated error.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import onnx_ir as ir
from onnx_ir.passes.common import RemoveUnusedFunctionsPass, RemoveUnusedNodesPass

from cannc.compiler.core.files import atomic_write
from cannc.compiler.core.onnx_io import write_model
from cannc.compiler.core.provenance import MODEL_KEY
from cannc.compiler.core.runner import Array
from cannc.compiler.core.unit import CompileUnit
from cannc.compiler.runtime.dtypes import infer_types
from cannc.golden.align import Pair, align
from cannc.golden.compare import compare
from cannc.golden.masks import narrowed
from cannc.golden.regions import reads, regions
from cannc.golden.runs import GoldenRun
from cannc.golden.verdict import Thresholds


@dataclass(frozen=True)
class Minimal:
    """A pair of models with inputs.

    Attributes:
        golden: The original, or a part of it.
        candidate: The same of the candidate.
        feeds: Inputs of both.
        layer: Original node that they show; empty for the whole models.
    """

    golden: ir.Model
    candidate: ir.Model
    feeds: Mapping[str, Array]
    layer: str

    def save(self, folder: Path) -> int:
        """Write ``golden.onnx``, ``candidate.onnx`` and ``inputs.npz``; return their bytes."""
        write_model(self.golden, folder / "golden.onnx")
        write_model(self.candidate, folder / "candidate.onnx")
        with atomic_write(folder / "inputs.npz") as stream:
            np.savez_compressed(stream, **self.feeds)  # type: ignore[arg-type]
        return sum(path.stat().st_size for path in folder.iterdir() if path.is_file())


def minimal_pair(
    golden: CompileUnit,
    candidate: CompileUnit,
    samples: Sequence[Mapping[str, Array]],
    bounds: Thresholds | None = None,
) -> Minimal:
    """Return the layer with the largest error of its own, if it alone misses the threshold.

    Otherwise, e.g. when many layers add a little each, the whole models.
    """
    infer_types(golden.model)
    infer_types(candidate.model)
    report = compare(golden, candidate, inputs=[*samples], mode="isolated", thresholds=bounds)
    pairs = align(golden, candidate).pairs
    for layer in report.culprits:
        if layer.severity <= 1.0:
            break
        minimal = _part(golden, candidate, pairs, layer.name, samples[0])
        if minimal is not None and _fails(minimal, bounds):
            return minimal
    return Minimal(_stripped(golden.model), _stripped(candidate.model), samples[0], "")


def _part(
    golden: CompileUnit,
    candidate: CompileUnit,
    pairs: Mapping[str, Pair],
    row: str,
    feeds: Mapping[str, Array],
) -> Minimal | None:
    """Cut one row's layer out of both models; None where the layouts differ around it."""
    plain = {n: p for n, p in pairs.items() if p.candidate.perm is None and p.golden.perm is None}
    if row not in plain:
        return None
    shown = {pair.candidate.name: pair for pair in plain.values()}
    region = regions(candidate.model, {*shown}).get(plain[row].candidate.name)
    if region is None:
        return None
    inside = {value for node in region.nodes for value in node.outputs}
    around = {v.name or "" for n in region.nodes for v in reads(n) if v not in inside}
    cut = [shown[name] for name in around if name in shown]
    arrays = GoldenRun(golden.model, [*cut, plain[row]])(feeds)
    there = {pair.candidate.name: pair.row.name for pair in cut}
    here = {pair.golden.name: pair.row.name for pair in cut}
    ours = cut_out(candidate.model, plain[row].candidate.name, there, arrays)
    theirs = cut_out(golden.model, plain[row].golden.name, here, arrays)
    # The same name on both sides, so that they are compared.
    ours.graph.outputs[0].name = theirs.graph.outputs[0].name
    wanted = {v.name for model in (ours, theirs) for v in model.graph.inputs}
    given = {
        **feeds,
        **{pair.row.name: _storable(arrays[pair.row.name], ours, pair) for pair in cut},
    }
    inputs = {name: array for name, array in given.items() if name in wanted}
    for model, other in ((ours, theirs), (theirs, ours)):
        _declare(model, other, wanted)
    return Minimal(theirs, ours, inputs, plain[row].row.node)


def cut_out(
    model: ir.Model, output: str, inputs: Mapping[str, str], arrays: Mapping[str, Array]
) -> ir.Model:
    """Return the part of a model that computes one value of its main graph.

    Args:
        model: Not changed; its values carry types.
        output: The value.
        inputs: Values at which to cut -> name of the graph input that takes their place.
        arrays: Name of such an input -> an array of the shape that it will have.
    """
    copy = _stripped(model)
    values = ir.convenience.create_value_mapping(copy.graph, include_subgraphs=False)
    for name, new in inputs.items():
        value = values[name]
        if value.is_graph_input():
            continue
        shape = ir.Shape(arrays[new].shape)
        value.name = f"{name}__uncut"
        fresh = ir.Value(name=new, type=value.type, shape=shape)
        for user, index in tuple(value.uses()):
            user.replace_input_with(index, fresh)
        copy.graph.inputs.append(fresh)
    copy.graph.outputs.clear()
    copy.graph.outputs.append(values[output])
    RemoveUnusedNodesPass()(copy)
    RemoveUnusedFunctionsPass()(copy)  # type: ignore[no-untyped-call]
    for value in [*copy.graph.inputs]:
        if not value.uses() and not value.is_graph_output():
            copy.graph.inputs.remove(value)
    return copy


def _storable(array: Array, model: ir.Model, pair: Pair) -> Array:
    """Return golden's numbers as the candidate's dtype holds them, in golden's dtype."""
    dtypes = {value.name: value.dtype for value in model.graph.inputs}
    dtype = dtypes.get(pair.row.name)
    if dtype is None or not dtype.is_floating_point():
        return array
    return narrowed(array, dtype.numpy()).astype(array.dtype)


def _declare(model: ir.Model, other: ir.Model, wanted: set[str | None]) -> None:
    """Give a model the inputs that only the other one reads: both are fed with the same."""
    here = {value.name for value in model.graph.inputs}
    for value in other.graph.inputs:
        if value.name in wanted and value.name not in here:
            model.graph.inputs.append(ir.Value(name=value.name, type=value.type, shape=value.shape))


def _stripped(model: ir.Model) -> ir.Model:
    """Return a copy without provenance: a part of a model is an original of its own."""
    copy = model.clone()
    copy.metadata_props.pop(MODEL_KEY, None)
    return copy


def _fails(minimal: Minimal, bounds: Thresholds | None) -> bool:
    report = compare(
        minimal.golden,
        minimal.candidate,
        inputs=minimal.feeds,
        mode="accumulated",
        thresholds=bounds,
    )
    return report.verdict == "fail"
