"""How long a run takes, with initialisation kept apart."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
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
        per_second: Runs per second.
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
    def of(cls, seconds: Sequence[float], wall: float | None = None) -> Latency:
        """Return the statistics.

        Args:
            seconds: Wall time of each run.
            wall: Wall time of all runs together, where they overlapped.
        """
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
            per_second=len(seconds) / (sum(seconds) if wall is None else wall),
        )

    @property
    def jitter(self) -> bool:
        """True when the slowest runs are far from the median."""
        return self.p99_ms > JITTER_LIMIT * self.p50_ms

    def __str__(self) -> str:
        """One line for people."""
        text = (
            f"P50 {self.p50_ms:.2f} ms, P90 {self.p90_ms:.2f}, P99 {self.p99_ms:.2f}, "
            f"mean {self.mean_ms:.2f} ± {self.std_ms:.2f} over {self.runs} runs, "
            f"{self.per_second:.1f} runs/s"
        )
        return f"{text}; P99 is far from P50: something else was running" if self.jitter else text

    def to_dict(self) -> dict[str, float]:
        """Return the figures for JSON."""
        return {**asdict(self), "jitter": self.jitter}


def measure(
    session: Runnable,
    samples: Sequence[Mapping[str, Any]],
    keep: Callable[[int, dict[str, Any]], None],
    *,
    warmup: int = 3,
    repeat: int = 20,
    in_flight: int = 1,
) -> Latency:
    """Run the first sample `warmup` times unmeasured, then each sample `repeat` times.

    Args:
        session: What runs.
        samples: Inputs of each sample.
        keep: Called with the number and outputs of each sample's last run, in order; unmeasured
            where one run is in flight.
        warmup: Unmeasured runs.
        repeat: Measured runs of each sample.
        in_flight: How many runs overlap. Each one's time is its own, throughput is of all.

    Raises:
        UsageError: ``RUN020`` a count makes no sense.
    """
    if warmup < 0 or repeat < 1 or in_flight < 1 or not samples:
        raise UsageError(
            "RUN020",
            f"cannot measure {repeat} runs after {warmup} warm-up runs, {in_flight} in flight",
            where=f"{len(samples)} samples",
            fix="use --repeat and --in-flight of at least 1 and --warmup of at least 0",
        )
    for _ in range(warmup):
        session.run(samples[0])

    def timed(index: int) -> tuple[float, dict[str, Any]]:
        started = time.perf_counter()
        outputs = session.run(samples[index])
        return time.perf_counter() - started, outputs

    numbers = [index for index in range(len(samples)) for _ in range(repeat)]
    if in_flight == 1:
        return Latency.of(_kept(map(timed, numbers), repeat, keep))
    started = time.perf_counter()
    with ThreadPoolExecutor(in_flight) as pool:
        seconds = _kept(_window(pool, timed, numbers, in_flight), repeat, keep)
        return Latency.of(seconds, time.perf_counter() - started)


def _kept(
    runs: Iterable[tuple[float, dict[str, Any]]],
    repeat: int,
    keep: Callable[[int, dict[str, Any]], None],
) -> list[float]:
    seconds = []
    for number, (took, outputs) in enumerate(runs):
        seconds.append(took)
        if number % repeat == repeat - 1:
            keep(number // repeat, outputs)
    return seconds


def _window(
    pool: ThreadPoolExecutor,
    work: Callable[[int], tuple[float, dict[str, Any]]],
    numbers: Iterable[int],
    size: int,
) -> Iterator[tuple[float, dict[str, Any]]]:
    """Yield results in order; no more than twice `size` runs are ahead, so results stay few."""
    ahead: deque[Future[tuple[float, dict[str, Any]]]] = deque()
    for number in numbers:
        ahead.append(pool.submit(work, number))
        if len(ahead) >= 2 * size:
            yield ahead.popleft().result()
    while ahead:
        yield ahead.popleft().result()
