"""The toolchain as library calls: what ``import cannc`` offers. Nothing here prints.

Each stage takes a model in any form and returns a new unit; its argument is never changed.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from cannc.compiler.compiling import compile, compile_model
from cannc.compiler.core.errors import UsageError
from cannc.compiler.core.runner import Array
from cannc.compiler.core.shapes import infer_shapes
from cannc.compiler.core.target import Target
from cannc.compiler.core.unit import CompileUnit, ModelLike, load
from cannc.compiler.frontend.inputs import fix_shapes
from cannc.compiler.frontend.source import Dynamic, Source, call_source
from cannc.compiler.optimizing import optimize
from cannc.compiler.quantizing import DataOptions, Goal, Ranking
from cannc.compiler.runtime.feeding import prepare_feeds
from cannc.compiler.runtime.host_runner import HostRunner
from cannc.compiler.runtime.host_session import HostSession
from cannc.compiler.runtime.ports import input_ports
from cannc.compiler.runtime.repeat_runner import RepeatRunner
from cannc.compiler.splitting import split_model, write_split
from cannc.compiler.targeting import asked_target, kernels, stage_target
from cannc.op_support.checker import check as check_support
from cannc.op_support.report import SupportReport
from cannc.passes.fusion.npu_ops import refresh_npu_ops
from cannc.passes.split.choose import Request
from cannc.quant.calibration.load import Data
from cannc.quant.calibration.samples import DEFAULT_SAMPLES, Calibration
from cannc.quant.evaluation import refuse_overlap
from cannc.quant.quantize import quantize as run_quantize
from cannc.quant.statistics import MAX_BYTES

if TYPE_CHECKING:
    from cannc.compiler.frontend.pytorch import Sample

__all__ = [
    "check",
    "compile",
    "compile_model",
    "convert",
    "optimize",
    "quantize",
    "split",
    "stamped",
]


def convert(
    source: str | Path,
    *,
    inputs: Mapping[str, Array] | None = None,
    soc: str | None = None,
    input_shapes: Mapping[str, tuple[int, ...]] | None = None,
    dynamic: Dynamic | None = None,
    **offered: object,
) -> CompileUnit:
    """Bring a model in: export it if it is PyTorch, check it, name its nodes, start provenance.

    Args:
        source: ``x.onnx``, ``hf:DIR``, ``file.py:callable`` or ``pkg.mod:callable``. A callable
            returns ``(module, inputs)`` or ``(module, inputs, dynamic)``.
        inputs: Real inputs, name -> array. Replace the example inputs of the source.
        soc: Target to stamp.
        input_shapes: Input name -> static shape; -1 keeps a dimension.
        dynamic: Input name -> {axis: dimension name}; replaces what the source declares.
        **offered: Arguments for a callable source; it gets those that it declares.

    Returns:
        The unit, with its examples. A PyTorch export has been compared with PyTorch on them, and
        at another size of every dynamic dimension.

    Raises:
        CanncError: see `cannc.compiler.frontend`.
    """
    parsed = Source.parse(source)
    if parsed.kind == "onnx":
        unit = load(Path(parsed.location))
        _check_runs(unit, inputs, input_shapes)
    else:
        unit, samples = _export(parsed, inputs, dynamic, offered)
        prepare_feeds(input_ports(unit.model), unit.examples)
        _verify_export(unit, samples)
    if soc is not None:
        unit.target = Target.parse(soc)
    return unit


def check(
    model: ModelLike,
    soc: str | None = None,
    cann: str | None = None,
    *,
    registered: Sequence[str] = (),
) -> SupportReport:
    """Say what ATC would refuse or silently get wrong, node by node (all findings, not the first).

    Args:
        model: Any model.
        soc: Full SoC name; default: the stamped target, else Ascend910B4.
        cann: CANN release, e.g. ``8.0.0``.
        registered: Operators that you have ATC plugins for, as ``domain::opset::type``.

    Raises:
        UsageError: ``CLI012`` a name in `registered` of another form.
    """
    for name in registered:
        parts = name.split("::")
        if len(parts) != 3 or not all(parts) or not parts[1].isdecimal():
            raise UsageError(
                "CLI012",
                f"cannot read operator '{name}'",
                where="--registered",
                fix="DOMAIN::OPSET::TYPE, as the plugin registers it, e.g. my.domain::1::MyOp",
            )
    unit = load(model)
    return check_support(unit, asked_target(unit, soc, cann), registered=registered)


def split(
    model: ModelLike,
    layers_per_subgraph: int = 2,
    strategy: str = "memory_balanced",
    soc: str | None = None,
    *,
    cann: str | None = None,
    parts: int | None = None,
    cuts: Sequence[str] = (),
    input_shapes: Mapping[str, tuple[int, ...]] | None = None,
    out: str | Path | None = None,
) -> list[CompileUnit]:
    """Cut a model into parts that run one after the other; names of values stay.

    Args:
        model: Any model.
        layers_per_subgraph: At most this many layers per part; not used with `parts` or `cuts`.
        strategy: ``memory_balanced``, ``even``, or ``named`` (implied by `cuts`).
        soc: Full SoC name to stamp; default: the stamped target, else Ascend910B4.
        cann: CANN release.
        parts: Number of parts.
        cuts: Names of values, nodes or modules; the model is cut after each.
        input_shapes: Sizes for the memory estimate; default: those of the examples.
        out: Folder for the parts and ``pipeline.json``.

    Raises:
        UsageError: ``SPL001`` to ``SPL007``: it cannot be split that way.
    """
    by_layers = None if parts is not None or cuts else layers_per_subgraph
    request = Request(by_layers, parts, tuple(cuts), strategy)
    result = split_model(stamped(model, soc, cann), request, input_shapes)
    if out is not None:
        write_split(result, Path(out))
    return [part.unit for part in result.parts]


def quantize(
    model: ModelLike,
    scheme: str = "w8a16",
    soc: str | None = None,
    calib: Data | None = None,
    algo: str = "minmax",
    granularity: str = "channel",
    *,
    cann: str | None = None,
    keep: Sequence[str] = (),
    embeddings: bool = False,
    form: str = "auto",
    num_samples: int = DEFAULT_SAMPLES,
    tokenizer: str | Path | None = None,
    preprocessing: Mapping[str, object] | str | Path | None = None,
    max_memory: int = MAX_BYTES,
    min_token_accuracy: float | None = None,
    min_cosine: float | None = None,
    eval_data: Data | None = None,
    ranking: Ranking = "isolated",
    allow_overlap: bool = False,
) -> CompileUnit:
    """Store weights in few bits, in the form that the target's kernels take (D11).

    Args:
        model: Any model; its activation dtype stays as it is.
        scheme: ``w8a16``, ``w4a16``; ``-asym`` behind it for offsets.
        soc: Full SoC name; default: the stamped target, else Ascend910B4.
        calib: Calibration data, see `cannc.quant.calibration.load`; ``file.py:callable`` names a
            function that returns an iterable of samples.
        algo: How scales are chosen: ``minmax``, ``mse``, ``awq`` or ``gptq``.
        granularity: ``channel``, or ``group:SIZE``.
        cann: CANN release.
        keep: Weights to leave alone: ``first``, ``last``, names or patterns.
        embeddings: Quantize embedding tables too.
        form: ``auto``: what the target's kernels take; ``qdq``: DequantizeLinear, for other tools.
        num_samples: At most so many calibration samples are used.
        tokenizer: For prompts: a Hugging Face folder.
        preprocessing: For pictures: see `cannc.quant.calibration.images`.
        max_memory: Bytes for statistics of activations at a time.
        min_token_accuracy: Keep the fewest layers in float with which so many predictions stay.
        min_cosine: The same for the cosine of the outputs.
        eval_data: What that is measured on; other data than `calib`.
        ranking: Layers stay in float by their own error (``isolated``), or by what each does to
            the outputs (``end-to-end``, one evaluation per layer).
        allow_overlap: Let `eval_data` hold calibration samples.

    Raises:
        UsageError: ``QUANT001`` to ``QUANT006``, ``QEV001``, ``QEV002``, a wrong option.
        GoldenMismatchError: ``QEV003`` the accuracy cannot be reached.
        CanncError: ``CAL...`` data that does not fit; nothing is changed then.
    """
    unit = load(model)
    refresh_npu_ops(unit.model)
    target = stage_target(unit, soc, cann)
    goal = Goal.of(min_token_accuracy, min_cosine, ranking)
    options = DataOptions(num_samples, tokenizer, preprocessing)
    calibration = options.load(unit, calib) if calib is not None else None
    samples = _goal_samples(unit, goal, eval_data, options)
    if calibration is not None and samples is not None and not allow_overlap:
        refuse_overlap(calibration.digests, samples)

    def run(more_kept: Sequence[str]) -> CompileUnit:
        return run_quantize(
            unit,
            scheme=scheme,
            target=target,
            may_use_kernel=kernels(target),
            algo=algo,
            granularity=granularity,
            keep=[*keep, *more_kept],
            embeddings=embeddings,
            form=form,
            calibration=calibration,
            runner=RepeatRunner(),
            max_memory=max_memory,
        )

    full = run(())
    return full if goal is None or samples is None else goal.reach(unit, full, run, samples)


def _goal_samples(
    unit: CompileUnit, goal: Goal | None, data: Data | None, options: DataOptions
) -> Calibration | None:
    """Return the samples that a goal is measured on."""
    if (goal is None) != (data is None):
        raise UsageError(
            "QEV002",
            "an accuracy goal and the data to measure it on belong together",
            where="--eval",
            fix="give --eval DATA with --min-token-accuracy or --min-cosine",
        )
    return options.load(unit, data) if data is not None else None


def _export(
    source: Source,
    inputs: Mapping[str, Array] | None,
    dynamic: Dynamic | None,
    offered: Mapping[str, object],
) -> tuple[CompileUnit, list[Sample]]:
    from cannc.compiler.frontend.huggingface import load_folder
    from cannc.compiler.frontend.pytorch import as_example, export, import_torch

    torch = import_torch()
    if source.kind == "hf":
        example = load_folder(Path(source.location), inputs)
    else:
        where = f"{source.location}:{source.attribute}"
        example = as_example(call_source(source, **offered), where)
        if inputs:
            example.inputs = {name: torch.as_tensor(array) for name, array in inputs.items()}
    if dynamic is not None:
        example.dynamic = {name: dict(axes) for name, axes in dynamic.items()}
    return export(example)


def _verify_export(unit: CompileUnit, samples: list[Sample]) -> None:
    from cannc.compiler.frontend.pytorch import verify

    verify(unit, samples, HostRunner())


def _check_runs(
    unit: CompileUnit,
    inputs: Mapping[str, Array] | None,
    shapes: Mapping[str, tuple[int, ...]] | None,
) -> None:
    """Fix input shapes and, when inputs are given, see that the model runs on them."""
    if shapes:
        fix_shapes(unit.model, shapes)
        infer_shapes(unit.model)
    if inputs:
        unit.examples = dict(inputs)
        HostSession(unit.model).run(inputs, allow_nan=False)


def stamped(model: ModelLike, soc: str | None, cann: str | None) -> CompileUnit:
    """Load a model and stamp the target that a stage works for (D22)."""
    unit = load(model)
    unit.target = stage_target(unit, soc, cann)
    return unit
