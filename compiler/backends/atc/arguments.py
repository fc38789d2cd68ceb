"""ATC's options as users write them: ``--flag=value`` texts, or a mapping in the library (D23)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from cannc.compiler.backends.atc.refusal import refuse
from cannc.compiler.backends.atc.table import option_table
from cannc.compiler.core.errors import UsageError, nearest

Given = Mapping[str, object]
"""Flag, with or without dashes -> text, number, truth value, or a sequence of them."""


def parse_arguments(texts: Iterable[str]) -> dict[str, str]:
    """Read ``--flag=value`` (or ``--flag value``) texts into a mapping.

    Raises:
        UsageError: ``ATC001`` not of that form, ``ATC002`` one flag with two values.
    """
    found: dict[str, str] = {}
    for text in texts:
        stripped = text.strip()
        separator = "=" if "=" in stripped else " "
        flag, given, value = stripped.partition(separator)
        if not flag.startswith("-") or not flag.strip("- ") or not given:
            raise UsageError(
                "ATC001",
                f"'{text}' is not an option of ATC",
                where="--atc-arg",
                fix="write --atc-arg=--flag=value; quote values that hold ;",
            )
        _put(found, _name(flag), value.strip())
    return found


def merge(given: Mapping[str, str], ours: Mapping[str, str]) -> dict[str, str]:
    """Return ATC's options with the ones that cannc's own flags stand for (D23).

    Raises:
        UsageError: ``ATC002`` the two contradict each other.
    """
    options = dict(given)
    for flag, value in ours.items():
        _put(options, flag, value)
    return options


def normalize(given: Given) -> dict[str, str]:
    """Return flag -> text, with outer spaces trimmed.

    Raises:
        UsageError: ``ATC002`` one flag with two values, ``ATC003`` empty.
    """
    options: dict[str, str] = {}
    for flag, value in given.items():
        name = _name(flag)
        _put(options, name, _text(name, value))
    for flag, text in options.items():
        if not text:
            code = "E10054" if flag in ("soc_version", "output", "model") else "E10004"
            fix = "give a value, or leave the option out; a shell cuts values at an unquoted ;"
            raise refuse("ATC003", flag, f"--{flag} is empty", atc=code, fix=fix)
    return options


def unknown(options: Iterable[str]) -> list[str]:
    """Return a note for each flag that the option table does not have; ATC gets it as it is."""
    known = [row.flag for row in option_table().options]
    return [
        f"--{flag} is passed to ATC unchecked (give paths in it from /){nearest(flag, known)}"
        for flag in options
        if flag not in known
    ]


def _put(options: dict[str, str], flag: str, value: str) -> None:
    if options.get(flag, value) != value:
        raise refuse(
            "ATC002",
            flag,
            f"--{flag} is given two values: '{options[flag]}' and '{value}'",
            why="the two contradict each other",
            fix="keep one",
        )
    options[flag] = value


def _name(flag: str) -> str:
    return flag.strip().lstrip("-").strip()


def _text(flag: str, value: object) -> str:
    if isinstance(value, bool):
        row = option_table().get(flag)
        return str(int(value)) if row and row.kind == "bit" else str(value).lower()
    if isinstance(value, (list, tuple)):
        return ",".join(_text(flag, item) for item in value)
    return str(value).strip()
