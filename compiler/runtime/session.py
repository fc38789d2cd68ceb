"""Running an artifact: load once, run many."""

from __future__ import annotations

import time
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Any

from cannc.compiler.core.errors import MissingToolError, UsageError, nearest
from cannc.compiler.om.gears import Gear
from cannc.compiler.runtime.acl_device import device_count
from cannc.compiler.runtime.artifact import open_host
from cannc.compiler.runtime.gear_session import GearSession
from cannc.compiler.runtime.gears import PADDINGS, Padding
from cannc.compiler.runtime.host_session import HostSession
from cannc.compiler.runtime.ports import Port
from cannc.compiler.runtime.random_feeds import random_feeds
from cannc.compiler.runtime.sizes import Sizes

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
        gears: The sizes that the artifact is compiled for; empty when it has no gears.
        init_ms: Milliseconds that loading took.
    """

    def __init__(
        self,
        om: str | Path,
        backend: str = "auto",
        device: int = 0,
        *,
        low_memory: bool = False,
        padding: Padding = "batch",
    ) -> None:
        """Load an artifact.

        Args:
            om: Path of the .om file.
            backend: ``host``, ``acl``, or ``auto``: acl where pyACL and a device are, else host.
            device: Device number, for acl.
            low_memory: Host: keep weights as stored, at the price of speed.
            padding: How inputs between two gears reach the larger one, results being cut back:
                ``batch`` pads the batch axis of batch gears, ``any`` every axis, ``none`` nothing.
                Inputs that no gear takes are an error. The first padded run of a gear is checked.

        Raises:
            UsageError: ``RUN011`` unknown backend, ``RUN012`` not an .om, ``RUN018`` unknown
                padding.
            MissingToolError: ``RUN010`` the artifact needs a device, ``RUN013`` acl cannot be used.
            ModelError: the file is damaged, or onnxruntime refuses its graph.
        """
        started = time.perf_counter()
        self.path = Path(om)
        _check(self.path, backend, device)
        _check_padding(padding)
        self.device_name = HOST_DEVICE
        om_file = open_host(self.path)
        self._sizes = Sizes.of(om_file)
        gears = self._sizes.gears
        self.gears: tuple[Gear, ...] = gears.gears if gears is not None else ()
        self._host: HostSession | GearSession | None
        if gears is not None:
            self._host = GearSession(om_file, gears, padding, low_memory=low_memory)
        else:
            self._host = HostSession(om_file.to_model(), low_memory=low_memory)
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
            UsageError: ``INP001`` to ``INP006`` the inputs do not fit, ``INP008`` a size is outside
                its range, ``RUN015`` to ``RUN017`` no gear takes them, ``RUN014`` closed.
            ModelError: ``RUN002`` a node failed.
        """
        if self._host is None:
            raise UsageError("RUN014", "the session is closed", where=str(self.path))
        self._sizes.check_ranges(feeds)
        return self._host.run(feeds, allow_nan=allow_nan)

    def random_inputs(self, seed: int = 0) -> dict[str, Any]:
        """Return seeded random inputs; see `random_feeds`.

        They have the sizes of the largest gear, or the most that the ranges allow.
        """
        return random_feeds(self._sizes.fixed(self.inputs), seed)

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


def _check_padding(padding: str) -> None:
    if padding not in PADDINGS:
        raise UsageError(
            "RUN018",
            f"no padding is called '{padding}'{nearest(padding, PADDINGS)}",
            fix=f"use {', '.join(PADDINGS)}",
        )


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
