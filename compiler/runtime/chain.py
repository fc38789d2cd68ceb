"""Running the parts of a split model one after the other on this machine."""

from __future__ import annotations

import time
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Any

import onnx_ir as ir

from cannc.compiler.core.errors import MissingToolError, ModelError, UsageError
from cannc.compiler.core.unit import load
from cannc.compiler.runtime.feeding import prepare_feeds
from cannc.compiler.runtime.host_session import HostSession
from cannc.compiler.runtime.opening import HOST_DEVICE
from cannc.compiler.runtime.pipeline_file import PartRow, PipelineFile, Source, file_digest
from cannc.compiler.runtime.ports import Port
from cannc.compiler.runtime.random_feeds import random_feeds
from cannc.compiler.runtime.session import Session


class Chain:
    """A ``pipeline.json`` loaded for inference: used like a `Session`.

    Attributes:
        path: The file.
        device_name: What the numbers come from, as reports must say it.
        inputs: What to feed, in order.
        outputs: What comes back, in order.
        init_ms: Milliseconds that loading took.
    """

    def __init__(
        self, path: str | Path, backend: str = "host", device: int = 0, *, low_memory: bool = False
    ) -> None:
        """Load all parts.

        Args:
            path: The ``pipeline.json`` of a split model.
            backend: ``host`` or ``auto``.
            device: Not used by the host.
            low_memory: Keep weights as stored, at the price of speed.

        Raises:
            UsageError: ``IO010`` a file is missing.
            MissingToolError: ``RUN013`` parts are ONNX files, which no device runs.
            ModelError: ``PIPE001`` malformed, ``PIPE002`` a part is not the one that was written,
                or onnxruntime refuses it.
        """
        started = time.perf_counter()
        self.path = Path(path)
        if backend not in ("host", "auto"):
            raise MissingToolError(
                "RUN013",
                f"a pipeline cannot run on backend '{backend}'",
                where=f"device {device}",
                why="its parts are ONNX files",
                fix="compile each part for the device, or use backend host",
            )
        self.device_name = HOST_DEVICE
        self._file = PipelineFile.read(self.path)
        self._parts: list[HostSession] = [
            HostSession(_load(self.path.parent, row), low_memory=low_memory)
            for row in self._file.parts
        ]
        self._last_reader = self._last_readers()
        self.inputs: list[Port] = self._input_ports()
        self.outputs: list[Port] = [self._port(w.source, w.name) for w in self._file.outputs]
        self.init_ms = (time.perf_counter() - started) * 1e3

    def run(self, feeds: Mapping[str, Any], *, allow_nan: bool = False) -> dict[str, Any]:
        """Run all parts once; see `Session.run`.

        Raises:
            UsageError: ``INP001`` to ``INP006`` the inputs do not fit, ``RUN014`` closed.
            ModelError: ``RUN002`` a node failed.
        """
        if not self._parts:
            raise UsageError("RUN014", "the pipeline is closed", where=str(self.path))
        ready = prepare_feeds(self.inputs, feeds, allow_nan=allow_nan)
        values: dict[tuple[Source, str], Any] = {("input", n): a for n, a in ready.items()}
        for index, (row, part) in enumerate(zip(self._file.parts, self._parts, strict=True)):
            results = part.run({wire.name: values[wire.source, wire.name] for wire in row.inputs})
            values.update({(index, name): array for name, array in results.items()})
            for key in [k for k in values if self._last_reader.get(k, -1) <= index]:
                del values[key]
        return {wire.name: values[wire.source, wire.name] for wire in self._file.outputs}

    def random_inputs(self, seed: int = 0) -> dict[str, Any]:
        """Return seeded random inputs; see `random_feeds`."""
        return random_feeds(self.inputs, seed)

    def close(self) -> None:
        """Release weights and buffers. Calling it again does nothing."""
        self._parts = []

    def __enter__(self) -> Chain:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def _last_readers(self) -> dict[tuple[Source, str], int]:
        """Return value -> last part that reads it; outputs of the whole are read after all."""
        last: dict[tuple[Source, str], int] = {}
        for index, row in enumerate(self._file.parts):
            last.update({(wire.source, wire.name): index for wire in row.inputs})
        end = len(self._file.parts)
        last.update({(wire.source, wire.name): end for wire in self._file.outputs})
        return last

    def _input_ports(self) -> list[Port]:
        """Return the ports of the whole model's inputs: each is an input of some part."""
        ports: dict[str, Port] = {}
        for row, part in zip(self._file.parts, self._parts, strict=True):
            fed = {wire.name for wire in row.inputs if wire.source == "input"}
            ports.update({port.name: port for port in part.inputs if port.name in fed})
        return [ports[row.name] for row in self._file.inputs]

    def _port(self, source: Source, name: str) -> Port:
        ports = self.inputs if source == "input" else self._parts[source].outputs
        return next(port for port in ports if port.name == name)


def open_session(
    path: Path, backend: str = "auto", device: int = 0, **options: Any
) -> Session | Chain:
    """Open an artifact or a ``pipeline.json``; `options` are those of `Session`."""
    if path.suffix.lower() == ".json":
        return Chain(path, backend, device)
    return Session(path, backend, device, **options)


def _load(folder: Path, row: PartRow) -> ir.Model:
    """Return the model of a part, once it is known to be the one that the file describes."""
    path = folder / row.file
    unit = load(path)
    if file_digest(path) != row.sha256:
        raise ModelError(
            "PIPE002",
            f"{row.file} is not the part that was written",
            where=str(path),
            why="its digest differs from the one in the pipeline file",
            fix="write all parts again with 'cannc split'",
        )
    return unit.model
