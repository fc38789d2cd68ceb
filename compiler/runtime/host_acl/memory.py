"""Device memory of the host implementation: ordinary memory whose limits are known."""

from __future__ import annotations

import ctypes
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from cannc.compiler.core.runner import Array
from cannc.compiler.runtime.host_acl.state import (
    INVALID_PARAM,
    RT_INVALID_PARAM,
    MisuseError,
    State,
)

ALIGNMENT = 64
"""Bytes; enough for any vector load."""


@dataclass(frozen=True)
class _Block:
    data: npt.NDArray[np.uint8]
    size: int


class Memory:
    """Allocations by address.

    Addresses on the device side are checked against them. Those on the host side cannot be: any
    pointer of the process is one.
    """

    def __init__(self, state: State) -> None:
        self._state = state

    def allocate(self, size: int) -> int:
        """Return the address of `size` new bytes.

        Raises:
            MisuseError: no size.
        """
        if size <= 0:
            raise MisuseError(INVALID_PARAM, f"cannot allocate {size} bytes")
        data = np.empty(size + ALIGNMENT, np.uint8)
        address = -(-data.ctypes.data // ALIGNMENT) * ALIGNMENT
        return self._state.add("memory", _Block(data, size), address)

    def free(self, address: int) -> None:
        """Release an allocation.

        Raises:
            MisuseError: it is none, or was freed before.
        """
        self._state.drop("memory", address)

    def view(self, address: int, size: int) -> Array:
        """Return device memory as bytes, without a copy; it stays alive with the result.

        Raises:
            MisuseError: the bytes are not inside one allocation.
        """
        for start, block in self._around(address):
            if start <= address and address + size <= start + block.size:
                begin = address - block.data.ctypes.data
                return block.data[begin : begin + size]
        raise MisuseError(RT_INVALID_PARAM, f"{size} bytes at {address:#x} are no device memory")

    def copy(self, target: int, capacity: int, source: int, count: int, kind: int) -> None:
        """Copy `count` bytes; `kind` is 0 host to host, 1 to the device, 2 back, 3 inside it.

        Raises:
            MisuseError: unknown kind, more than the target holds, or no device memory.
        """
        if kind not in (0, 1, 2, 3) or not 0 < count <= capacity or not (target and source):
            raise MisuseError(
                RT_INVALID_PARAM, f"cannot copy {count} of {capacity} bytes, kind {kind}"
            )
        if kind in (1, 3):
            self.view(target, count)
        if kind in (2, 3):
            self.view(source, count)
        ctypes.memmove(target, source, count)

    def _around(self, address: int) -> list[tuple[int, _Block]]:
        if self._state.has("memory", address):
            return [(address, self._state.get("memory", address))]
        return [*self._state.all("memory").items()]
