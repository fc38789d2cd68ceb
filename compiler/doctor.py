"""What is installed on this machine, and what each part enables."""

from __future__ import annotations

import importlib.metadata
import importlib.util
import os
import platform
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from cannc.compiler.backends.atc import environment
from cannc.compiler.backends.atc.discovery import HOME_VARIABLES, Atc, find_atc
from cannc.compiler.core.errors import MissingToolError, UsageError, nearest
from cannc.compiler.runtime.acl.api import device_count


@dataclass(frozen=True)
class Finding:
    """One part of the installation.

    Attributes:
        name: As ``--require`` takes it.
        present: Whether it can be used.
        version: Its version or place; "" when unknown.
        enables: What works with it.
        advice: What to do when it is missing or incomplete; "" when nothing needs doing.
    """

    name: str
    present: bool
    version: str
    enables: str
    advice: str = ""


def examine(atc: Path | None = None) -> list[Finding]:
    """Look at everything that cannc can use, without loading what is heavy.

    Args:
        atc: Where ATC is said to be.
    """
    found = _find(atc)
    findings = [_python(), *_packages()]
    findings += [*_atc(found), _opp(found), _acl(), _device(), _memory()]
    return findings


def require(findings: list[Finding], names: tuple[str, ...]) -> None:
    """Refuse when a part is missing.

    Raises:
        UsageError: ``DOC001`` no part of that name.
        MissingToolError: ``DOC002`` parts that are missing.
    """
    by_name = {finding.name: finding for finding in findings}
    for name in names:
        if name not in by_name:
            raise UsageError(
                "DOC001",
                f"there is no part '{name}'{nearest(name, by_name)}",
                where="--require",
                fix=f"parts: {', '.join(by_name)}",
            )
    missing = [by_name[name] for name in names if not by_name[name].present]
    if missing:
        raise MissingToolError(
            "DOC002",
            f"missing: {', '.join(finding.name for finding in missing)}",
            fix="; ".join(finding.advice for finding in missing if finding.advice),
        )


def _find(atc: Path | None) -> Atc | None:
    try:
        return find_atc(atc)
    except MissingToolError:
        return None  # the report says so


def _python() -> Finding:
    ok = sys.version_info >= (3, 10)
    advice = "" if ok else "install Python 3.10 or newer"
    return Finding("python", ok, platform.python_version(), "cannc itself", advice)


def _packages() -> Iterator[Finding]:
    for name, enables, extra in _PACKAGES:
        present = importlib.util.find_spec(name) is not None
        version = importlib.metadata.version(name) if present else ""
        advice = "" if present else f"pip install '{extra}'"
        yield Finding(name, present, version, enables, advice)


_PACKAGES = (
    ("onnx", "reading and writing models", "onnx"),
    ("onnxruntime", "the host backend: run, compare, verify", "onnxruntime"),
    ("torch", "convert from PyTorch", "cannc[torch]"),
    ("transformers", "convert from Hugging Face (hf:DIR)", "cannc[hf]"),
)
"""Package, what it enables, what to install."""


def _atc(found: Atc | None) -> Iterator[Finding]:
    enables = "artifacts for a device (--backend atc)"
    if found is None:
        advice = "install the CANN toolkit and source its set_env.sh, or give --atc PATH"
        yield Finding("atc", False, "", enables, advice)
        yield Finding("atc-python", False, "", "ATC's kernel compiler")
        return
    version = f"{found.version or 'version unknown'}, {found.path}"
    sourced = any(os.environ.get(name) for name in HOME_VARIABLES)
    line = f"source {found.set_env}" if found.set_env and not sourced else ""
    yield Finding("atc", True, version, enables, line)
    yield _atc_python(found)


def _atc_python(found: Atc) -> Finding:
    missing = environment.missing_modules(environment.clean_environment(found))
    enables = "ATC's kernel compiler"
    if missing is None:
        advice = "put a python3 that the toolkit supports first on PATH (E40002, E40020)"
        return Finding(
            "atc-python", False, "no python3 outside cannc's environment", enables, advice
        )
    if missing:
        pip = " ".join({"attr": "attrs", "yaml": "pyyaml"}.get(name, name) for name in missing)
        advice = f"python3 -m pip install {pip}  (for the python3 that ATC starts; E40020)"
        return Finding("atc-python", False, f"lacks {', '.join(missing)}", enables, advice)
    return Finding("atc-python", True, "requirements found", enables)


def _opp(found: Atc | None) -> Finding:
    named = os.environ.get("ASCEND_OPP_PATH")
    folder = Path(named) if named else found.home / "opp" if found and found.home else None
    present = folder is not None and folder.is_dir()
    advice = ""
    if found is not None and not present:
        advice = "install the operator package of the target chip and source set_env.sh (E10501)"
    place = str(folder) if present else ""
    return Finding("operator-package", present, place, "kernels for ATC to compile", advice)


def _acl() -> Finding:
    present = importlib.util.find_spec("acl") is not None
    advice = "" if present else "source the toolkit's set_env.sh, which puts pyACL on PYTHONPATH"
    return Finding("acl", present, "", "talking to a device from Python", advice)


def _device() -> Finding:
    count = device_count()
    advice = "" if count else "npu-smi info shows whether the driver sees a device"
    text = f"{count} found" if count else ""
    return Finding(
        "device", count > 0, text, "running artifacts on a device (--backend acl)", advice
    )


def _memory() -> Finding:
    size = environment.total_memory_bytes()
    small = size < environment.SMALL_MEMORY_BYTES
    advice = "ATC will compile one kernel at a time; add swap if it is killed" if small else ""
    return Finding(
        "memory", not small, f"{size / 2**30:.0f} GiB", "compiling kernels in parallel", advice
    )
