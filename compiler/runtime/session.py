"""Running an artifact: load once, run many."""

from __future__ import annotations

import time
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Any

from cannc.compiler.core.errors import MissingToolError, UsageError
from cannc.compiler.runtime.acl_device import device_count
from cannc.compiler.runtime.artifact import load_om
from cannc.compiler.runtime.host_session import HostSession
from cannc.compiler.runtime.ports import Port
from cannc.compiler.runtime.random_feeds import random_feeds

BACKENDS = ("auto", "acl", "host")
HOST_DEVICE = "host (simulated float16)"


class Session:
    """An ``.om`` loaded for inference. Nothing but that file is read.

    One session may be used by several threads at once. Use it as a context manager or call `close`.

    Attributes:
        path: The artifact.
        device_name: What the numbers come from, as reports must say it.
        inputs: What to feed, in order.
        outputs: What comes back, in order.
        init_ms: Milliseconds that loading took.
    """

    def __init__(
        self, om: str | Path, backend: str = "auto", device: int = 0, *, low_memory: bool = False
    ) -> None:
        """Load an artifact.

        Args:
            om: Path of the .om file.
            backend: ``host``, ``acl``, or ``auto``: acl where pyACL and a device are, else host.
            device: Device number, for acl.
            low_memory: Host: keep weights as stored, at the price of speed.

        Raises:
            UsageError: ``RUN011`` unknown backend, ``RUN012`` not an .om.
            MissingToolError: ``RUN010`` the artifact needs a device, ``RUN013`` acl cannot be used.
            ModelError: the file is damaged, or onnxruntime refuses its graph.
        """
        started = time.perf_counter()
        self.path = Path(om)
        _check(self.path, backend, device)
        self.device_name = HOST_DEVICE
        self._host: HostSession | None = HostSession(
            load_om(self.path).model, low_memory=low_memory
        )
        self.inputs: list[Port] = self._host.inputs
        self.outputs: list[Port] = self._host.outputs
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
            UsageError: ``INP001`` to ``INP006`` the inputs do not fit, ``RUN014`` closed.
            ModelError: ``RUN002`` a node failed.
        """
        if self._host is None:
            raise UsageError("RUN014", "the session is closed", where=str(self.path))
        return self._host.run(feeds, allow_nan=allow_nan)

    def random_inputs(self, seed: int = 0) -> dict[str, Any]:
        """Return seeded random inputs; see `random_feeds`."""
        return random_feeds(self.inputs, seed)

    def close(self) -> None:
        """Release weights and buffers. Calling it again does nothing."""
        self._host = None

    def __enter__(self) -> Session:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()


def _check(path: Path, backend: str, device: int) -> None:
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
    if backend != "acl":
        return
    found = device_count()
    raise MissingToolError(
        "RUN013",
        "the acl backend cannot be used",
        where=f"device {device}",
        why=(
            "pyACL or a device is missing on this machine"
            if found == 0
            else "this version of cannc does not drive devices yet"
        ),
        fix="use backend host, which simulates the device's numerics",
    )
