"""``cannc bisect``: builds a model with some of its passes, float16 layers and quantized layers."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import onnx_ir as ir

from cannc.compiler.core.provenance import origins
from cannc.compiler.core.target import Target
from cannc.compiler.core.unit import CompileUnit, ModelLike, load
from cannc.compiler.runtime.host_runner import HostRunner
from cannc.golden.bisect import Choice, Found, Judge, bisect
from cannc.golden.extract import Minimal, minimal_pair
from cannc.golden.sources import Inputs, choose_inputs
from cannc.golden.verdict import Thresholds
from cannc.op_support.kernels import kernel_gap
from cannc.passes import registry
from cannc.passes.optimize import optimize, to_float16
from cannc.passes.registry import Precision, check_level
from cannc.quant.collect import collect
from cannc.quant.quantize import quantize
from cannc.quant.report import QuantReport

_NO_NUMBERS = frozenset({"Constant", "Shape", "Size"})


@dataclass(frozen=True)
class Plan:
    """What is done to a model.

    Attributes:
        target: SoC and CANN release.
        level: Optimization level.
        precision: ``keep`` or ``fp16``.
        scheme: Quantization scheme; empty for none.
    """

    target: Target = field(default_factory=Target)
    level: str = "O2"
    precision: Precision = "keep"
    scheme: str = ""


@dataclass(frozen=True)
class Bisection:
    """What was found.

    Attributes:
        found: The minimal set of choices.
        minimal: Models that show it; None when nothing fails.
    """

    found: Found
    minimal: Minimal | None


class Rebuilder:
    """Builds the model with any subset of the choices.

    Attributes:
        choices: All of them: passes that applied, nodes in float16, nodes with quantized weights.
    """

    def __init__(self, unit: CompileUnit, plan: Plan) -> None:
        """Build once with everything done, to see what there is to choose from."""
        self._unit, self._plan = unit, plan
        optimized = self._optimized(())
        applied = dict.fromkeys(stage.name for stage in optimized.log if stage.applied)
        # Preparation brings the model to the opset that everything else is written for.
        passes = [name for name in applied if name not in registry.PREPARE]
        self._passes = frozenset(passes)
        nodes = unit.provenance.nodes.values()
        half = [n.name for n in nodes if n.op_type not in _NO_NUMBERS]
        self.choices = (
            *(Choice("pass", name) for name in passes),
            *(Choice("fp16", name) for name in half if plan.precision == "fp16"),
            *(Choice("quant", name) for name in self._quantizable(optimized) if plan.scheme),
        )

    def __call__(self, chosen: frozenset[Choice]) -> CompileUnit:
        """Return the model with these choices only."""
        passes, half, quant = (
            {choice.name for choice in chosen if choice.kind == kind}
            for kind in ("pass", "fp16", "quant")
        )
        unit = self._optimized(sorted(self._passes - passes))
        if half:
            unit = self._to_half(unit, half)
        return self._quantized(unit, quant) if quant else unit

    def _optimized(self, left_out: Sequence[str]) -> CompileUnit:
        return optimize(
            self._unit,
            level=check_level(self._plan.level),
            precision="keep",
            target=self._plan.target,
            runner=HostRunner(),
            may_use_kernel=self._kernel,
            select=[f"-{name}" for name in left_out],
        )

    def _to_half(self, unit: CompileUnit, half: set[str]) -> CompileUnit:
        others = (node.name or "" for node in unit.model.graph if _is_other(node, half))
        keep = dict.fromkeys(others, "left out")
        return to_float16(unit, keep, runner=HostRunner(), may_use_kernel=self._kernel)

    def _quantized(self, unit: CompileUnit, quant: set[str]) -> CompileUnit:
        uses = collect(unit.model).uses
        keep = [use.node.name or "" for use in uses if _is_other(use.node, quant)]
        if len(keep) == len(uses):
            return unit
        return quantize(
            unit,
            scheme=self._plan.scheme,
            target=self._plan.target,
            may_use_kernel=self._kernel,
            keep=keep,
        )

    def _quantizable(self, optimized: CompileUnit) -> Iterator[str]:
        """Yield the original nodes whose weights would be quantized."""
        if not self._plan.scheme:
            return
        full = quantize(
            optimized,
            scheme=self._plan.scheme,
            target=self._plan.target,
            may_use_kernel=self._kernel,
        )
        report = QuantReport.of(full)
        rows = {row.node for row in report.quantized} if report else set()
        weighted = [use.node for use in collect(optimized.model).uses if use.node.name in rows]
        yield from dict.fromkeys(origins(node)[0] for node in weighted if origins(node))

    def _kernel(self, op_type: str, dtype: ir.DataType | None) -> str | None:
        return kernel_gap(op_type, dtype, self._plan.target)


def _is_other(node: ir.Node, chosen: set[str]) -> bool:
    """Does the node do the work of original nodes, none of which was chosen?"""
    names = origins(node)
    return bool(names) and chosen.isdisjoint(names)


def find_fault(
    model: ModelLike,
    plan: Plan,
    *,
    inputs: Inputs = None,
    thresholds: Mapping[str, float] | None = None,
    max_trials: int = 300,
    watch: Callable[[int], None] | None = None,
) -> Bisection:
    """Find what breaks a threshold when a model is built.

    Args:
        model: The original.
        plan: What is done to it.
        inputs: What to feed; see `cannc.golden.compare.compare`.
        thresholds: When a graph output fails; see there.
        max_trials: Builds after which the search ends.
        watch: Called with the number of builds after each one.

    Raises:
        UsageError: ``BIS001`` the original fails with nothing done; ``CMP003`` no inputs.
        ModelError: the original cannot be run.
    """
    unit = load(model)
    bounds = Thresholds.of(thresholds)
    samples = choose_inputs(inputs, [unit], seed=0).feeds
    rebuild, judge = Rebuilder(unit, plan), Judge(unit, samples, bounds)
    count = 0

    def fails(candidate: CompileUnit) -> bool:
        nonlocal count
        count += 1
        if watch is not None:
            watch(count)
        return judge.fails(candidate)

    found = bisect(rebuild.choices, rebuild, fails, max_trials=max_trials)
    if not found.choices:
        return Bisection(found, None)
    broken = rebuild(frozenset(found.choices))
    return Bisection(found, minimal_pair(unit, broken, samples, bounds))


def replay(folder: Path, thresholds: Sequence[str]) -> str:
    """Return the command that shows the error of the pair saved in `folder` again."""
    bounds = "".join(f" --threshold {text}" for text in thresholds)
    files = (folder / "golden.onnx", folder / "candidate.onnx")
    return f"cannc compare {files[0]} {files[1]} --inputs {folder / 'inputs.npz'}{bounds}"
