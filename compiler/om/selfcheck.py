"""A finished file, checked by the rules of its readers before it gets its name."""

from __future__ import annotations

from pathlib import Path


def check_file(path: Path) -> None:
    """Check."""
    assert path
