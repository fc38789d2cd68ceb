"""Running a long external program: live lines, time-out, memory watch."""

from __future__ import annotations

import logging
import os
import signal
import subprocess
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from cannc.compiler.backends.atc import memory

log = logging.getLogger(__name__)

_SAMPLE_SECONDS = 0.2
_SAY_EVERY_SECONDS = 30.0
_GRACE_SECONDS = 5.0


@dataclass(frozen=True)
class Outcome:
    """How a run ended.

    Attributes:
        returncode: As of `subprocess`: negative for a signal.
        seconds: Wall time.
        timed_out: It was stopped because its time was over.
        peak_bytes: Greatest resident memory of the program and its children seen.
        least_available_bytes: Least free memory of the machine seen; None where unknown.
        oom_kills: Processes that the kernel killed for memory meanwhile, in this control group.
    """

    returncode: int
    seconds: float
    timed_out: bool
    peak_bytes: int
    least_available_bytes: int | None
    oom_kills: int

    @property
    def signal(self) -> int | None:
        """The signal that ended it, also when a wrapper script passed it on as 128 + n."""
        if self.returncode < 0:
            return -self.returncode
        return self.returncode - 128 if 128 < self.returncode < 128 + 32 else None


def run(
    command: Sequence[str],
    *,
    folder: Path,
    environment: Mapping[str, str],
    log_file: Path,
    timeout_s: float | None = None,
) -> Outcome:
    """Run a command in a folder; its lines go to the log file and to logging as they come.

    The program and all it started are ended when it ends, when the time is over, and when the
    caller is interrupted.

    Raises:
        OSError: the program cannot be started.
    """
    started = time.monotonic()
    kills_before = memory.oom_kills()
    with log_file.open("w", encoding="utf-8") as record:
        process = subprocess.Popen(
            command,
            cwd=folder,
            env=dict(environment),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            start_new_session=True,
        )
        assert process.stdout is not None
        reader = threading.Thread(target=_relay, args=(process.stdout, record), daemon=True)
        reader.start()
        watch = _Watch(process, started, timeout_s)
        try:
            watch.wait()
        finally:
            _end_group(process)
            reader.join(_GRACE_SECONDS)
            process.stdout.close()
    return Outcome(
        process.returncode,
        time.monotonic() - started,
        watch.timed_out,
        watch.peak_bytes,
        watch.least_available_bytes,
        memory.oom_kills() - kills_before,
    )


class _Watch:
    """Waits for a process, looking at the clock and at its memory."""

    def __init__(
        self, process: subprocess.Popen[str], started: float, timeout_s: float | None
    ) -> None:
        self.process, self.started, self.timeout_s = process, started, timeout_s
        self.timed_out = False
        self.peak_bytes = 0
        self.least_available_bytes = memory.available_bytes()

    def wait(self) -> None:
        said = self.started
        while True:
            try:
                self.process.wait(_SAMPLE_SECONDS)
            except subprocess.TimeoutExpired:
                pass
            else:
                return
            self._sample()
            now = time.monotonic()
            if self.timeout_s is not None and now - self.started > self.timeout_s:
                self.timed_out = True
                return
            if now - said > _SAY_EVERY_SECONDS:
                said = now
                log.info(
                    "ATC has run for %.0f s, %.1f GB", now - self.started, self.peak_bytes / 1e9
                )

    def _sample(self) -> None:
        self.peak_bytes = max(self.peak_bytes, memory.group_bytes(self.process.pid))
        free = memory.available_bytes()
        if free is not None:
            self.least_available_bytes = min(free, self.least_available_bytes or free)


def _relay(stream: IO[str], record: IO[str]) -> None:
    try:
        for line in stream:
            record.write(line)
            record.flush()
            log.info("atc: %s", line.rstrip())
    except ValueError:
        # The stream was closed under us: a child that outlived ATC still held its other end.
        return


def _end_group(process: subprocess.Popen[str]) -> None:
    """End what is left of the process group: first asked, then forced."""
    for number, grace in ((signal.SIGTERM, _GRACE_SECONDS), (signal.SIGKILL, None)):
        try:
            os.killpg(process.pid, number)
        except (ProcessLookupError, PermissionError):
            break
        try:
            process.wait(grace)
        except subprocess.TimeoutExpired:
            continue
    process.wait()
