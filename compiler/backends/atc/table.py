"""ATC's options and error codes as data (atc-cli.md sections 2 and 5)."""

from __future__ import annotations

import re
from functools import cache
from importlib import resources
from typing import Any, Literal

import yaml
from pydantic import BaseModel, ConfigDict

Kind = Literal["choice", "integer", "bit", "truth", "file", "folder", "path", "list", "text"]
Role = Literal["free", "owned", "other", "refused", "shapes"]


class _Row(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class Option(_Row):
    """One option.

    Attributes:
        flag: Name without dashes.
        kind: How its value is checked; ``text`` has its own parser, or passes through.
        values: Allowed words of ``choice`` and ``list``.
        chips: SoC family -> further words that only this family takes.
        least: Smallest number of ``integer``.
        most: Greatest number of ``integer``.
        role: ``owned``: cannc sets it; ``other``: belongs to another mode than compiling ONNX;
            ``refused``: ATC itself refuses it; ``shapes``: changes the model's interface.
        code: What ATC prints for a bad value, where it is not the usual code of the kind.
        note: What else to know.
    """

    flag: str
    kind: Kind
    values: tuple[str, ...] = ()
    chips: dict[str, tuple[str, ...]] = {}
    least: int | None = None
    most: int | None = None
    role: Role = "free"
    code: str = ""
    note: str = ""


class Exclusive(_Row):
    """Options of which only one may be given."""

    flags: tuple[str, ...]
    code: str


class Needs(_Row):
    """An option that is refused without another one."""

    flag: str
    needs: str
    code: str


class OptionTable(_Row):
    """All options with the rules between them."""

    options: tuple[Option, ...]
    exclusive: tuple[Exclusive, ...]
    needs: tuple[Needs, ...]

    def get(self, flag: str) -> Option | None:
        """Return the row of a flag, or None."""
        return next((row for row in self.options if row.flag == flag), None)


class ErrorRow(_Row):
    """What a family of error codes means.

    Attributes:
        code: Regular expression over the whole code.
        means: The meaning.
        cure: What usually helps.
    """

    code: str
    means: str
    cure: str


class ErrorTable(_Row):
    """Families of error codes; `follow_up` are codes that only trail the cause."""

    follow_up: str
    errors: tuple[ErrorRow, ...]

    def explain(self, code: str) -> ErrorRow | None:
        """Return the first row that matches a code, or None."""
        return next((row for row in self.errors if re.fullmatch(row.code, code)), None)

    def is_follow_up(self, code: str) -> bool:
        """Tell whether a code says nothing when another one stands beside it."""
        return re.fullmatch(self.follow_up, code) is not None


@cache
def option_table() -> OptionTable:
    """Return ATC's options."""
    return OptionTable.model_validate(_read("options.yaml"))


@cache
def error_table() -> ErrorTable:
    """Return ATC's error codes."""
    return ErrorTable.model_validate(_read("errors.yaml"))


def _read(name: str) -> Any:
    text = (resources.files("cannc.compiler.backends.atc.data") / name).read_text(encoding="utf-8")
    return yaml.safe_load(text)
