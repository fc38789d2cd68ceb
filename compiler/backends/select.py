"""Which backend compiles."""

from __future__ import annotations

import shutil

from cannc.compiler.backends.base import Backend
from cannc.compiler.backends.host import HostBackend
from cannc.compiler.core.errors import MissingToolError, UsageError, nearest

BACKENDS = ("auto", "atc", "host")


def select_backend(name: str) -> Backend:
    """Return a backend; ``auto`` is the host until this version can drive ATC.

    Raises:
        UsageError: ``BCK001`` no such backend.
        MissingToolError: ``BCK002`` ATC cannot be used.
    """
    if name not in BACKENDS:
        raise UsageError(
            "BCK001",
            f"no backend is called '{name}'{nearest(name, BACKENDS)}",
            where="--backend",
            fix=f"use {', '.join(BACKENDS)}",
        )
    if name == "atc":
        found = shutil.which("atc")
        raise MissingToolError(
            "BCK002",
            "the atc backend cannot be used",
            where=found or "atc is not on PATH",
            why="this version of cannc does not drive ATC yet",
            fix="use --backend host, or give the optimized .onnx to atc yourself",
        )
    return HostBackend()
