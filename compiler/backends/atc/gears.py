"""Gears: the sizes that one artifact is built for (atc-cli.md section 2.2)."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import onnx_ir as ir

from cannc.compiler.backends.atc.refusal import refuse
from cannc.compiler.backends.atc.shapes import Shapes, declared, feeds, format_shapes
from cannc.compiler.core.errors import UsageError, nearest
from cannc.compiler.core.target import Target

FLAGS = ("dynamic_batch_size", "dynamic_image_size", "dynamic_dims")
_MOST = {"ascend950": 256}
_MOST_ELSEWHERE = 100
_BATCH_CODE, _IMAGE_CODE = "E10018", "E10019"


@dataclass(frozen=True)
class Gears:
    """The gears of one option.

    Attributes:
        flag: One of `FLAGS`.
        rows: One tuple of sizes per gear.
    """

    flag: str
    rows: tuple[tuple[int, ...], ...]

    @classmethod
    def parse(cls, flag: str, text: str, target: Target) -> Gears:
        """Read and check the text of an option.

        Raises:
            UsageError: ``ATC040`` not numbers, ``ATC041`` too few, too many, unequal in length,
                not positive, or twice the same.
        """
        parts = text.split("," if flag == "dynamic_batch_size" else ";")
        try:
            rows = [tuple(int(size) for size in part.split(",")) for part in parts if part.strip()]
        except ValueError:
            form = "1,2,4" if flag == "dynamic_batch_size" else "224,224;448,448"
            raise refuse(
                "ATC040", flag, f"cannot read --{flag}={text}", atc="E10014", fix=f"write {form}"
            ) from None
        most = _MOST.get(target.family, _MOST_ELSEWHERE)
        faults = (
            (len(rows) < 2, "E10035", "at least two different gears are needed"),
            (len(rows) > most, "E10036", f"{target.soc} takes at most {most} gears"),
            (len({len(row) for row in rows}) > 1, "E10037", "all gears need as many sizes"),
            (any(size < 1 for row in rows for size in row), "E10038", "sizes must be positive"),
            (len(set(rows)) < len(rows), "E10039", "a gear stands twice"),
        )
        for found, code, rule in faults:
            if found:
                raise refuse("ATC041", flag, f"--{flag}={text}: {rule}", atc=code)
        return cls(flag, tuple(rows))

    def shapes(self, given: Shapes) -> Iterator[dict[str, tuple[int, ...]]]:
        """Yield the static shapes of every gear."""
        for row in self.rows:
            sizes = iter(row) if self.flag == "dynamic_dims" else None
            yield {name: self._fill(dims, row, sizes) for name, dims in given.items()}

    def _fill(
        self, dims: Sequence[object], row: tuple[int, ...], sizes: Iterator[int] | None
    ) -> tuple[int, ...]:
        own = sizes if sizes is not None else iter(row)
        return tuple(next(own) if dim == -1 else int(dim) for dim in dims)  # type: ignore[call-overload]


def check_places(gears: Gears, shapes: Shapes) -> None:
    """Refuse -1 at places that this kind of gears does not vary.

    Raises:
        UsageError: ``ATC042`` ranges or no -1, ``ATC043`` wrong places, ``ATC044`` wrong count.
    """
    flag = gears.flag
    varying = {name: [i for i, d in enumerate(dims) if d == -1] for name, dims in shapes.items()}
    ranges = any(isinstance(dim, tuple) for dims in shapes.values() for dim in dims)
    if ranges or not any(varying.values()):
        raise refuse(
            "ATC042",
            flag,
            f"--{flag} needs a -1 in --input_shape" + (", not a range" if ranges else ""),
            atc="E10040",
            fix=f"write -1 for the size that varies (now: {format_shapes(shapes)})",
        )
    for name, axes in varying.items():
        if not axes:
            continue
        if flag == "dynamic_batch_size" and axes != [0]:
            raise _misplaced(flag, name, "only the first dimension may be -1", _BATCH_CODE)
        if flag == "dynamic_image_size" and (len(shapes[name]) != 4 or axes != [2, 3]):
            raise _misplaced(flag, name, "only H and W of a 4-D input may be -1", _IMAGE_CODE)
    wanted = sum(map(len, varying.values())) if flag == "dynamic_dims" else 0
    wanted = {"dynamic_batch_size": 1, "dynamic_image_size": 2}.get(flag, wanted)
    given = len(gears.rows[0])
    if given != wanted:
        raise refuse(
            "ATC044",
            flag,
            f"--{flag}: each gear has {given} sizes, {wanted} are needed",
            atc="E10045",
            why=f"one for each -1 in {format_shapes(shapes)}" if flag == "dynamic_dims" else "",
        )


def from_names(named: Mapping[str, Sequence[int]], base: Shapes, model: ir.Model) -> dict[str, str]:
    """Turn gears by dimension name into ATC's options: gear i has the i-th size of every name.

    Args:
        named: Dimension name -> its sizes, e.g. ``{"batch": [1, 2, 4]}``.
        base: Shapes that are given besides; they win over the model's.
        model: The model whose inputs carry the names.

    Raises:
        UsageError: ``ATC045`` no input has such a dimension, ``ATC046`` unequal numbers of sizes,
            ``ATC047`` a dimension stays open.
    """
    counts = {name: len(sizes) for name, sizes in named.items()}
    if len(set(counts.values())) > 1:
        listed = ", ".join(f"{name}: {count}" for name, count in counts.items())
        raise refuse(
            "ATC046",
            "gears",
            f"the dimensions of --gears have unequal numbers of sizes ({listed})",
            why="gear i takes the i-th size of every dimension",
        )
    shapes = {**declared(model), **base}
    symbols = [
        (input_name, axis, str(dim.value))
        for input_name, value in feeds(model).items()
        for axis, dim in enumerate(value.shape or ())
        if isinstance(dim, ir.SymbolicDim) and shapes[input_name][axis] == -1
    ]
    present = {symbol for _, _, symbol in symbols}
    for name in named:
        if name not in present:
            raise refuse(
                "ATC045",
                "gears",
                f"no input has a dimension '{name}'{nearest(name, present)}",
                fix=f"dimensions: {', '.join(sorted(present)) or 'all are static'}",
            )
    for input_name, axis, symbol in symbols:
        if symbol not in named:
            raise refuse(
                "ATC047",
                "gears",
                f"dimension {axis} ('{symbol}') of input '{input_name}' stays open",
                fix=f"add --gears {symbol}=... or fix it with --input-shape",
            )
    rows = zip(*(named[symbol] for _, _, symbol in symbols), strict=True)
    if len(named) == 1 and all(axis == 0 for _, axis, _ in symbols):
        sizes = ",".join(str(row[0]) for row in rows)
        return {"input_shape": format_shapes(shapes), "dynamic_batch_size": sizes}
    text = ";".join(",".join(map(str, row)) for row in rows)
    return {"input_shape": format_shapes(shapes), "dynamic_dims": text}


def orders(model: ir.Model, limit: int = 24) -> Iterator[Shapes]:
    """Yield the model's own shapes with its varying inputs in every order, its own order first.

    The sizes of ``dynamic_dims`` follow the order of ``--input_shape``; where that was not given,
    the order must be found.
    """
    shapes = declared(model)
    varying = [name for name, dims in shapes.items() if -1 in dims]
    rest = [name for name in shapes if name not in varying]
    for order in itertools.islice(itertools.permutations(varying), limit):
        yield {name: shapes[name] for name in (*order, *rest)}


def _misplaced(flag: str, name: str, rule: str, code: str) -> UsageError:
    fix = "use --dynamic_dims for other dimensions"
    return refuse("ATC043", flag, f"--{flag}, input '{name}': {rule}", atc=code, fix=fix)
