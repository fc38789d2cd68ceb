"""Comparison of a device's dumps with the original model, on a machine without a device.

Accumulated: golden's run against what was dumped. Isolated: what golden's operators make of the
dumped inputs against the dumped outputs (D6), by one run of the original model that is cut apart at
all dumped values and fed with them.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import onnx_ir as ir

from cannc.compiler.core.errors import UsageError
from cannc.compiler.core.runner import Array
from cannc.compiler.core.unit import CompileUnit, ModelLike
from cannc.compiler.om.reader import OmFile
from cannc.compiler.runtime.artifact import OM_SUFFIX
from cannc.compiler.runtime.dtypes import infer_types
from cannc.golden.align import Alignment, Kind, Pair, Row, align
from cannc.golden.details import details
from cannc.golden.dumps.file import DTYPES
from cannc.golden.dumps.folder import DumpRun, open_runs
from cannc.golden.dumps.origins import DeviceOp, Dumped, device_ops, place
from cannc.golden.explode import explode
from cannc.golden.facts import facts_of_models
from cannc.golden.grades import grades
from cannc.golden.layers import make_layers, warnings_of
from cannc.golden.ledger import Ledger
from cannc.golden.masks import narrowed
from cannc.golden.report import GoldenReport
from cannc.golden.runs import Expected, GoldenRun
from cannc.golden.sources import Inputs, Samples, Saved, choose_inputs, open_side
from cannc.golden.taps import TappedRun
from cannc.golden.verdict import Grade, Thresholds

DEVICE = "device (tensor dumps)"


def compare_dumps(
    golden: ModelLike,
    candidate: ModelLike,
    folder: Path,
    *,
    om: Path | None = None,
    inputs: Inputs = None,
    thresholds: Thresholds | Mapping[str, float] | Iterable[str] | None = None,
    seed: int = 0,
) -> GoldenReport:
    """Compare dumps of a device with the original model.

    Args:
        golden: The original.
        candidate: The model that was given to ATC (with its provenance), or the device's ``.om``
            if that was the original itself.
        folder: Where the dumps are.
        om: The device's ``.om``, whose attributes say what was fused; dump files say it, too.
        inputs: What the device was fed with; see `compare`. Several samples stand for as many runs.
        thresholds: See `compare`.
        seed: Seed of random inputs.

    Raises:
        UsageError: ``CMP004`` saved arrays, ``CMP012``, ``CMP013`` runs and samples do not pair up.
        ModelError: ``CMP010``, ``CMP011`` unusable dumps, and what running golden raises.
    """
    bounds = Thresholds.of(thresholds)
    reference = _model(golden)
    if om is None and _is_device_om(candidate):
        om = Path(candidate)  # type: ignore[arg-type]
        compiled = reference.copy()
        compiled.source = om
    else:
        compiled = _model(candidate)
    samples = choose_inputs(inputs, [reference, compiled], seed)
    runs = _paired(open_runs(folder), len(samples.feeds), folder)
    ops = device_ops(OmFile.open(om)) if om else {}
    infer_types(reference.model)
    infer_types(compiled.model)
    return _Comparison(reference, compiled, runs, ops, bounds).report(samples)


class _Comparison:
    def __init__(
        self,
        golden: CompileUnit,
        compiled: CompileUnit,
        runs: Sequence[DumpRun],
        ops: Mapping[str, DeviceOp],
        bounds: Thresholds,
    ) -> None:
        self._golden, self._compiled, self._bounds = golden, compiled, bounds
        self._runs = [place(run, compiled.model.graph, ops) for run in runs]
        # What one run lacks is left out of all: figures of a row are over all samples.
        self._first = self._runs[0]
        shown = set.intersection(*(set(run.tensors) for run in self._runs))
        self._alignment = self._aligned(shown)
        self._pairs = [*self._alignment.pairs.values()]
        self._dtypes = {name: DTYPES.get(self._first.tensors[name].dtype) for name in shown}

    def report(self, samples: Samples) -> GoldenReport:
        reference = GoldenRun(self._golden.model, self._pairs)
        arriving = Ledger(self._pairs, self._grades(()), self._bounds)
        added: Ledger | None = None
        shapes: dict[str, tuple[int, ...]] = {}
        for feeds, run in zip(samples.feeds, self._runs, strict=True):
            expected = reference(feeds)
            shapes = shapes or {name: array.shape for name, array in expected.items()}
            arrays = self._read(run, expected, arriving)
            arriving.add(arrays.items(), expected)
            layer_by_layer = _LayerByLayer(self._golden.model, self._pairs, arrays)
            added = added or Ledger(self._pairs, self._grades(layer_by_layer.cuts), self._bounds)
            added.add(arrays.items(), layer_by_layer(feeds))
        dtypes = {name: kind.name for name, kind in self._dtypes.items() if kind is not None}
        layers = make_layers(self._alignment, shapes, dtypes, (arriving, added))
        outputs = tuple(value.name or "" for value in self._golden.model.graph.outputs)
        facts = facts_of_models(self._golden, self._compiled, samples, "both", self._bounds)
        notes = dict.fromkeys(note for run in self._runs for note in run.notes)
        warnings = (*warnings_of(self._alignment, outputs), *notes)
        values = {name: pair.candidate.name for name, pair in self._alignment.pairs.items()}
        more = details(self._compiled.model, added.gallery, values) if added else {}
        return GoldenReport(layers, outputs, replace(facts, device=DEVICE), warnings, more)

    def _aligned(self, shown: set[str]) -> Alignment:
        hidden: dict[str, Kind] = {}
        makers: dict[str, str] = {}
        for node in self._compiled.model.graph:
            maker = self._first.inside.get(node.name or "", "")
            for value in node.outputs:
                makers[value.name or ""] = maker
                if value.name not in shown:
                    hidden[value.name or ""] = _kind_of_hidden(value, maker)
        alignment = align(self._golden, self._compiled, hidden)
        rows = tuple(self._on_device(row, alignment, makers) for row in alignment.rows)
        named = {row.name: row for row in rows}
        pairs = {n: replace(p, row=named[n]) for n, p in alignment.pairs.items()}
        return replace(alignment, rows=rows, pairs=pairs)

    def _on_device(self, row: Row, alignment: Alignment, makers: Mapping[str, str]) -> Row:
        """Name the device's op instead of the compiled model's node."""
        pair = alignment.pairs.get(row.name)
        if pair is not None:
            op = self._first.makers.get(pair.candidate.name, "")
        else:
            op = self._first.inside.get(row.candidate_node, "") or makers.get(row.name, "")
        return replace(row, candidate_node=op) if op else row

    def _grades(self, cuts: Iterable[str]) -> dict[str, Grade]:
        """Return the grade of each value, given what it was dumped as."""
        found = grades(self._compiled.model, [*cuts])
        for name, kind in self._dtypes.items():
            if kind is not None:
                dumped = Grade.of(ir.DataType.from_numpy(kind))
                found[name] = max(found.get(name, dumped), dumped)
        return found

    def _read(self, run: Dumped, expected: Expected, ledger: Ledger) -> dict[str, Array]:
        """Return the dumped arrays as the compiled model has them; note those that are unusable."""
        arrays: dict[str, Array] = {}
        for pair in self._pairs:
            place = pair.candidate
            shape = place.stored(expected[pair.row.name]).shape
            try:
                array = run.tensors[place.name].read(shape)
            except ValueError as error:
                ledger.notes[pair.row.name] = str(error)
                continue
            arrays[place.name] = array.reshape(shape) if array.size == math.prod(shape) else array
        return arrays


class _LayerByLayer:
    """Golden's operators on dumped inputs.

    Attributes:
        cuts: Values of the compiled model that were fed.
    """

    def __init__(self, model: ir.Model, pairs: Sequence[Pair], arrays: Mapping[str, Array]) -> None:
        self._pairs = [pair for pair in pairs if pair.candidate.name in arrays]
        fed: dict[str, Array] = {}
        for pair in self._pairs:
            array, perm = arrays[pair.candidate.name], pair.candidate.perm
            if perm is None or len(perm) == array.ndim:
                fed[pair.golden.name] = pair.golden.stored(pair.candidate.original(array))
        exploded = explode(model, fed)
        self._feeds = {
            fresh.name or "": narrowed(fed[name], fresh.dtype.numpy())
            for name, fresh in exploded.inputs.items()
            if fresh.dtype is not None
        }
        self.cuts = [p.candidate.name for p in self._pairs if p.golden.name in exploded.inputs]
        names = [pair.golden.name for pair in self._pairs]
        self._run = TappedRun(exploded.model, names, half="widen", fuse=False)

    def __call__(self, feeds: Mapping[str, Array]) -> Expected:
        shown = dict(self._run({**feeds, **self._feeds}, allow_nan=True))
        return {p.row.name: p.golden.original(shown[p.golden.name]) for p in self._pairs}


def _kind_of_hidden(value: ir.Value, maker: str) -> Kind:
    if ir.convenience.get_const_tensor(value) is not None:
        return "folded"
    return "inside" if maker else "undumped"


def _model(source: ModelLike) -> CompileUnit:
    side = open_side(source)
    if isinstance(side, Saved):
        raise UsageError(
            "CMP004",
            "dumps are compared with a model, not with saved arrays",
            where=side.name,
            fix="name the original model, and the model that was compiled",
        )
    return side


def _is_device_om(source: ModelLike) -> bool:
    if not isinstance(source, (str, Path)) or Path(source).suffix.lower() != OM_SUFFIX:
        return False
    return not OmFile.open(Path(source)).is_host


def _paired(runs: list[DumpRun], samples: int, folder: Path) -> list[DumpRun]:
    """Return the run of each sample; one sample stands for the last run."""
    if samples == 1 or len(runs) == samples:
        return runs[-samples:]
    raise UsageError(
        "CMP013",
        f"{samples} samples and {len(runs)} runs",
        where=str(folder),
        fix="give one sample for each run, in the order of execution",
    )
