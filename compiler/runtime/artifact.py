"""Opening what stages hand to each other: ONNX files and host artifacts."""

from __future__ import annotations

from pathlib import Path

from cannc.compiler.core.errors import MissingToolError
from cannc.compiler.core.unit import CompileUnit, load
from cannc.compiler.om.reader import OmFile

OM_SUFFIX = ".om"


def load_artifact(path: Path) -> CompileUnit:
    """Return the unit of an ``.onnx`` file or of a host ``.om``, provenance included.

    Weights stay mapped in the file that they come from.

    Raises:
        MissingToolError: ``RUN010`` the .om holds device code and no graph that a host could run.
        ModelError, UsageError: it cannot be read; codes of `load` and `OmFile`.
    """
    return load_om(path) if path.suffix.lower() == OM_SUFFIX else load(path)


def load_om(path: Path) -> CompileUnit:
    """Return the unit of a host artifact; see `load_artifact`. Gears give the one model of all."""
    return CompileUnit.of(open_host(path).to_model(), path)


def open_host(path: Path) -> OmFile:
    """Open an artifact that a host can run.

    Raises:
        MissingToolError: ``RUN010`` it needs a device.
        ModelError, UsageError: it cannot be read.
    """
    om = OmFile.open(path)
    if not om.is_host:
        raise MissingToolError(
            "RUN010",
            "this artifact needs a device",
            where=str(path),
            why="ATC compiled it: it holds device code and no ONNX graph",
            fix="run it where pyACL and a device are, or compile with --backend host",
        )
    return om
