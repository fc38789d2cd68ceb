"""What /proc tells about memory; zero or None on systems without it."""

from __future__ import annotations

import os
from pathlib import Path

_PROC = Path("/proc")
_GROUP_FIELD, _RSS_FIELD = 2, 21
"""Places in /proc/PID/stat, counted after the command name."""


def group_bytes(group: int) -> int:
    """Return the resident bytes of all processes in a process group."""
    pages = 0
    for entry in _PROC.glob("[0-9]*/stat"):
        try:
            fields = entry.read_text().rpartition(")")[2].split()
        except OSError:
            continue  # ended meanwhile
        if len(fields) > _RSS_FIELD and int(fields[_GROUP_FIELD]) == group:
            pages += int(fields[_RSS_FIELD])
    return pages * os.sysconf("SC_PAGE_SIZE")


def available_bytes() -> int | None:
    """Return the memory that the machine can still give, or None."""
    kilobytes = _counter(_PROC / "meminfo", "MemAvailable:")
    return None if kilobytes is None else kilobytes * 1024


def oom_kills() -> int:
    """Return how many processes the kernel has killed for want of memory: here, or in all."""
    counts = [_counter(_PROC / "vmstat", "oom_kill")]
    try:
        groups = (_PROC / "self" / "cgroup").read_text().splitlines()
    except OSError:
        groups = []
    for line in groups:
        path = line.rpartition(":")[2].lstrip("/")
        counts.append(_counter(Path("/sys/fs/cgroup") / path / "memory.events", "oom_kill"))
    return sum(count for count in counts if count is not None)


def _counter(file: Path, name: str) -> int | None:
    try:
        lines = file.read_text().splitlines()
    except OSError:
        return None
    for line in lines:
        words = line.split()
        if words and words[0] == name:
            return int(words[1])
    return None
