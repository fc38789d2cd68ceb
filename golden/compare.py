"""Comparison of the original model with a candidate, layer by layer.

Three runs give everything: golden in float32 without anybody's fusions, the candidate with the
numerics of its device (what **arrives** at each layer), and the candidate cut apart and fed with
golden's numbers (what each layer **adds**; `explode`). So a culprit differs from its victims.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import onnx_ir as ir

from cannc.compiler.core.collector import collector_paused
from cannc.compiler.core.errors import UsageError
from cannc.compiler.core.unit import CompileUnit, ModelLike
from cannc.compiler.runtime.dtypes import infer_types
from cannc.golden.align import align
from cannc.golden.details import details
from cannc.golden.facts import facts_of_models
from cannc.golden.layers import make_layers, warnings_of
from cannc.golden.report import GoldenReport, Mode
from cannc.golden.runs import Accumulated, GoldenRun, Isolated
from cannc.golden.saved import compare_saved
from cannc.golden.sources import Inputs, Samples, Saved, choose_inputs, open_side, sizes_of
from cannc.golden.verdict import Thresholds


def compare(
    golden: ModelLike,
    candidate: ModelLike,
    *,
    inputs: Inputs = None,
    mode: Mode = "both",
    thresholds: Thresholds | Mapping[str, float] | Iterable[str] | None = None,
    seed: int = 0,
) -> GoldenReport:
    """Compare a candidate with the original model.

    Args:
        golden: The original: a model (path, ``ModelProto``, ``onnx_ir.Model``, unit), or saved
            arrays (``.npz`` or a folder of ``.npy``).
        candidate: An ``.om``, a model of any stage, or saved arrays if golden is, too.
        inputs: Name -> array, a list of such samples, or an ``.npz``. By default the examples that
            came with the model, else random numbers for static shapes.
        mode: ``accumulated``, ``isolated`` or ``both``; saved arrays have only the former.
        thresholds: Bounds instead of the default rule (`verdict`), e.g. ``{"cosine": 0.9999}`` or
            ``["rel_l2=0.01"]``; ``PATTERN:METRIC`` sets one for some layers.
        seed: Seed of random inputs.

    Raises:
        UsageError: wrong arguments or inputs (``CMP001``, ``CMP003``, ``CMP004``, ``INP...``).
        ModelError: a side cannot be read or run (``CMP002``, ``CMP005``, ``RUN...``).
    """
    bounds = Thresholds.of(thresholds)
    reference, actual = open_side(golden), open_side(candidate)
    if isinstance(reference, Saved) and isinstance(actual, Saved):
        return compare_saved(reference, actual, bounds)
    if isinstance(reference, Saved) or isinstance(actual, Saved):
        raise UsageError(
            "CMP004",
            "arrays on one side and a model on the other",
            why="saved arrays do not say which numbers the model was fed with",
            fix="compare two models, or two sets of arrays",
        )
    samples = choose_inputs(inputs, [reference, actual], seed, sizes_of(golden, candidate))
    with collector_paused():
        return _compare_models(reference, actual, samples, mode, bounds)


def _compare_models(
    golden: CompileUnit,
    candidate: CompileUnit,
    samples: Samples,
    mode: Mode,
    bounds: Thresholds,
) -> GoldenReport:
    infer_types(candidate.model)
    alignment = align(golden, candidate)
    pairs = [*alignment.pairs.values()]
    reference = GoldenRun(golden.model, pairs)
    arriving = None if mode == "isolated" else Accumulated(candidate.model, pairs, bounds)
    added: Isolated | None = None
    shapes: dict[str, tuple[int, ...]] = {}
    for feeds in samples.feeds:
        expected = reference(feeds)
        shapes = shapes or {name: array.shape for name, array in expected.items()}
        if arriving is not None:
            arriving.add(feeds, expected)
        if mode != "accumulated":
            added = added or Isolated(candidate.model, pairs, bounds, expected)
            added.add(feeds, expected)
    ledgers = (arriving.ledger if arriving else None, added.ledger if added else None)
    layers = make_layers(alignment, shapes, _dtypes(candidate.model), ledgers)
    outputs = tuple(value.name or "" for value in golden.model.graph.outputs)
    facts = facts_of_models(golden, candidate, samples, mode, bounds)
    values = {name: pair.candidate.name for name, pair in alignment.pairs.items()}
    return GoldenReport(
        layers,
        outputs,
        facts,
        tuple(warnings_of(alignment, outputs)),
        details(candidate.model, added.ledger.gallery, values) if added else {},
    )


def _dtypes(model: ir.Model) -> dict[str, str]:
    values = ir.convenience.create_value_mapping(model.graph, include_subgraphs=False)
    dtypes = {name: v.dtype for name, v in values.items() if v.dtype is not None}
    text = ir.DataType.STRING
    return {n: "string" if d == text else d.numpy().name for n, d in dtypes.items()}
