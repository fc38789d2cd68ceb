"""How long a run takes, with initialisation kept apart."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, Protocol

import numpy as np

from cannc.compiler.core.errors import UsageError

JITTER_LIMIT = 1.5
"""P99 / P50 above this means that something else disturbed the measurement."""


class Runnable(Protocol):
    """Anything with a ``run``."""

    def run(self, feeds: Mapping[str, Any]) -> dict[str, Any]:
        """Run once."""
        ...


@dataclass(frozen=True)
class Latency:
    """Statistics over the runs after warm-up; times in milliseconds.

    Attributes:
        runs: Number of runs measured.
        mean_ms: Arithmetic mean.
        std_ms: Standard deviation of the sample.
        min_ms: Fastest run.
        max_ms: Slowest run.
        p50_ms: Median.
        p90_ms: 90th percentile, interpolated linearly.
        p99_ms: 99th percentile.
        per_second: Runs per second of measured time.
    """

    runs: int
    mean_ms: float
    std_ms: float
    min_ms: float
    max_ms: float
    p50_ms: float
    p90_ms: float
    p99_ms: float
    per_second: float

    @classmethod
    def of(cls, seconds: list[float]) -> Latency:
        """Return the statistics of measured wall times in seconds."""
        times = np.asarray(seconds) * 1e3
        p50, p90, p99 = (float(p) for p in np.percentile(times, (50, 90, 99)))
        return cls(
            runs=len(seconds),
            mean_ms=float(times.mean()),
            std_ms=float(times.std(ddof=1)) if len(seconds) > 1 else 0.0,
            min_ms=float(times.min()),
            max_ms=float(times.max()),
            p50_ms=p50,
            p90_ms=p90,
            p99_ms=p99,
            per_second=len(seconds) / sum(seconds),
        )

    @property
    def jitter(self) -> bool:
        """True when the slowest runs are far from the median."""
        return self.p99_ms > JITTER_LIMIT * self.p50_ms

    def __str__(self) -> str:
        """One line for people."""
        text = (
            f"P50 {self.p50_ms:.2f} ms, P90 {self.p90_ms:.2f}, P99 {self.p99_ms:.2f}, "
            f"mean {self.mean_ms:.2f} ± {self.std_ms:.2f} over {self.runs} runs"
        )
        return f"{text}; P99 is far from P50: something else was running" if self.jitter else text

    def to_dict(self) -> dict[str, float]:
        """Return the figures for JSON."""
        return {**asdict(self), "jitter": self.jitter}


def measure(
    session: Runnable, feeds: Mapping[str, Any], *, warmup: int = 3, repeat: int = 20
) -> tuple[dict[str, Any], Latency]:
    """Run `warmup` times unmeasured, then `repeat` times measured.

    Returns:
        The last run's outputs, and the statistics.

    Raises:
        UsageError: ``RUN020`` a count makes no sense.
    """
    if warmup < 0 or repeat < 1:
        raise UsageError(
            "RUN020",
            f"cannot measure {repeat} runs after {warmup} warm-up runs",
            fix="use --repeat of at least 1 and --warmup of at least 0",
        )
    for _ in range(warmup):
        session.run(feeds)
    outputs: dict[str, Any] = {}
    seconds = []
    for _ in range(repeat):
        started = time.perf_counter()
        outputs = session.run(feeds)
        seconds.append(time.perf_counter() - started)
    return outputs, Latency.of(seconds)
