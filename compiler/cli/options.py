"""Option groups that several commands share, and how their texts are read."""

from __future__ import annotations

import logging
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import wraps
from pathlib import Path
from typing import Any, TypeVar

import click

from cannc.compiler.core.errors import UsageError

F = TypeVar("F", bound=Callable[..., Any])

FILE = click.Path(path_type=Path)


def common(function: F) -> F:
    """Add ``--json``, ``--quiet``, ``-v`` and ``--debug``; set logging up before the command."""

    @wraps(function)
    def run(*args: Any, quiet: bool, verbose: bool, debug: bool, **kwargs: Any) -> Any:
        level = logging.DEBUG if debug else logging.INFO if verbose else logging.WARNING
        with _logging(logging.ERROR if quiet else level):
            return function(*args, quiet=quiet, **kwargs)

    for option in (
        click.option("--debug", is_flag=True, help="Show tracebacks and every detail."),
        click.option("-v", "--verbose", is_flag=True, help="Say more on stderr."),
        click.option("-q", "--quiet", is_flag=True, help="Only errors on stderr."),
        click.option(
            "--json", "json_out", metavar="FILE|-", help="Write the result as JSON; - is stdout."
        ),
    ):
        run = option(run)
    return run  # type: ignore[return-value]


@contextmanager
def _logging(level: int) -> Iterator[None]:
    """Show cannc's log on stderr while a command runs; nobody else's logging is touched."""
    logger = logging.getLogger("cannc")
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(logging.Formatter("%(levelname)s %(name)s: %(message)s"))
    before = logger.level
    logger.addHandler(handler)
    logger.setLevel(level)
    try:
        yield
    finally:
        logger.removeHandler(handler)
        logger.setLevel(before)


def target(function: F) -> F:
    """Add ``--soc`` and ``--cann``."""
    for option in (
        click.option("--cann", metavar="VERSION", help="CANN release, e.g. 8.0.0."),
        click.option("--soc", metavar="NAME", help="SoC, e.g. Ascend910B4 (see cannc targets)."),
    ):
        function = option(function)
    return function


def model_argument(function: F) -> F:
    """Add the MODEL argument, an .onnx file."""
    return click.argument("model", type=FILE)(function)


def output(suffix: str, *, required: bool = True) -> Callable[[F], F]:
    """Add ``-o OUT``."""
    return click.option(
        *("-o", "--output", "out"),
        type=FILE,
        required=required,
        metavar=f"OUT{suffix}",
        help="Result.",
    )


def inputs(function: F) -> F:
    """Add ``--inputs``."""
    return click.option(
        "--inputs",
        "input_specs",
        multiple=True,
        metavar="FILE.npz|NAME=FILE.npy",
        help="Real inputs; may be repeated.",
    )(function)


def parse_shapes(specs: tuple[str, ...]) -> dict[str, tuple[int, ...]]:
    """Read ``name:1,3,224,224`` texts; spaces and several shapes joined by ``;`` are allowed.

    Raises:
        UsageError: ``CLI002`` a text of another form.
    """
    shapes: dict[str, tuple[int, ...]] = {}
    for spec in (part for text in specs for part in text.split(";") if part.strip()):
        name, _, dims = spec.strip().rpartition(":")
        try:
            shapes[name.strip()] = tuple(int(dim) for dim in dims.split(","))
        except ValueError:
            name = ""
        if not name:
            raise UsageError(
                "CLI002", f"cannot read shape '{spec}'", where="--input-shape", fix="NAME:1,3,8,8"
            )
    return shapes


def parse_fixed(specs: tuple[str, ...]) -> dict[str, list[float] | float]:
    """Read ``name=16000`` or ``name=1,2,3`` texts; a single number stays one.

    Raises:
        UsageError: ``CLI007`` a text of another form.
    """
    fixed: dict[str, list[float] | float] = {}
    for spec in specs:
        name, _, numbers = spec.rpartition("=")
        try:
            read = [_number(text) for text in numbers.split(",")]
        except ValueError:
            name, read = "", []
        if not name.strip():
            raise UsageError(
                "CLI007", f"cannot read '{spec}'", where="--fix-input", fix="NAME=16000 or NAME=1,2"
            )
        fixed[name.strip()] = read[0] if len(read) == 1 else read
    return fixed


def _number(text: str) -> float:
    """Return an int where the text is one: large integers must not pass through floats."""
    try:
        return int(text)
    except ValueError:
        return float(text)


def parse_dynamic(specs: tuple[str, ...]) -> dict[str, dict[int, str]]:
    """Read ``name:0=batch,1=sequence`` texts.

    Raises:
        UsageError: ``CLI003`` a text of another form.
    """
    axes: dict[str, dict[int, str]] = {}
    for spec in specs:
        name, _, parts = spec.rpartition(":")
        try:
            pairs = [part.split("=") for part in parts.split(",")]
            named = {int(axis): dim for axis, dim in pairs if dim.isidentifier()}
        except ValueError:
            named = {}
        if not name or not named:
            raise UsageError(
                "CLI003", f"cannot read '{spec}'", where="--dynamic", fix="NAME:0=batch,1=seq"
            )
        axes.setdefault(name, {}).update(named)
    return axes


def parse_gears(specs: tuple[str, ...]) -> dict[str, list[int]]:
    """Read ``batch=1,2,4`` texts; several may be joined by ``;``.

    Raises:
        UsageError: ``CLI004`` a text of another form.
    """
    gears: dict[str, list[int]] = {}
    for spec in (part for text in specs for part in text.split(";") if part.strip()):
        name, _, sizes = spec.partition("=")
        try:
            gears[name.strip()] = [int(size) for size in sizes.split(",")]
        except ValueError:
            name = ""
        if not name.strip():
            raise UsageError("CLI004", f"cannot read '{spec}'", where="--gears", fix="DIM=1,2,4")
    return gears
