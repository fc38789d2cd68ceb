"""Time that runs take after loading."""

from __future__ import annotations

import threading


class Steady:
    """Counts runs; threads may add at once.

    Attributes:
        runs: How many there were.
        first_ms: The first one, which allocates buffers; 0 before it.
        seconds: All of them together.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self.runs = 0
        self.first_ms = 0.0
        self.seconds = 0.0

    def add(self, seconds: float) -> None:
        """Count a run."""
        with self._lock:
            if not self.runs:
                self.first_ms = seconds * 1e3
            self.runs += 1
            self.seconds += seconds

    @property
    def mean_ms(self) -> float:
        """Milliseconds per run after the first; of the first if there is no other."""
        if self.runs < 2:
            return self.first_ms
        return (self.seconds * 1e3 - self.first_ms) / (self.runs - 1)
