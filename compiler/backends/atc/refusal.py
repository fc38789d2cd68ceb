"""How an option is refused before ATC starts: in our words, with ATC's own code named."""

from __future__ import annotations

from cannc.compiler.core.errors import UsageError


def refuse(
    code: str, flag: str, what: str, *, atc: str = "", why: str = "", fix: str = ""
) -> UsageError:
    """Return the error; the caller raises it.

    Args:
        code: Our code.
        flag: Option concerned, without dashes.
        what: What is wrong, naming the option.
        atc: The code that ATC would print; empty when ATC would accept it and go wrong.
        why: The rule.
        fix: What to write instead.
    """
    named = f"ATC refuses it as {atc}" if atc else ""
    reason = "; ".join(part for part in (why, named) if part)
    return UsageError(code, what, where=f"--{flag}", why=reason, fix=fix)
