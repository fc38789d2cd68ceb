"""From a file and a backend to what runs it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cannc.compiler.core.errors import CanncError, ModelError
from cannc.compiler.om.reader import OmFile
from cannc.compiler.runtime.acl.api import device_acl
from cannc.compiler.runtime.acl.executor import AclExecutor
from cannc.compiler.runtime.acl.status import AclError
from cannc.compiler.runtime.artifact import open_host
from cannc.compiler.runtime.engine import Engine
from cannc.compiler.runtime.host_acl.acl import HostAcl, host_acl
from cannc.compiler.runtime.host_acl.loaded import LoadedModel
from cannc.compiler.runtime.naming import name_sizes
from cannc.compiler.runtime.ports import Port
from cannc.compiler.runtime.sizes import Sizes

BACKENDS = ("auto", "acl", "host")
HOST_DEVICE = "host (simulated float16)"


@dataclass(frozen=True)
class Opened:
    """A loaded artifact.

    Attributes:
        engine: What runs it.
        device_name: What the numbers come from.
        inputs: What to feed.
        outputs: What comes back.
        sizes: Gears and ranges.
        exact: What runs any size, to judge padding; None on a device.
    """

    engine: Engine
    device_name: str
    inputs: list[Port]
    outputs: list[Port]
    sizes: Sizes
    exact: Engine | None


def open_engine(
    path: Path, backend: str, device: int, in_flight: int, *, low_memory: bool
) -> Opened:
    """Load an artifact; see `Session`."""
    om = OmFile.open(path)
    if backend == "host" or (backend == "auto" and om.is_host):
        return _open_host(path, in_flight, low_memory=low_memory)
    api = device_acl(device)
    if om.is_host:
        raise ModelError(
            "RUN013",
            "this artifact holds no device code",
            where=str(path),
            why="the host backend compiled it",
            fix="compile it with --backend atc, or run it with --backend host",
        )
    return _open_device(om, api, device, in_flight)


def _open_device(om: OmFile, api: Any, device: int, in_flight: int) -> Opened:
    engine = AclExecutor(api, om.path, device, in_flight)
    try:
        model, info = engine.model, om.interface
        inputs, outputs = model.inputs, model.outputs
        if model.gears is not None:
            inputs, outputs = name_sizes(inputs, outputs, model.gears, engine.gear_results())
    except BaseException:
        engine.close()
        raise
    stated = info.inputs if info is not None else []
    ranges = {tensor.name: tensor.ranges for tensor in stated if tensor.ranges}
    name = f"{api.get_soc_name()} (device {device})"
    return Opened(engine, name, inputs, outputs, Sizes(model.gears, ranges), None)


def _open_host(path: Path, in_flight: int, *, low_memory: bool) -> Opened:
    om = open_host(path)
    api = host_acl(low_memory=low_memory)
    loaded = LoadedModel(om, low_memory=low_memory)
    sizes = Sizes.of(om)
    engine: Engine = loaded
    if loaded.is_plain:
        with api.mdl.offering(om.path, loaded):
            engine = _Explained(AclExecutor(api, om.path, 0, in_flight), api)
    return Opened(engine, HOST_DEVICE, loaded.inputs, loaded.outputs, sizes, loaded)


class _Explained:
    """The acl path on a host, with the host's own errors, which say more than return codes."""

    def __init__(self, executor: AclExecutor, api: HostAcl) -> None:
        self._executor, self._api = executor, api

    def run(self, feeds: Mapping[str, Any], gear: int | None) -> dict[str, Any]:
        """See `Engine`."""
        try:
            return self._executor.run(feeds, gear)
        except AclError as error:
            cause: CanncError | None = self._api.state.cause
            if cause is None:
                raise
            raise cause from error

    def close(self) -> None:
        """See `Engine`."""
        self._executor.close()
