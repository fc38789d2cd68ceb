"""One run of ATC in its work folder, from the command to the artifact at its place."""

from __future__ import annotations

import logging
import re
import shlex
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from cannc.compiler.backends.atc import environment, process
from cannc.compiler.backends.atc.diagnosis import SUCCESS_LINE, NodeFacts, diagnose, warnings
from cannc.compiler.backends.atc.discovery import Atc
from cannc.compiler.core.errors import ModelError, ToolchainError
from cannc.compiler.core.onnx_io import copy_file
from cannc.compiler.om.partitions import PartitionType
from cannc.compiler.om.reader import OmFile

log = logging.getLogger(__name__)

LOG_FILE = "atc.log"
_RENAMED = re.compile(r".+_(?P<os>linux|minios)_(?P<cpu>x86_64|aarch64)\.om")


@dataclass(frozen=True)
class Job:
    """A run of ATC.

    Attributes:
        atc: The tool.
        command: Program and arguments; paths of model and output are relative to `folder`.
        folder: Its work folder; nothing but the hand-over is in it, so every .om there is new.
        timeout_s: Seconds until it is stopped; None: never.
    """

    atc: Atc
    command: list[str]
    folder: Path
    timeout_s: float | None = None

    def run(self, nodes: Mapping[str, NodeFacts]) -> tuple[Path, list[str]]:
        """Run ATC; return the file that it wrote, and notes.

        Args:
            nodes: The nodes of the model by the names that ATC knows them by, for its errors.

        Raises:
            ToolchainError: ``ATC101`` an error of ATC, ``ATC102`` ended by a signal, ``ATC103``
                time-out, ``ATC104`` no artifact, ``ATC105`` it cannot be started.
        """
        log_file = self.folder / LOG_FILE
        outcome = self._start(log_file)
        written = self._written()
        lines = log_file.read_text(encoding="utf-8", errors="replace").splitlines()
        succeeded = outcome.returncode == 0 and any(SUCCESS_LINE in line for line in lines)
        if outcome.timed_out or not succeeded or written is None:
            produced = written is not None
            raise diagnose(outcome, log_file, nodes, produced=produced, timeout_s=self.timeout_s)
        log.info("ATC took %.0f s, %.1f GB", outcome.seconds, outcome.peak_bytes / 1e9)
        notes = [f"ATC warns: {warning}" for warning in warnings(lines)]
        renamed = _RENAMED.fullmatch(written.name)
        if renamed:
            notes.append(f"it holds host code and runs only on {renamed['os']} {renamed['cpu']}")
        return written, notes

    def _start(self, log_file: Path) -> process.Outcome:
        variables = environment.clean_environment(self.atc)
        missing = environment.missing_modules(variables)
        if missing:
            log.warning("ATC's python3 lacks %s: kernels may fail (E40020)", ", ".join(missing))
        log.info("running %s", shlex.join(self.command))
        try:
            return process.run(
                self.command,
                folder=self.folder,
                environment=variables,
                log_file=log_file,
                timeout_s=self.timeout_s,
            )
        except OSError as error:
            raise ToolchainError(
                "ATC105",
                "ATC cannot be started",
                where=str(self.atc.path),
                why=error.strerror or str(error),
                fix="'cannc doctor' shows what is installed",
            ) from error

    def _written(self) -> Path | None:
        """Return the artifact, also under the name that it gets with host code inside."""
        found = sorted(self.folder.glob("*.om"), key=lambda file: len(file.name))
        return found[0] if found else None


def check_artifact(written: Path) -> int:
    """Return the bytes of the weights in an artifact.

    Raises:
        ToolchainError: ``ATC106`` it is no offline model.
    """
    try:
        weights = OmFile.open(written).find(PartitionType.WEIGHTS_DATA)
    except ModelError as error:
        raise ToolchainError(
            "ATC106",
            "ATC wrote a file that is no offline model",
            where=str(written),
            why=f"{error.code}: {error.what}",
            fix=f"look for a full disk; whole log: {written.parent / LOG_FILE}",
        ) from error
    return weights.size if weights else 0


def deliver(written: Path, folder: Path, out: Path) -> None:
    """Move the artifact and its external weights to their place."""
    stored = folder / "weight"
    if stored.is_dir():
        shutil.copytree(stored, out.parent / "weight", dirs_exist_ok=True)
    for combined in folder.glob("*_weight_combined*"):
        copy_file(combined, out.parent / combined.name)
    try:
        written.replace(out)
    except OSError:
        # Another file system: copied to a temporary name beside it, then renamed.
        copy_file(written, out)
