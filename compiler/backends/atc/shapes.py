"""The text of ``--input_shape``, and whether it fits the model's inputs."""

from __future__ import annotations

import onnx_ir as ir

from cannc.compiler.backends.atc.refusal import refuse
from cannc.compiler.core.errors import nearest
from cannc.compiler.core.graphs import all_graphs
from cannc.compiler.core.target import Target

Dim = int | tuple[int, int]
"""A size; -1 for any; (least, most) for a range, most -1 when it is open."""
Shapes = dict[str, tuple[Dim, ...]]

_FLAG = "input_shape"
_NO_RANGES = ("ascend310b", "ascend035")


def parse_shapes(text: str) -> Shapes:
    """Read ``name:1,3,224,224;other:-1,1~64;scalar:``; spaces do not count.

    A name may hold ``:``; the last one separates the sizes.

    Raises:
        UsageError: ``ATC030`` another form, ``ATC031`` a size that is not positive.
    """
    shapes: Shapes = {}
    for part in (part.strip() for part in text.split(";")):
        if not part:
            continue
        name, colon, sizes = part.rpartition(":")
        name = name.strip()
        if not colon or not name or name in shapes:
            raise _malformed(part, "each part is NAME:SIZES, and each name stands once")
        shapes[name] = tuple(_dim(size.strip(), part) for size in sizes.split(",") if sizes.strip())
    if not shapes:
        raise _malformed(text, "it names no input")
    return shapes


def format_shapes(shapes: Shapes) -> str:
    """Return the text that ATC takes."""
    return ";".join(
        f"{name}:{','.join(_format_dim(dim) for dim in dims)}" for name, dims in shapes.items()
    )


def feeds(model: ir.Model) -> dict[str, ir.Value]:
    """Return what ATC sees as inputs: graph inputs that are no initializers (D25)."""
    weights = model.graph.initializers
    return {v.name: v for v in model.graph.inputs if v.name and v.name not in weights}


def declared(model: ir.Model) -> Shapes:
    """Return the shapes that the model declares, -1 for symbolic dims; unknown ranks are left out.

    Inputs keep the model's order.
    """
    return {
        name: tuple(dim if isinstance(dim, int) else -1 for dim in value.shape)
        for name, value in feeds(model).items()
        if value.shape is not None
    }


def check_shapes(shapes: Shapes, model: ir.Model, target: Target) -> None:
    """Compare the shapes with the model's inputs.

    Raises:
        UsageError: ``ATC032`` no such input, ``ATC033`` another rank, ``ATC034`` a size that the
            model fixes to another, ``ATC035`` a range that the chip does not take.
    """
    inputs = feeds(model)
    for name, dims in shapes.items():
        check_name(_FLAG, name, model)
        shape = inputs[name].shape
        if shape is None:
            continue
        if len(shape) != len(dims):
            raise refuse(
                "ATC033",
                _FLAG,
                f"input '{name}' has rank {len(shape)}, --input_shape gives rank {len(dims)}",
                atc="E10049",
                why=f"the model declares {name}{shape}",
                fix=f"give {len(shape)} sizes",
            )
        for axis, (old, new) in enumerate(zip(shape, dims, strict=True)):
            if isinstance(old, int) and not _admits(new, old):
                raise refuse(
                    "ATC034",
                    _FLAG,
                    f"input '{name}', dimension {axis}: the model fixes it to {old}, "
                    f"--input_shape says {_format_dim(new)}",
                    why="ATC would replace the size and leave the rest of the graph as it is",
                    fix="export the model with that dimension dynamic",
                )
        if target.family in _NO_RANGES and any(isinstance(dim, tuple) for dim in dims):
            raise refuse(
                "ATC035",
                _FLAG,
                f"input '{name}': {target.soc} takes no ranges",
                atc="E10055",
                fix="use gears, e.g. --gears batch=1,2,4",
            )


def check_name(flag: str, name: str, model: ir.Model) -> None:
    """Refuse a name that is no input of the model.

    Raises:
        UsageError: ``ATC032``.
    """
    inputs = feeds(model)
    if name in inputs:
        return
    others = {v.name for _, g in all_graphs(model.graph) for n in g for v in n.outputs}
    inside = name in others or name in model.graph.initializers
    raise refuse(
        "ATC032",
        flag,
        f"--{flag}: '{name}' is no input of the model{nearest(name, inputs)}",
        atc="E10017" if inside else "E10016",
        why="it is inside the graph" if inside else "",
        fix=f"inputs: {', '.join(inputs)}; a ; stands between two of them",
    )


def _dim(text: str, part: str) -> Dim:
    low, tilde, high = text.partition("~")
    try:
        sizes = (int(low), int(high)) if tilde else (int(low),)
    except ValueError:
        raise _malformed(part, f"'{text}' is no size") from None
    if len(sizes) == 2:
        least, most = sizes
        if least < 1 or (most != -1 and most < least):
            raise _malformed(part, f"'{text}' is no range", atc="E10048")
        return (least, most)
    if sizes[0] < 1 and sizes[0] != -1:
        raise refuse(
            "ATC031",
            _FLAG,
            f"--input_shape: size {sizes[0]} in '{part}' is not positive",
            atc="E10011",
            fix="give a positive size, or -1 for one that varies",
        )
    return sizes[0]


def _admits(new: Dim, old: int) -> bool:
    if isinstance(new, tuple):
        return new[0] <= old and (new[1] == -1 or old <= new[1])
    return new in (-1, old)


def _format_dim(dim: Dim) -> str:
    return str(dim) if isinstance(dim, int) else f"{dim[0]}~{dim[1]}"


def _malformed(part: str, why: str, atc: str = "E10002") -> Exception:
    return refuse(
        "ATC030",
        _FLAG,
        f"cannot read '{part}' in --input_shape",
        atc=atc,
        why=why,
        fix="write name:1,3,224,224;name2:-1,10",
    )
