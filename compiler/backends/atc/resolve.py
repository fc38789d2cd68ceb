"""All options of one compile, checked against each other, the chip and the model."""

from __future__ import annotations

from dataclasses import dataclass, field

import onnx_ir as ir

from cannc.compiler.backends.atc import gears as gear_rules
from cannc.compiler.backends.atc import precision
from cannc.compiler.backends.atc.arguments import Given, normalize, unknown
from cannc.compiler.backends.atc.config_files import check_files
from cannc.compiler.backends.atc.consistency import place
from cannc.compiler.backends.atc.gears import Gears
from cannc.compiler.backends.atc.names import check_names
from cannc.compiler.backends.atc.refusal import refuse
from cannc.compiler.backends.atc.rules import check_rules
from cannc.compiler.backends.atc.shapes import (
    Shapes,
    check_shapes,
    declared,
    format_shapes,
    parse_shapes,
)
from cannc.compiler.backends.atc.table import option_table
from cannc.compiler.backends.atc.values import check_value
from cannc.compiler.backends.base import CompileOptions, ShapeMode
from cannc.compiler.core.target import Target


@dataclass
class Resolved:
    """Options that ATC will take.

    Attributes:
        options: Flag -> text; without the ones that cannc sets itself.
        shapes: What ``--input_shape`` says, in its order.
        gears: The gears, if any.
        precision: What the options ask for: ``fp16`` or ``keep``; None when they leave it open.
        notes: What the user should know.
    """

    options: dict[str, str]
    shapes: Shapes = field(default_factory=dict)
    gears: Gears | None = None
    precision: precision.Precision | None = None
    notes: list[str] = field(default_factory=list)


def resolve(asked: CompileOptions, model: ir.Model, target: Target) -> Resolved:
    """Check the options of a compile; complete what the model tells.

    Args:
        asked: ATC's options, and gears by name.
        model: The model that is compiled; not changed.
        target: SoC and CANN release.

    Raises:
        UsageError: what ATC would refuse, and what contradicts cannc's own flags.
    """
    options = normalize(asked.atc_options)
    if asked.gears:
        _add_gears(options, asked, model, target)
    result = Resolved(options, notes=unknown(options))
    _check_owned(options, target)
    for flag, value in options.items():
        option = option_table().get(flag)
        if option is not None and option.role != "owned":
            check_value(option, value, target)
    check_rules(options, target)
    _resolve_shapes(result, model, target)
    _check_mode(result, asked.shapes, model)
    check_names(options, model, target)
    check_files(options, list(declared(model)))
    result.precision = precision.asked(options)
    return result


def soc_of(given: Given) -> str | None:
    """Return the ``soc_version`` among ATC's options, for the choice of the target (D22)."""
    return normalize(given).get("soc_version")


def _add_gears(
    options: dict[str, str], asked: CompileOptions, model: ir.Model, target: Target
) -> None:
    for flag in (*gear_rules.FLAGS, "input_shape_range"):
        if flag in options:
            raise refuse("ATC006", flag, f"--{flag} and --gears exclude each other", fix="keep one")
    base = parse_shapes(options["input_shape"]) if "input_shape" in options else {}
    check_shapes(base, model, target)
    options |= gear_rules.from_names(asked.gears, base, model)


def _check_owned(options: dict[str, str], target: Target) -> None:
    """Take out the options that cannc sets; refuse other values than its own."""
    ours = {"soc_version": target.soc, "framework": "5"}
    fixes = {"soc_version": "use --soc", "model": "give it as MODEL", "output": "use -o"}
    if options.get("mode") == "0":
        del options["mode"]
    for flag in ("model", "output", *ours):
        value = options.pop(flag, None)
        if value is not None and value != ours.get(flag):
            raise refuse(
                "ATC004",
                flag,
                f"--{flag}={value} contradicts what cannc passes to ATC",
                atc="E10007" if flag == "framework" else "",
                why=f"cannc passes {ours[flag]}" if flag in ours else "cannc chooses the path",
                fix=fixes.get(flag, "leave it out"),
            )


def _resolve_shapes(result: Resolved, model: ir.Model, target: Target) -> None:
    options = result.options
    flag = next((flag for flag in gear_rules.FLAGS if flag in options), None)
    if "input_shape" in options:
        result.shapes = parse_shapes(options["input_shape"])
        check_shapes(result.shapes, model, target)
    if flag is not None:
        result.gears = Gears.parse(flag, options[flag], target)
        result.shapes, notes = place(result.gears, result.shapes, model)
        result.notes += notes
    if flag == "dynamic_dims":
        options.setdefault("input_format", "ND")
    if result.shapes:
        options["input_shape"] = format_shapes(result.shapes)
    if flag is None and _open_dims(result.shapes, model):
        result.notes.append(
            "the model keeps open dimensions: ATC builds a dynamic-shape artifact, which many "
            "operators do not support; --input-shape or --gears make it static"
        )


def _check_mode(result: Resolved, mode: ShapeMode | None, model: ir.Model) -> None:
    """Hold the sizes against what ``--shapes`` asks for.

    Raises:
        UsageError: ``ATC049`` they come to something else.
    """
    given = {**declared(model), **result.shapes}
    found: ShapeMode = "fixed"
    if result.gears is not None:
        found = "gears"
    elif _open_dims(result.shapes, model):
        found = "range"
    if mode is None or mode == found:
        return
    cures = {
        "fixed": "give every size with --input-shape, and no --gears",
        "range": "leave a size open with --input-shape, e.g. NAME:1~8,3,224,224, without --gears",
        "gears": "add --gears, e.g. --gears batch=1,2,4",
    }
    raise refuse(
        "ATC049",
        "shapes",
        f"--shapes {mode}: the sizes given come to {found}",
        why=f"they are {format_shapes(given)}" + (" with gears" if result.gears else ""),
        fix=cures[mode],
    )


def _open_dims(shapes: Shapes, model: ir.Model) -> bool:
    return any(
        not isinstance(dim, int) or dim < 0
        for dims in {**declared(model), **shapes}.values()
        for dim in dims
    )
