"""Optimization as users call it: passes for a target, rules of theirs, verification."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Literal, get_args

from cannc.compiler.core.errors import GoldenMismatchError, UsageError, nearest
from cannc.compiler.core.target import Target
from cannc.compiler.core.unit import CompileUnit, ModelLike, load
from cannc.compiler.mixing import find_mix
from cannc.compiler.runtime.host_runner import HostRunner
from cannc.compiler.targeting import kernels, stage_target
from cannc.compiler.verifying import OutputVerifier, samples_for
from cannc.golden.compare import compare
from cannc.golden.sources import Inputs, Samples
from cannc.passes.fixed_inputs import fix_inputs
from cannc.passes.guard import Guard
from cannc.passes.optimize import optimize as run_optimize
from cannc.passes.optimize import to_float16
from cannc.passes.registry import Precision, check_level
from cannc.passes.rules.load import load_rules
from cannc.quant.reform import fuse_quantized
from cannc.quant.report import QuantReport

Verify = Literal["none", "final", "each"]


def optimize(
    model: ModelLike,
    level: str = "O2",
    soc: str | None = None,
    precision: Precision = "keep",
    verify: Verify | None = None,
    *,
    cann: str | None = None,
    passes: Sequence[str] = (),
    inputs: Inputs = None,
    fixed: Mapping[str, Any] | None = None,
    strict: bool = False,
    rules: Sequence[str | Path] = (),
    explain: bool = False,
) -> CompileUnit:
    """Simplify, fuse for the target, and set the precision.

    Args:
        model: Any model.
        level: ``O0`` keeps the graph but for what the target needs, ``O1`` conservative, ``O2``
            whole pipelines.
        soc: Full SoC name; default: the stamped target, else Ascend910B4.
        precision: ``keep``; ``fp16``: float16 storage with float32 accumulation; ``mixed``: that,
            but nodes that fail in half on `inputs` stay float32 (`cannc.compiler.mixing`).
        verify: ``none``; ``final``: compare result and input model; ``each``: compare after each
            pass that changed something, and undo a pass that breaks its tolerance. Default:
            ``each`` with `rules`, else ``none``.
        cann: CANN release.
        passes: ``+name`` and ``-name`` to add or leave out passes.
        inputs: What to calibrate and verify on; default: the model's examples, else random numbers.
        fixed: Input name -> numbers that it always has, e.g. ``{"sr": 16000}``; the input becomes
            a constant, and branches that depend on it are resolved.
        strict: A pass that would be undone is an error instead.
        rules: Python files with rewrite rules (`cannc.passes.rules`); they are executed.
        explain: Let the log tell the nearest miss where no pattern matches.

    Raises:
        GoldenMismatchError: ``OPT001`` verification missed its threshold, ``OPT003`` a pass did,
            ``OPT005`` mixed precision cannot meet it.
        UsageError: ``SOC011`` the model was prepared for another SoC; ``RULE001`` to ``RULE003``.
    """
    unit = load(model)
    target = stage_target(unit, soc, cann)
    chosen = _check("verify", verify or ("each" if rules else "none"), Verify, "OPT002")
    _check("precision", precision, Precision, "OPT004")
    own = load_rules(rules)
    if fixed:
        fix_inputs(unit, fixed)
        inputs = _without(inputs, fixed)
    needed = chosen != "none" or precision == "mixed"
    samples = samples_for(unit, inputs) if needed else None
    guard = None
    if samples is not None and chosen == "each":
        guard = Guard(OutputVerifier(unit.model, samples.feeds), strict=strict)
    result = run_optimize(
        unit,
        level=check_level(level),
        precision="keep" if precision == "mixed" else precision,
        target=target,
        runner=HostRunner(),
        may_use_kernel=kernels(target),
        select=passes,
        rules=own,
        guard=guard,
        explain=explain,
    )
    if samples is not None and precision == "mixed":
        result = _mixed(result, samples, target)
    if QuantReport.of(result) is not None:
        # Weights that were quantized before may now have a better form (D11).
        result = fuse_quantized(result, target=target, may_use_kernel=kernels(target))
    if samples is not None and chosen == "final":
        _verify_final(unit, result, samples)
    return result


def _mixed(unit: CompileUnit, samples: Samples, target: Target) -> CompileUnit:
    to_half = partial(to_float16, runner=HostRunner(), may_use_kernel=kernels(target))
    mix = find_mix(unit, to_half, samples)
    result = to_half(unit, mix.kept)
    result.log.append(mix.stage(sum(1 for _ in result.model.graph.all_nodes())))
    return result


def _check(option: str, value: str, known: Any, code: str) -> str:
    names = get_args(known)
    if value not in names:
        what = f"no {option} mode '{value}'{nearest(value, names)}"
        raise UsageError(code, what, where=f"--{option}", fix=f"use one of {', '.join(names)}")
    return value


def _without(inputs: Inputs, fixed: Mapping[str, Any]) -> Inputs:
    """Leave out numbers for inputs that are constants now."""
    if isinstance(inputs, Mapping):
        return {name: array for name, array in inputs.items() if name not in fixed}
    if inputs is None or isinstance(inputs, (str, Path)):
        return inputs
    return [{k: v for k, v in sample.items() if k not in fixed} for sample in inputs]


def _verify_final(before: CompileUnit, after: CompileUnit, samples: Samples) -> None:
    report = compare(before, after, inputs=samples.feeds, mode="accumulated")
    if report.verdict == "pass":
        return
    worst = report.first_divergence
    raise GoldenMismatchError(
        "OPT001",
        "the optimized model computes something else",
        where=worst.name if worst else "graph outputs",
        why="the verification after the last pass missed its threshold",
        fix="--verify each finds and undoes the pass; or report it with the model",
    )
