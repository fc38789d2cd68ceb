"""``cannc compile``: write the .om artifact."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeVar

import click

from cannc.compiler.cli import options

if TYPE_CHECKING:
    from cannc.compiler.backends.base import CompileOptions

F = TypeVar("F", bound=Callable[..., Any])


def _atc_options(function: F) -> F:
    """Add the options about ATC and about shapes."""
    for option in (
        click.option(
            "--timeout", type=click.FloatRange(min=1), help="Seconds; ATC is stopped then."
        ),
        click.option("--atc", type=options.FILE, metavar="PATH", help="Where ATC is."),
        click.option("--dry-run", is_flag=True, help="Print ATC's command instead of running it."),
        click.option(
            "--atc-arg",
            "atc_args",
            multiple=True,
            metavar="--FLAG=VALUE",
            help="Option of ATC; may be repeated. Known ones are checked.",
        ),
        click.option(
            "--golden", is_flag=True, help="ATC's fusions off, to compare layer by layer."
        ),
        click.option("--aipp", type=options.FILE, metavar="FILE", help="AIPP preprocessing."),
        click.option(
            "--gears",
            "gear_specs",
            multiple=True,
            metavar="DIM=1,2,4",
            help="Sizes of a dynamic dimension; gear i has the i-th size of every DIM.",
        ),
        click.option(
            "--shapes",
            type=click.Choice(["fixed", "range", "gears"]),
            help="Refuse sizes that do not come to this.",
        ),
        click.option(
            "--input-shape",
            "shape_specs",
            multiple=True,
            metavar="NAME:1,3,8,8",
            help="Shape of an input; -1 keeps a dimension open, a~b is a range.",
        ),
    ):
        function = option(function)
    return function


@click.command(short_help="Write the .om artifact (ATC or embedded host).")
@options.model_argument
@options.output(".om")
@click.option(
    "--backend", type=click.Choice(["auto", "atc", "host"]), default="auto", show_default=True
)
@click.option(
    "--precision",
    type=click.Choice(["keep", "fp16"]),
    help="keep: the file's dtypes (default); fp16: float16 storage.",
)
@click.option("--require-support", is_flag=True, help="Exit 1 if ATC would refuse a node.")
@click.option(
    "--max-workspace",
    metavar="2GB",
    help="What tensors of a run may take, weights, inputs and outputs apart.",
)
@click.option(
    "--memory-optimizer",
    type=click.Choice(["none", "recompute"]),
    default="none",
    show_default=True,
    help="recompute: compute cheap values twice to keep --max-workspace.",
)
@_atc_options
@options.target
@options.common
def compile(
    model: Path,
    out: Path,
    backend: str,
    soc: str | None,
    cann: str | None,
    json_out: str | None,
    quiet: bool,
    **asked: Any,
) -> None:
    """Compile MODEL to an .om artifact with ATC, or with the embedded host backend."""
    from cannc.compiler import pipeline
    from cannc.compiler.cli.console import busy, dump, size, stderr, stdout, write_json
    from cannc.compiler.core.files import check_writable

    check_writable(out, model)
    with busy(f"compiling {out.name}", quiet=quiet):
        result = pipeline.compile_model(model, out, backend, soc, cann, _options(**asked))
    memory = result.memory.as_data() if result.memory is not None else None
    data = {"schema_version": 1, **vars(result), "path": str(out), "memory": memory}
    if asked["dry_run"] and result.command:
        if not write_json(json_out, dump(data)):
            click.echo(result.command)
        for note in () if quiet else result.notes:
            stderr().print(f"note: {note}", markup=False)
        return
    if write_json(json_out, dump(data)):
        return
    console = stdout()
    console.print(f"{out}: {size(result.size_bytes)}, {result.device}", markup=False)
    if result.memory is not None and result.memory.arena_bytes is not None:
        console.print(f"workspace: {size(result.memory.arena_bytes)}", markup=False)
    for note in result.notes:
        console.print(f"note: {note}", markup=False)


def _options(
    *,
    precision: Literal["keep", "fp16"] | None,
    require_support: bool,
    shape_specs: tuple[str, ...],
    gear_specs: tuple[str, ...],
    shapes: Literal["fixed", "range", "gears"] | None,
    aipp: Path | None,
    golden: bool,
    atc_args: tuple[str, ...],
    dry_run: bool,
    atc: Path | None,
    timeout: float | None,
    max_workspace: str | None,
    memory_optimizer: Literal["none", "recompute"],
) -> CompileOptions:
    from cannc.compiler.backends.atc.arguments import merge, parse_arguments
    from cannc.compiler.backends.base import CompileOptions
    from cannc.compiler.core.quantities import parse_bytes

    sugar = {
        "input_shape": ";".join(shape_specs),
        "insert_op_conf": str(aipp) if aipp is not None else "",
    }
    given = parse_arguments(atc_args)
    return CompileOptions(
        precision=precision,
        require_support=require_support,
        atc_options=merge(given, {flag: value for flag, value in sugar.items() if value}),
        gears=options.parse_gears(gear_specs),
        shapes=shapes,
        atc=atc,
        timeout_s=timeout,
        golden=golden,
        dry_run=dry_run,
        max_workspace=parse_bytes(max_workspace, "--max-workspace"),
        memory_optimizer=memory_optimizer,
    )
