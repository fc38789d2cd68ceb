"""Errors that cannc raises on purpose: what went wrong, where, why, and how to fix it.

Subclasses say who must act, and with that the exit code of the command line (0 good, 1 findings,
2 usage or bad input, 3 a tool or device is missing, 4 an external tool failed, 70 our bug).
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable


class CanncError(Exception):
    """Base of every error raised on purpose.

    Attributes:
        code: Stable identifier, e.g. ``ONNX003``; documented and safe to match on.
        what: One line: what went wrong.
        where: File, node, tensor or option concerned.
        why: The reason, in the reader's terms.
        fix: What the reader can do about it.
    """

    exit_code = 70

    def __init__(
        self, code: str, what: str, *, where: str = "", why: str = "", fix: str = ""
    ) -> None:
        super().__init__(what)
        self.code = code
        self.what = what
        self.where = where
        self.why = why
        self.fix = fix

    def __str__(self) -> str:
        """The block that the command line prints; parts that are empty are left out."""
        lines = [f"error[{self.code}]: {self.what}"]
        parts = (("at", self.where), ("why", self.why), ("fix", self.fix))
        lines += [f"  {label:<4} {text}" for label, text in parts if text]
        return "\n".join(lines)


class UsageError(CanncError):
    """The call itself is wrong: options, names, shapes, paths."""

    exit_code = 2


class ModelError(CanncError):
    """The model file, artifact or data cannot be used as it is."""

    exit_code = 2


class UnsupportedOpError(CanncError):
    """The target's compiler would refuse a node."""

    exit_code = 1


class GoldenMismatchError(CanncError):
    """A comparison or verification missed its threshold."""

    exit_code = 1


class PassError(CanncError):
    """A pass broke an invariant of the graph: a bug of cannc, never the user's fault."""

    exit_code = 70


class MissingToolError(CanncError):
    """A tool, device or optional package is not installed."""

    exit_code = 3


class ToolchainError(CanncError):
    """An external tool ran and failed."""

    exit_code = 4


def nearest(name: str, known: Iterable[str]) -> str:
    """Return ``", did you mean 'x'?"`` for the known name closest to `name`, or ``""``."""
    names = list(known)
    close = difflib.get_close_matches(name, names, n=1, cutoff=0.6)
    # Another case of the letters is no spelling that difflib would find for short names.
    close = close or [other for other in names if other.casefold() == name.casefold()]
    return f", did you mean '{close[0]}'?" if close else ""


def add_note(error: BaseException, text: str) -> None:
    """Attach a line to an error that is on its way up; `notes` reads it back (D26)."""
    # Python 3.10 has no add_note, but the attribute that 3.11 keeps notes in works there too.
    error.__notes__ = [*notes(error), text]


def notes(error: BaseException) -> list[str]:
    """Return the lines attached to an error."""
    return list(getattr(error, "__notes__", ()))
