"""Rules between options: what excludes what, what needs what (atc-cli.md section 2)."""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable, Mapping

from cannc.compiler.backends.atc.refusal import refuse
from cannc.compiler.backends.atc.table import option_table
from cannc.compiler.core.errors import UsageError
from cannc.compiler.core.target import Target, soc_table

Options = Mapping[str, str]
_MIXED = ("mixed", "allow_mix_precision")


def check_rules(options: Options, target: Target) -> None:
    """Refuse options that do not go together.

    Raises:
        UsageError: ``ATC020`` they exclude each other, ``ATC021`` one needs another,
            ``ATC022`` the value of one does not fit the value of another or the chip.
    """
    for group in option_table().exclusive:
        given = [flag for flag in group.flags if flag in options]
        for first, second in itertools.combinations(given, 2):
            raise _exclusive(first, second, group.code)
    for row in option_table().needs:
        if row.flag in options and row.needs not in options:
            raise _needs(row.flag, row.needs, row.code)
    for rule in _RULES:
        rule(options, target)


def _exclusive(first: str, second: str, code: str, values: str = "") -> UsageError:
    return refuse(
        "ATC020",
        first,
        f"--{first} and --{second}{values} exclude each other",
        atc=code,
        fix="keep one of the two options",
    )


def _needs(flag: str, needed: str, code: str, detail: str = "") -> UsageError:
    return refuse(
        "ATC021", flag, f"--{flag} needs --{needed}{detail}", atc=code, fix=f"add --{needed}"
    )


def _streams(options: Options, target: Target) -> None:
    if options.get("enable_single_stream") == "true" and "multi_stream_parallel_mode" in options:
        raise _exclusive("enable_single_stream", "multi_stream_parallel_mode", "E10056")
    mode = options.get("multi_stream_parallel_mode")
    match = re.fullmatch(r"cv|(LoadBalance|MainStream):([1-9]\d?)", mode) if mode else None
    if mode and (match is None or int(match[2] or 1) > 64):
        raise refuse(
            "ATC022",
            "multi_stream_parallel_mode",
            f"--multi_stream_parallel_mode cannot be '{mode}'",
            atc="E10001",
            fix="use cv, LoadBalance:N or MainStream:N with N 1 to 64",
        )


def _mixed_precision(options: Options, target: Target) -> None:
    mode = options.get("precision_mode_v2") or options.get("precision_mode") or ""
    if "modify_mixlist" in options and not mode.startswith(_MIXED):
        detail = " with a mixed mode, e.g. --precision_mode_v2=mixed_float16"
        raise _needs("modify_mixlist", "precision_mode_v2", "E10057", detail)


def _adjusted_layouts(options: Options, target: Target) -> None:
    for flag, partner in (
        ("is_input_adjust_hw_layout", "input_fp16_nodes"),
        ("is_output_adjust_hw_layout", "out_nodes"),
    ):
        if flag not in options:
            continue
        count, wanted = len(options[flag].split(",")), len(_items(options[partner]))
        if count != wanted:
            raise refuse(
                "ATC022",
                flag,
                f"--{flag} has {count} values, --{partner} has {wanted}",
                atc="E10057",
                fix="give one true or false for each name",
            )


def _aipp(options: Options, target: Target) -> None:
    layout = options.get("input_format")
    if "insert_op_conf" in options and layout not in (None, "NCHW"):
        raise refuse(
            "ATC022",
            "insert_op_conf",
            f"--insert_op_conf does not go with --input_format={layout}",
            atc="E10001",
            why="AIPP works on images",
            fix="use --input_format=NCHW",
        )


def _gear_layouts(options: Options, target: Target) -> None:
    layout = options.get("input_format")
    for flag, allowed in (("dynamic_dims", "ND"), ("dynamic_image_size", "NCHW")):
        if flag in options and layout not in (None, allowed):
            raise refuse(
                "ATC022",
                flag,
                f"--{flag} does not go with --input_format={layout}",
                atc="E10001",
                fix=f"use --input_format={allowed}",
            )


def _debug_folder(options: Options, target: Target) -> None:
    if "debug_dir" in options and options["op_debug_level"] == "0":
        raise _needs("debug_dir", "op_debug_level", "E10057", " above 0")


def _implementation_modes(options: Options, target: Target) -> None:
    mode = options.get("op_select_implmode", "")
    if "optypelist_for_implmode" in options and mode.endswith("_for_all"):
        raise _exclusive("optypelist_for_implmode", "op_select_implmode", "E10056", f"={mode}")


def _deterministic(options: Options, target: Target) -> None:
    level = options.get("deterministic_level", "0")
    if level != "0" and options.get("deterministic") == "0":
        raise _exclusive("deterministic_level", "deterministic", "E10056", f" ({level} against 0)")


def _sparsity(options: Options, target: Target) -> None:
    if options.get("sparsity") == "1" and soc_table()[target.soc]["sparsity"] != "1":
        raise refuse(
            "ATC022",
            "sparsity",
            f"--sparsity=1: {target.soc} has no structured sparsity",
            atc="E10055",
            fix="leave it out",
        )


def _cores(options: Options, target: Target) -> None:
    text = options.get("aicore_num")
    if text is None:
        return
    chip = soc_table()[target.soc]
    most = (int(chip["ai_core"]), int(chip["vector_core"]))
    parts = text.split("|")
    fits = len(parts) <= 2 and all(
        part.strip().isdigit() and 1 <= int(part) <= limit
        for part, limit in zip(parts, most, strict=False)
    )
    if not fits:
        raise refuse(
            "ATC022",
            "aicore_num",
            f"--aicore_num={text}: {target.soc} has {most[0]} AI cores and {most[1]} vector cores",
            atc="E20101",
            fix="give a number up to that, or cube|vector",
        )


def _items(text: str) -> list[str]:
    return [item for item in text.split(";") if item.strip()]


_RULES: tuple[Callable[[Options, Target], None], ...] = (
    _streams,
    _mixed_precision,
    _adjusted_layouts,
    _aipp,
    _gear_layouts,
    _debug_folder,
    _implementation_modes,
    _deterministic,
    _sparsity,
    _cores,
)
