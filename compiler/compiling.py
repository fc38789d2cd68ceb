"""From a model to the ``.om`` artifact."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Literal

from cannc.compiler.backends.atc.precision import choose
from cannc.compiler.backends.atc.resolve import resolve, soc_of
from cannc.compiler.backends.base import CompileOptions, CompileResult, ShapeMode
from cannc.compiler.backends.select import FALLBACK_NOTE, select_backend
from cannc.compiler.core.quantities import parse_bytes
from cannc.compiler.core.unit import ModelLike, load
from cannc.compiler.memory.planner import Optimizer
from cannc.compiler.optimizing import optimize
from cannc.compiler.targeting import compile_target
from cannc.passes.fusion.npu_ops import refresh_npu_ops

Precision = Literal["keep", "fp16"]


def compile(
    model: ModelLike,
    out: str | Path,
    backend: str = "auto",
    soc: str | None = None,
    *,
    cann: str | None = None,
    precision: Precision | None = None,
    require_support: bool = False,
    atc_options: Mapping[str, object] | None = None,
    atc: str | Path | None = None,
    timeout_s: float | None = None,
    gears: Mapping[str, Sequence[int]] | None = None,
    shapes: ShapeMode | None = None,
    golden: bool = False,
    max_workspace: int | str | None = None,
    memory_optimizer: Optimizer = "none",
) -> Path:
    """Write the ``.om`` artifact; return its path. See `compile_model` for the details.

    Args:
        model: Any model.
        out: Path of the artifact.
        backend: ``atc``, ``host``, or ``auto``: atc where it is installed, else host.
        soc: Full SoC name; default: ``soc_version`` of `atc_options`, else the stamped target.
        cann: CANN release; default: the one that is installed, for atc.
        precision: ``keep`` (the default) or ``fp16``.
        require_support: Refuse nodes that ATC would refuse, on the host too.
        atc_options: ATC's options by flag; those that shape the model act on the host too.
        atc: Where ATC is, instead of looking for it.
        timeout_s: Seconds after which ATC is stopped.
        gears: Dimension name -> its sizes; gear i takes the i-th size of every name.
        shapes: Refuse sizes that do not come to this: ``fixed``, ``range`` or ``gears``.
        golden: Build for layer-by-layer comparison on a device: ATC's fusions off.
        max_workspace: What tensors of a run may take, in bytes or as ``2GB``.
        memory_optimizer: ``recompute``: cheap values may be computed twice to keep it.
    """
    options = CompileOptions(
        precision=precision,
        require_support=require_support,
        atc_options=atc_options or {},
        atc=Path(atc) if atc is not None else None,
        timeout_s=timeout_s,
        gears=gears or {},
        shapes=shapes,
        golden=golden,
        max_workspace=parse_bytes(str(max_workspace), "max_workspace") if max_workspace else None,
        memory_optimizer=memory_optimizer,
    )
    return compile_model(model, Path(out), backend, soc, cann, options).path


def compile_model(
    model: ModelLike,
    out: Path,
    backend: str,
    soc: str | None,
    cann: str | None,
    options: CompileOptions,
) -> CompileResult:
    """Compile and return what the backend reports.

    Raises:
        UsageError: ``SOC010`` no target given or stamped, ``SOC011`` it contradicts the stamp, and
            options that ATC would refuse.
        CanncError: what the backend raises.
    """
    unit = load(model)
    refresh_npu_ops(unit.model)
    target = compile_target(unit, soc or soc_of(options.atc_options), cann)
    compiler = select_backend(backend, atc=options.atc, dry_run=options.dry_run)
    # ATC brings a model to float16 by itself; the pass runs before it only when asked by name.
    asked = resolve(options, unit.model, target).options
    wanted = choose(asked, options.precision)
    if wanted == "fp16" and (compiler.name == "host" or options.precision == "fp16"):
        unit = optimize(unit, level="O0", soc=target.soc, cann=target.cann, precision="fp16")
    unit.target = target
    result = compiler.compile(unit, Path(out), options)
    if backend == "auto" and compiler.name == "host":
        return replace(result, notes=(FALLBACK_NOTE, *result.notes))
    return result
