"""Running an artifact: load once, run many."""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from types import TracebackType
from typing import Any

from cannc.compiler.core.errors import UsageError, nearest
from cannc.compiler.om.gears import Gear
from cannc.compiler.runtime.feeding import prepare_feeds
from cannc.compiler.runtime.fitting import GearRunner
from cannc.compiler.runtime.gears import PADDINGS, Padding
from cannc.compiler.runtime.opening import BACKENDS, open_engine
from cannc.compiler.runtime.ports import Port
from cannc.compiler.runtime.random_feeds import random_feeds
from cannc.compiler.runtime.steady import Steady


class Session:
    """An ``.om`` loaded for inference. Nothing but that file is read.

    A device and a host are driven by the same code: on a host the calls of pyACL are cannc's own.
    One session may be used by several threads at once. Use it as a context manager or call `close`.

    Attributes:
        path: The artifact.
        device_name: What the numbers come from, as reports must say it.
        inputs: What to feed, in order.
        outputs: What comes back, in order.
        gears: The sizes that the artifact is compiled for; empty when it has no gears.
        init_ms: Milliseconds that loading took.
        steady: How many runs there were since, and how long they took.
    """

    def __init__(
        self,
        om: str | Path,
        backend: str = "auto",
        device: int = 0,
        *,
        low_memory: bool = False,
        padding: Padding = "batch",
        in_flight: int = 1,
    ) -> None:
        """Load an artifact.

        Args:
            om: Path of the .om file.
            backend: ``acl``, ``host``, or ``auto``: the one that the artifact was compiled for.
            device: Device number, for acl.
            low_memory: Host: keep weights as stored, at the price of speed.
            padding: How inputs between two gears reach the larger one, results being cut back:
                ``batch`` pads the batch axis of batch gears, ``any`` every axis, ``none`` nothing.
                Inputs that no gear takes are an error. The first padded run of a gear is checked.
            in_flight: How many runs may hold buffers at once; see `submit`.

        Raises:
            UsageError: ``RUN011`` unknown backend, ``RUN012`` not an .om, ``RUN018`` unknown
                padding, ``RUN019`` nothing in flight.
            MissingToolError: ``RUN010`` the artifact needs a device, ``RUN032`` there is none.
            ModelError: the file is damaged, ``RUN013`` it was compiled for the host, or its graph
                is refused.
            ToolchainError: ``RUN030`` to ``RUN034`` the device refuses it.
        """
        started = time.perf_counter()
        self.path = Path(om)
        _check(self.path, backend, padding, in_flight)
        opened = open_engine(self.path, backend, device, in_flight, low_memory=low_memory)
        self.device_name = opened.device_name
        self.inputs: list[Port] = opened.inputs
        self.outputs: list[Port] = opened.outputs
        self._sizes = opened.sizes
        gears = opened.sizes.gears
        self.gears: tuple[Gear, ...] = gears.gears if gears is not None else ()
        self._opened, self._in_flight = opened, in_flight
        self._runner: GearRunner | None = None
        if gears is not None:
            ports = (self.inputs, self.outputs)
            self._runner = GearRunner(opened.engine, gears, padding, ports, opened.exact)
        self._noted: set[str] = set()
        self._lock = threading.Lock()
        self._open = True
        self._pool: ThreadPoolExecutor | None = None
        self.steady = Steady()
        self.init_ms = (time.perf_counter() - started) * 1e3

    def run(self, feeds: Mapping[str, Any], *, allow_nan: bool = False) -> dict[str, Any]:
        """Run once.

        Args:
            feeds: Input name -> array; lists for sequences, None for absent optionals. Floats
                that are too wide and int32/int64 are cast, anything else must match (D4).
            allow_nan: Accept NaN in inputs.

        Returns:
            Output name -> array in the declared dtype.

        Raises:
            UsageError: ``INP001`` to ``INP006`` the inputs do not fit, ``INP008`` a size is outside
                its range, ``RUN015`` to ``RUN017`` no gear takes them, ``RUN014`` closed.
            ModelError: ``RUN002`` a node failed on the host.
            AclError: ``RUN030`` the device failed.
        """
        self._check_open()
        return self._run(feeds, allow_nan=allow_nan)

    def submit(
        self, feeds: Mapping[str, Any], *, allow_nan: bool = False
    ) -> Future[dict[str, Any]]:
        """Start a run and return at once; as many as `in_flight` overlap, others wait.

        The arrays must not change until the run is done. Arguments, results and errors are those
        of `run`.
        """
        with self._lock:
            self._check_open()
            if self._pool is None:
                self._pool = ThreadPoolExecutor(self._in_flight, "cannc-run")
            return self._pool.submit(self._run, feeds, allow_nan=allow_nan)

    def random_inputs(self, seed: int = 0) -> dict[str, Any]:
        """Return seeded random inputs; see `random_feeds`.

        They have the sizes of the largest gear, or the most that the ranges allow.
        """
        return random_feeds(self._sizes.fixed(self.inputs), seed)

    def close(self) -> None:
        """Wait for runs in flight, then release everything. Calling it again does nothing."""
        with self._lock:
            was_open, self._open = self._open, False
        if self._pool is not None:
            self._pool.shutdown()
        if was_open:
            self._opened.engine.close()

    def __enter__(self) -> Session:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def _run(self, feeds: Mapping[str, Any], *, allow_nan: bool) -> dict[str, Any]:
        self._sizes.check_ranges(feeds)
        ready = prepare_feeds(self.inputs, feeds, allow_nan=allow_nan, noted=self._noted)
        started = time.perf_counter()
        if self._runner is not None:
            results = self._runner.run(ready)
        else:
            results = self._opened.engine.run(ready, None)
        self.steady.add(time.perf_counter() - started)
        return results

    def _check_open(self) -> None:
        if not self._open:
            raise UsageError("RUN014", "the session is closed", where=str(self.path))


def _check(path: Path, backend: str, padding: str, in_flight: int) -> None:
    if backend not in BACKENDS:
        raise UsageError(
            "RUN011", f"no backend is called '{backend}'", fix=f"use {', '.join(BACKENDS)}"
        )
    if path.suffix.lower() == ".onnx":
        raise UsageError(
            "RUN012",
            "a session runs .om files",
            where=str(path),
            fix=f"compile it first: cannc compile {path} -o {path.with_suffix('.om')}",
        )
    if padding not in PADDINGS:
        raise UsageError(
            "RUN018",
            f"no padding is called '{padding}'{nearest(padding, PADDINGS)}",
            fix=f"use {', '.join(PADDINGS)}",
        )
    if in_flight < 1:
        raise UsageError("RUN019", f"cannot have {in_flight} runs in flight", fix="use 1 or more")
