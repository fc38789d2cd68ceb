"""The environment that ATC runs in: the toolkit's, with nothing of our Python (D17, D26)."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

from cannc.compiler.backends.atc.discovery import Atc

PARALLEL = ("TE_PARALLEL_COMPILER", "MAX_COMPILE_CORE_NUMBER")
SMALL_MEMORY_BYTES = 12 * 2**30
"""Boards with less are killed while they compile kernels in parallel (atc-cli.md section 4)."""
REQUIRED_MODULES = ("numpy", "decorator", "sympy", "attr", "psutil", "scipy", "cffi", "yaml")
"""What the toolkit's kernel compiler imports; a missing one shows as E40020 after minutes."""

_OURS = ("PYTHON", "VIRTUAL_ENV", "CONDA_", "LD_PRELOAD", "__PYVENV", "_CE_")
_TOOLKIT_PATHS = {"PATH": ("bin", "compiler/ccec_compiler/bin"), "LD_LIBRARY_PATH": ("lib64",)}
_TOOLKIT_PYTHON = ("python/site-packages", "opp/built-in/op_impl/ai_core/tbe")


def clean_environment(atc: Atc, base: Mapping[str, str] | None = None) -> dict[str, str]:
    """Return the variables for ATC.

    The virtual environment that cannc runs in is left: ATC's kernel compiler starts the ``python3``
    that comes first on PATH, and needs the toolkit's packages there. Where no toolkit environment
    was sourced, the variables that its set_env script sets are added.
    """
    given = dict(os.environ if base is None else base)
    kept = {k: v for k, v in given.items() if not k.startswith(_OURS)}
    mine = {str(Path(sys.prefix) / "bin")} if sys.prefix != sys.base_prefix else set()
    if given.get("VIRTUAL_ENV"):
        mine.add(str(Path(given["VIRTUAL_ENV"]) / "bin"))
    kept["PATH"] = os.pathsep.join(p for p in _paths(given, "PATH") if p not in mine)
    python = _toolkit_part(_paths(given, "PYTHONPATH"), given, atc)
    if atc.home and "ASCEND_OPP_PATH" not in given and (atc.home / "opp").is_dir():
        _add_toolkit(kept, atc.home)
        python = [*(str(atc.home / part) for part in _TOOLKIT_PYTHON), *python]
    if python:
        kept["PYTHONPATH"] = os.pathsep.join(python)
    # ATC's Python writes its output late otherwise, and the log would not be live.
    kept["PYTHONUNBUFFERED"] = "1"
    kept |= {k: v for k, v in _parallelism(given).items() if k not in given}
    return {k: v for k, v in kept.items() if v}


def total_memory_bytes() -> int:
    """Return the machine's memory."""
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


def missing_modules(environment: Mapping[str, str]) -> list[str] | None:
    """Return the modules that ATC's Python lacks; None when there is no ``python3`` for it."""
    script = (
        "import importlib.util, json, sys; "
        "print(json.dumps([m for m in sys.argv[1:] if importlib.util.find_spec(m) is None]))"
    )
    try:
        done = subprocess.run(
            ["/usr/bin/env", "python3", "-c", script, *REQUIRED_MODULES],
            env=dict(environment),
            capture_output=True,
            text=True,
            timeout=60,
            check=True,
        )
        missing: list[str] = json.loads(done.stdout)
    except (OSError, subprocess.SubprocessError, ValueError):
        return None
    return missing


def _parallelism(given: Mapping[str, str]) -> dict[str, str]:
    if total_memory_bytes() >= SMALL_MEMORY_BYTES:
        return {}
    return dict.fromkeys(PARALLEL, "1")


def _add_toolkit(kept: dict[str, str], home: Path) -> None:
    kept["ASCEND_OPP_PATH"] = str(home / "opp")
    for name, folder in (
        ("ASCEND_TOOLKIT_HOME", home),
        ("ASCEND_HOME_PATH", home),
        ("ASCEND_AICPU_PATH", home),
        ("TOOLCHAIN_HOME", home / "toolkit"),
    ):
        kept.setdefault(name, str(folder))
    for name, parts in _TOOLKIT_PATHS.items():
        added = [str(home / part) for part in parts]
        kept[name] = os.pathsep.join([*added, *_paths(kept, name)])


def _toolkit_part(paths: list[str], given: Mapping[str, str], atc: Atc) -> list[str]:
    """Return the entries of PYTHONPATH that lie in the toolkit."""
    roots = [given[k] for k in ("ASCEND_HOME_PATH", "ASCEND_TOOLKIT_HOME") if given.get(k)]
    roots += [str(atc.home)] if atc.home else []
    return [p for p in paths if any(Path(p).is_relative_to(root) for root in roots)]


def _paths(variables: Mapping[str, str], name: str) -> list[str]:
    return [part for part in variables.get(name, "").split(os.pathsep) if part]
