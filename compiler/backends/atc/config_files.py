"""Files that ATC's options name, checked before ATC reads them, and the ones that cannc writes."""

from __future__ import annotations

import configparser
import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from cannc.compiler.backends.atc.aipp import check_aipp
from cannc.compiler.backends.atc.refusal import refuse
from cannc.compiler.core.errors import UsageError, nearest

ALL_FUSIONS_OFF = json.dumps(
    {"Switch": {"GraphFusion": {"ALL": "off"}, "UBFusion": {"ALL": "off"}}}, indent=1
)
"""Switch file for golden builds: every layer stays visible in a dump."""

_LISTS = ("black-list", "white-list", "gray-list")
_EDITS = ("to-add", "to-remove")
_OP_PRECISION_MODES = (
    *("high_precision", "high_performance", "super_performance", "enable_float_32_execution"),
    *("enable_hi_float_32_execution", "support_out_of_bound_index", "keep_fp16"),
)
_SWITCH = re.compile(r"[\w./-]+\s*:\s*(on|off)")
_DEBUG_WORDS = frozenset({"oom", "dump_cce", "dump_loc", "ccec_O0", "ccec_g", "check_flag"})
_NOT_RAW = ("model", "output", "framework", "soc_version")


def check_files(options: Mapping[str, str], inputs: Sequence[str]) -> None:
    """Check the content of every file that the options name.

    Args:
        options: Flag -> path.
        inputs: The model's inputs, in order.

    Raises:
        UsageError: ``ATC060`` a file that ATC would refuse; ``ATC061`` to ``ATC063`` an AIPP file.
    """
    for flag, check in _CHECKS.items():
        if flag in options:
            fault = check(Path(options[flag]).read_text(encoding="utf-8"))
            if fault:
                raise _fault(flag, options[flag], fault)
    for item in filter(str.strip, options.get("optimization_switch", "").split(";")):
        if not _SWITCH.fullmatch(item.strip()):
            raise refuse(
                "ATC010",
                "optimization_switch",
                f"--optimization_switch: cannot read '{item}'",
                atc="E10001",
                fix="write Pass:on;Pass:off",
            )
    if "insert_op_conf" in options:
        check_aipp(Path(options["insert_op_conf"]), options, inputs)


def keep_dtype_text(nodes: Sequence[str]) -> str:
    """Return the file that keeps nodes in the model's precision, one name a line."""
    return "".join(f"{name}\n" for name in nodes)


def _fault(flag: str, path: str, why: str) -> UsageError:
    code = {"fusion_switch_file": "E20003", "modify_mixlist": "E10032", "raw_ge_options": "E10032"}
    return refuse(
        "ATC060",
        flag,
        f"--{flag}: {path} is not a file that ATC takes",
        atc=code.get(flag, "E10001"),
        why=why,
        fix="correct the file",
    )


def _json(text: str) -> dict[str, Any] | str:
    """Return the object, or why there is none."""
    try:
        data = json.loads(text)
    except ValueError as error:
        return f"no JSON: {error}"
    return data if isinstance(data, dict) else "the JSON is no object"


def _fusion_switch(text: str) -> str:
    if not text.lstrip().startswith("{"):
        bad = [line for line in _lines(text) if not _SWITCH.fullmatch(line)]
        return f"line '{bad[0]}' is not PASS:on or PASS:off" if bad else ""
    data = _json(text)
    if isinstance(data, str):
        return data
    switch = data.get("Switch")
    if not isinstance(switch, dict):
        return "no 'Switch' in it"
    for kind, passes in switch.items():
        if kind not in ("GraphFusion", "UBFusion") or not isinstance(passes, dict):
            return f"'{kind}' is neither GraphFusion nor UBFusion with passes"
        for name, state in passes.items():
            if state not in ("on", "off"):
                return f"{kind}.{name} is '{state}', not on or off"
    return ""


def _mixlist(text: str) -> str:
    data = _json(text)
    if isinstance(data, str):
        return data
    for key, edits in data.items():
        if key not in _LISTS:
            return f"no list '{key}'{nearest(key, _LISTS)}"
        if not isinstance(edits, dict):
            return f"'{key}' has no {' or '.join(_EDITS)}"
        for edit, types in edits.items():
            named = isinstance(types, list) and all(isinstance(item, str) for item in types)
            if edit not in _EDITS or not named:
                return f"'{key}': '{edit}' must be {' or '.join(_EDITS)} with GE operator types"
    return ""


def _op_precision(text: str) -> str:
    parser = configparser.ConfigParser(delimiters=("=",), strict=False, interpolation=None)
    parser.optionxform = str  # type: ignore[assignment,method-assign]
    try:
        parser.read_string(text)
    except configparser.Error as error:
        return f"no ini file: {' '.join(str(error).split())}"
    for section in parser.sections():
        if section not in ("ByOpType", "ByNodeName"):
            return f"section [{section}] is neither [ByOpType] nor [ByNodeName]"
        for name, mode in parser[section].items():
            if mode not in _OP_PRECISION_MODES:
                return f"'{name}={mode}': no such mode{nearest(mode, _OP_PRECISION_MODES)}"
    return "" if parser.sections() else "neither [ByOpType] nor [ByNodeName] in it"


def _custom_dtypes(text: str) -> str:
    bad = [line for line in _lines(text) if "InputDtype:" not in line or "OutputDtype:" not in line]
    return f"line '{bad[0]}' lacks InputDtype: or OutputDtype:" if bad else ""


def _kept(text: str) -> str:
    bad = [line for line in _lines(text) if any(c.isspace() for c in line)]
    return f"line '{bad[0]}' is not one name" if bad else ""


def _debug(text: str) -> str:
    for line in _lines(text):
        key, _, words = (part.strip() for part in line.partition("="))
        if key not in ("op_debug_config", "op_debug_list"):
            return f"line '{line}' is neither op_debug_config= nor op_debug_list="
        unknown = {word.strip() for word in words.split(",")} - _DEBUG_WORDS
        if key == "op_debug_config" and unknown:
            return f"op_debug_config does not know {', '.join(sorted(unknown))}"
    return ""


def _raw_options(text: str) -> str:
    data = _json(text)
    if isinstance(data, str):
        return data
    found = [key for key in _keys(data) if key in _NOT_RAW]
    return f"it cannot carry {', '.join(found)}" if found else ""


def _keys(data: object) -> Iterator[str]:
    if isinstance(data, dict):
        for key, value in data.items():
            yield key
            yield from _keys(value)


def _lines(text: str) -> list[str]:
    return [line.strip() for line in text.splitlines() if line.strip()]


_CHECKS: dict[str, Callable[[str], str]] = {
    "fusion_switch_file": _fusion_switch,
    "modify_mixlist": _mixlist,
    "op_precision_mode": _op_precision,
    "customize_dtypes": _custom_dtypes,
    "keep_dtype": _kept,
    "op_debug_config": _debug,
    "raw_ge_options": _raw_options,
}
"""Flag -> what is wrong with the text of its file, or ``""``."""
