"""The error that this room raises about a file that cannot be used."""

from __future__ import annotations

from pathlib import Path

from cannc.compiler.core.errors import ModelError


def damaged(code: str, what: str, path: Path | str, why: str, fix: str = "") -> ModelError:
    """Return the error for a file that is cut off, changed, or not what it claims to be."""
    return ModelError(
        code,
        what,
        where=str(path),
        why=why,
        fix=fix or "fetch or compile the file again; it is damaged or was cut off",
    )
