"""Where ATC is, which version it has, and what must be sourced before it runs."""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from cannc.compiler.core.errors import MissingToolError

HOME_VARIABLES = ("ASCEND_HOME_PATH", "ASCEND_TOOLKIT_HOME")
_DEFAULT_HOMES = (
    "/usr/local/Ascend/ascend-toolkit/latest",
    "/usr/local/Ascend/cann",
    "/usr/local/Ascend/latest",
    "~/Ascend/ascend-toolkit/latest",
    "~/Ascend/cann",
    "~/Ascend/latest",
)
_BINARIES = ("bin/atc", "compiler/bin/atc", "atc/bin/atc")
_VERSION_FILES = (
    "*/ascend_toolkit_install.info",
    "ascend_toolkit_install.info",
    "version.cfg",
    "version.info",
    "compiler/version.info",
)
_VERSION = re.compile(r"^\s*(?:toolkit_installed_version|version)\s*=\s*(.+)$", re.I | re.M)
_RELEASE = re.compile(r"\d+\.\d+(?:\.\w+)*")


@dataclass(frozen=True)
class Atc:
    """An ATC that can be run.

    Attributes:
        path: The executable.
        home: Root folder of its toolkit; None when it cannot be told.
        version: CANN release as its files state it; None when they do not.
        set_env: Script that sets the toolkit's environment, if there is one.
    """

    path: Path
    home: Path | None = None
    version: str | None = None
    set_env: Path | None = None

    @classmethod
    def at(cls, path: Path, home: Path | None = None) -> Atc:
        """Describe the ATC at a path."""
        home = home or _home_of(path)
        return cls(path, home, _version(home), _set_env(home))


def find_atc(
    explicit: Path | None = None,
    environment: Mapping[str, str] | None = None,
    homes: tuple[str, ...] = _DEFAULT_HOMES,
) -> Atc | None:
    """Look where users say, on PATH, in the toolkit of the environment, in default folders.

    Args:
        explicit: What ``--atc`` says.
        environment: Variables; default: this process's.
        homes: Toolkit folders to try last.

    Raises:
        MissingToolError: ``BCK002`` nothing that can be run at `explicit`.
    """
    variables = os.environ if environment is None else environment
    if explicit is not None:
        return Atc.at(_executable(explicit))
    on_path = shutil.which("atc", path=variables.get("PATH", ""))
    if on_path:
        return Atc.at(Path(on_path))
    named = (variables[name] for name in HOME_VARIABLES if variables.get(name))
    for home in (Path(text).expanduser() for text in (*named, *homes)):
        for binary in _BINARIES:
            if os.access(home / binary, os.X_OK):
                return Atc.at(home / binary, home)
    return None


def require_atc(explicit: Path | None = None) -> Atc:
    """Return ATC, or raise.

    Raises:
        MissingToolError: ``BCK002`` it is not installed, or not where ``--atc`` says.
    """
    found = find_atc(explicit)
    if found is None:
        raise MissingToolError(
            "BCK002",
            "ATC was not found",
            where=f"PATH, {', '.join(HOME_VARIABLES)}, {', '.join(_DEFAULT_HOMES)}",
            why="the CANN toolkit is not installed here, or its environment is not set",
            fix="source its set_env.sh, give --atc PATH, or use --backend host",
        )
    return found


def _executable(path: Path) -> Path:
    candidates = [path, *(path / binary for binary in _BINARIES), path / "atc"]
    for candidate in candidates:
        if candidate.is_file() and os.access(candidate, os.X_OK):
            return candidate.absolute()
    raise MissingToolError(
        "BCK002",
        "there is no ATC to run",
        where=f"--atc {path}",
        why="no such file" if not path.exists() else "it is not executable",
        fix="give the path of the atc executable, or of the toolkit's folder",
    )


def _home_of(path: Path) -> Path | None:
    """Return the toolkit that an executable belongs to: where the operator package lies.

    ``bin/atc`` is often a link into a folder per component or per CPU, which has version files of
    its own, so those are only the second choice.
    """
    parents = [*path.absolute().parents[:4], *path.resolve().parents[:4]]
    with_operators = (parent for parent in parents if (parent / "opp").is_dir())
    with_version = (parent for parent in parents if any(_version_files(parent)))
    return next(with_operators, None) or next(with_version, None)


def _version_files(home: Path) -> Iterator[Path]:
    for pattern in _VERSION_FILES:
        yield from sorted(home.glob(pattern))


def _version(home: Path | None) -> str | None:
    for file in _version_files(home) if home else ():
        found = _VERSION.search(file.read_text(encoding="utf-8", errors="replace"))
        releases = _RELEASE.findall(found[1]) if found else []
        if releases:
            # "[7.3.0.1.231:8.0.RC2]": the release stands last, after the component's number.
            return str(releases[-1])
    return None


def _set_env(home: Path | None) -> Path | None:
    if home is None:
        return None
    for candidate in (home / "set_env.sh", home.parent / "set_env.sh"):
        if candidate.is_file():
            return candidate
    return None
