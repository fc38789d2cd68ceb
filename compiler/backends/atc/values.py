"""The value of one option, checked alone: allowed words, numbers, paths."""

from __future__ import annotations

import re
from pathlib import Path

from cannc.compiler.backends.atc.refusal import refuse
from cannc.compiler.backends.atc.table import Option
from cannc.compiler.core.errors import nearest
from cannc.compiler.core.target import Target

_PATH_CHARACTERS = re.compile(r"[A-Za-z0-9_\-./\u4e00-\u9fa5]")
_USUAL_CODE = {"truth": "E10005", "bit": "E10006"}


def check_value(option: Option, value: str, target: Target) -> None:
    """Refuse a value that ATC would refuse.

    Raises:
        UsageError: ``ATC010`` another word or number, ``ATC011`` not on this chip, ``ATC012`` a
            path with forbidden characters or without a file, ``ATC013`` ATC refuses the option
            itself, ``ATC014`` it belongs to another mode.
    """
    if option.role == "refused":
        raise refuse(
            "ATC013", option.flag, f"--{option.flag} is refused", atc="E10001", why=option.note
        )
    if option.role == "other" and value not in option.values:
        raise refuse(
            "ATC014",
            option.flag,
            f"--{option.flag} does not belong to compiling an ONNX model",
            why="cannc drives ATC's mode 0 with --framework=5",
            fix="leave it out; 'cannc inspect' shows what is in an .om",
        )
    if option.kind in ("file", "folder", "path"):
        _check_path(option, value)
    elif option.kind == "integer":
        _check_integer(option, value)
    elif option.kind != "text":
        for word in value.split(",") if option.kind == "list" else [value]:
            _check_word(option, word.strip(), target)


def forbidden_characters(path: str) -> str:
    """Return the characters of a path that ATC refuses, each once."""
    return "".join(sorted({c for c in path if not _PATH_CHARACTERS.fullmatch(c)}))


def _check_path(option: Option, value: str) -> None:
    bad = forbidden_characters(value)
    if bad:
        raise refuse(
            "ATC012",
            option.flag,
            f"--{option.flag}: the path '{value}' has characters that ATC refuses: '{bad}'",
            atc="E10001",
            why="paths may hold letters, digits, Chinese characters and _ - . /",
            fix="rename the file or folder",
        )
    exists = Path(value).is_dir() if option.kind == "folder" else Path(value).is_file()
    if option.kind != "path" and not exists:
        raise refuse(
            "ATC012",
            option.flag,
            f"--{option.flag}: there is no {option.kind} '{value}'",
            atc=option.code or "E10001",
            fix="check the path",
        )


def _check_integer(option: Option, value: str) -> None:
    try:
        number = int(value)
    except ValueError:
        number = None
    low, high = option.least, option.most
    if number is None or (low is not None and number < low) or (high is not None and number > high):
        bounds = f"{low} to {high}" if high is not None else f"at least {low}"
        raise refuse(
            "ATC010",
            option.flag,
            f"--{option.flag} cannot be '{value}'",
            atc=option.code or "E10001",
            fix=f"a whole number, {bounds}",
        )


def _check_word(option: Option, word: str, target: Target) -> None:
    allowed = {"bit": ("0", "1"), "truth": ("true", "false")}.get(option.kind, option.values)
    here = (*allowed, *option.chips.get(target.family, ()))
    if word in here:
        return
    elsewhere = [family for family, words in option.chips.items() if word in words]
    if elsewhere:
        raise refuse(
            "ATC011",
            option.flag,
            f"--{option.flag}={word} does not exist for {target.soc}",
            atc="E10001",
            why=f"only {', '.join(elsewhere)} take it",
            fix=f"use {', '.join(here)}",
        )
    raise refuse(
        "ATC010",
        option.flag,
        f"--{option.flag} cannot be '{word}'{nearest(word, here)}",
        atc=option.code or _USUAL_CODE.get(option.kind, "E10001"),
        fix=f"use {', '.join(here)}",
    )
