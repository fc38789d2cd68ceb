"""pyACL stand-ins for tests: the host's, with records of calls and planted failures."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import onnx
import onnx_ir as ir

from cannc.compiler.om.writer import write_om
from cannc.compiler.runtime.host_acl.acl import HostAcl

SHARED, COPIED = 0, 1
"""Run modes."""


class Recorded:
    """Passes calls on, notes their names, and lets the n-th call of one fail with a code."""

    def __init__(self, api: Any, prefix: str = "", shared: Recorded | None = None) -> None:
        self._api, self._prefix = api, prefix
        self._root = shared or self
        if shared is None:
            self.names: list[str] = []
            self.failing: dict[tuple[str, int], int] = {}

    def fail(self, name: str, code: int, time: int = 1) -> None:
        self.failing[name, time] = code

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._api, name)
        full = f"{self._prefix}{name}"
        if name in ("rt", "mdl"):
            return Recorded(found, f"{full}.", self._root)
        if not callable(found):
            return found
        return lambda *args: self._call(full, found, args)

    def _call(self, name: str, function: Any, args: tuple[Any, ...]) -> Any:
        self._root.names.append(name)
        code = self._root.failing.get((name, self._root.names.count(name)))
        if code is None:
            return function(*args)
        return (0, code) if name in GETTERS else code


GETTERS = (
    "rt.create_context",
    "rt.get_run_mode",
    "rt.malloc",
    "mdl.load_from_file",
    "mdl.get_input_dims",
    "mdl.get_output_dims",
    "mdl.get_cur_output_dims",
    "mdl.add_dataset_buffer",
    "mdl.set_dataset_tensor_desc",
)


def opened(mode: int = SHARED) -> HostAcl:
    """Return a host implementation that is ready: initialised, with a device and a context."""
    api = HostAcl(run_mode=mode)
    assert api.init() == 0
    assert api.rt.set_device(0) == 0
    assert api.rt.create_context(0)[1] == 0
    return api


def write(proto: onnx.ModelProto, path: Path, **options: Any) -> Path:
    """Write a host artifact."""
    write_om(ir.from_proto(proto), path, name=path.stem, attributes={}, **options)
    return path
