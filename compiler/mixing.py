"""Mixed precision: which nodes stay float32, found on calibration inputs.

The whole graph goes to float16 and is compared, layer by layer, with itself in float32:

1. Nodes whose own work fails in half (they overflow, or their isolated error is over its bound)
   stay float32. One that still fails then fails by what it reads, so the nodes that make that
   stay, too (x + 4096 rounded to half leaves nothing of x to x + 4096 - 4096). Repeated until no
   more show up.
2. If an output still misses its threshold, the nodes that add most stay as well: the fewest that
   suffice, by bisection over the ranking.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from cannc.compiler.core.errors import GoldenMismatchError
from cannc.compiler.core.provenance import MODEL_KEY
from cannc.compiler.core.unit import CompileUnit, Stage
from cannc.golden.compare import compare
from cannc.golden.report import GoldenReport, Layer
from cannc.golden.sources import Samples
from cannc.golden.verdict import Thresholds

log = logging.getLogger(__name__)

STAGE = "mixed-precision"
OVERFLOW = "calibration: its numbers pass half's range"
ERROR = "calibration: its own error in half is too large"
READ = "calibration: what reads it fails on its numbers in half"
NEEDED = "calibration: the outputs need it"
_MOST_ROUNDS = 8

ToHalf = Callable[[CompileUnit, Mapping[str, str]], CompileUnit]
"""Returns a unit in float16, but for the nodes named, each with its reason."""


@dataclass(frozen=True)
class Mix:
    """What was decided.

    Attributes:
        kept: Nodes that stay float32 -> reason.
        notes: One line for each of them, with its figures.
        inputs: Where the calibration inputs came from.
    """

    kept: Mapping[str, str]
    notes: tuple[str, ...]
    inputs: str

    def stage(self, nodes: int) -> Stage:
        """Return the line of the history that tells it; `nodes` is the model's node count."""
        head = f"{len(self.kept)} of {nodes} nodes stay float32; calibrated on {self.inputs}"
        return Stage(STAGE, len(self.kept), nodes, nodes, notes=(head, *self.notes))


def find_mix(
    unit: CompileUnit, to_half: ToHalf, samples: Samples, bounds: Thresholds | None = None
) -> Mix:
    """Decide which nodes of a float32 model stay float32.

    Args:
        unit: The model as it would be if precision were kept; not changed.
        to_half: See `ToHalf`.
        samples: Calibration inputs.
        bounds: When an output, or a layer's isolated error, is too far off; default: `verdict`.

    Raises:
        GoldenMismatchError: ``OPT005`` the outputs miss their thresholds whatever stays float32.
    """
    search = _Search(_restarted(unit), to_half, samples, bounds or Thresholds())
    report = search.keep_what_fails()
    if report.verdict != "pass":
        search.keep_what_is_needed(report)
    return Mix(search.kept, tuple(search.notes), samples.origin)


def _restarted(unit: CompileUnit) -> CompileUnit:
    """Return a copy that is its own original, so that rows of a comparison are its own nodes."""
    model = unit.model.clone()
    model.metadata_props.pop(MODEL_KEY, None)
    copy = CompileUnit.of(model)
    copy.target = unit.target
    return copy


class _Search:
    """Collects nodes to keep."""

    def __init__(
        self, golden: CompileUnit, to_half: ToHalf, samples: Samples, bounds: Thresholds
    ) -> None:
        self.kept: dict[str, str] = {}
        self.notes: list[str] = []
        self._golden, self._to_half = golden, to_half
        self._samples, self._bounds = samples, bounds

    def keep_what_fails(self) -> GoldenReport:
        """Keep nodes that fail by themselves; return the last comparison."""
        for _ in range(_MOST_ROUNDS):
            report = self._compare(self.kept)
            failed = [layer for layer in report.culprits if _fails(layer)]
            again = {name for layer in failed if self._keeps(layer) for name in _names(layer)}
            if not self._keep(failed) and not self._keep_sources(again):
                break
        return report

    def keep_what_is_needed(self, report: GoldenReport) -> None:
        """Keep the fewest further nodes, largest isolated error first, so that outputs pass."""
        ranking = [layer for layer in report.culprits if not self._keeps(layer)]
        low, high = 0, len(ranking)
        if not self._passes(ranking):
            raise GoldenMismatchError(
                "OPT005",
                "no choice of float32 nodes keeps the outputs within their thresholds",
                where=", ".join(row.name for row in report.outputs if row.passed is False),
                why=f"with {len(self.kept) + len(ranking)} nodes in float32 they still differ",
                fix="set --precision keep, or give the outputs bounds that float16 can meet",
            )
        while high - low > 1:  # low fails, high passes
            middle = (low + high) // 2
            low, high = (low, middle) if self._passes(ranking[:middle]) else (middle, high)
        self._keep(ranking[:high], NEEDED)

    def _keep_sources(self, names: set[str]) -> bool:
        """Keep what makes the inputs of these nodes; say whether there was anything."""
        readers = [node for node in self._golden.model.graph.all_nodes() if node.name in names]
        makers = [v.producer() for node in readers for v in node.inputs if v is not None]
        fresh = {
            node.name: node.op_type
            for node in makers
            if node is not None and node.name and node.name not in self.kept
        }
        self.kept.update(dict.fromkeys(fresh, READ))
        self.notes += [f"{name} ({op_type}): {READ}" for name, op_type in fresh.items()]
        return bool(fresh)

    def _passes(self, more: list[Layer]) -> bool:
        kept = {**self.kept, **{name: NEEDED for layer in more for name in _names(layer)}}
        return self._compare(kept, accumulated_only=True).verdict == "pass"

    def _compare(self, kept: Mapping[str, str], *, accumulated_only: bool = False) -> GoldenReport:
        return compare(
            self._golden,
            self._to_half(self._golden, kept),
            inputs=self._samples.feeds,
            mode="accumulated" if accumulated_only else "both",
            thresholds=self._bounds,
        )

    def _keeps(self, layer: Layer) -> bool:
        return all(name in self.kept for name in _names(layer))

    def _keep(self, layers: list[Layer], reason: str = "") -> bool:
        """Keep what is not kept yet; say whether there was anything."""
        fresh = [layer for layer in layers if not self._keeps(layer)]
        for layer in fresh:
            why = reason or (OVERFLOW if _overflows(layer) else ERROR)
            self.kept.update({name: why for name in _names(layer) if name not in self.kept})
            self.notes.append(f"{layer.node} ({layer.op_type}): {_figures(layer)}")
            log.info("%s stays float32: %s", layer.node, why)
        return bool(fresh)


def _names(layer: Layer) -> tuple[str, ...]:
    return layer.stands_for or (layer.node,)


def _fails(layer: Layer) -> bool:
    return layer.added is not None and not layer.added.judgement.passed


def _overflows(layer: Layer) -> bool:
    return layer.isolated is not None and layer.isolated.overflows > 0


def _figures(layer: Layer) -> str:
    found = layer.isolated
    if found is None:
        return "no isolated error"
    if _overflows(layer):
        return f"{found.overflows} numbers overflow, golden reaches {found.golden_max:.3g}"
    return f"isolated relative L2 {found.rel_l2:.2e}, {layer.severity:.2f} of what is allowed"
