"""Which backend compiles."""

from __future__ import annotations

from pathlib import Path

from cannc.compiler.backends.atc.backend import AtcBackend
from cannc.compiler.backends.atc.discovery import find_atc, require_atc
from cannc.compiler.backends.base import Backend
from cannc.compiler.backends.host import HostBackend
from cannc.compiler.core.errors import UsageError, nearest

BACKENDS = ("auto", "atc", "host")
FALLBACK_NOTE = "ATC was not found: compiled by the host backend ('cannc doctor' tells more)"


def select_backend(name: str, *, atc: Path | None = None, dry_run: bool = False) -> Backend:
    """Return a backend; ``auto`` is ATC where it is installed, else the host.

    Args:
        name: One of `BACKENDS`.
        atc: Where ATC is said to be.
        dry_run: ATC's command is wanted, not its run: then it need not be installed.

    Raises:
        UsageError: ``BCK001`` no such backend.
        MissingToolError: ``BCK002`` ATC is asked for and not installed.
    """
    if name not in BACKENDS:
        raise UsageError(
            "BCK001",
            f"no backend is called '{name}'{nearest(name, BACKENDS)}",
            where="--backend",
            fix=f"use {', '.join(BACKENDS)}",
        )
    if dry_run and name != "host":
        return AtcBackend()
    if name == "atc":
        require_atc(atc)
        return AtcBackend()
    return AtcBackend() if name == "auto" and find_atc(atc) else HostBackend()
