"""Memory for one input or output, and the data buffer over it."""

from __future__ import annotations

import ctypes

import numpy as np

from cannc.compiler.core.runner import Array
from cannc.compiler.runtime.acl.calls import Calls
from cannc.compiler.runtime.acl.device import Device

_HUGE_FIRST = 0
_TO_DEVICE, _TO_HOST = 1, 2


class Buffer:
    """Device memory that grows when more is needed.

    Where program and device share memory it is written and read in place; elsewhere bytes are
    copied by pyACL.

    Attributes:
        handle: The data buffer.
    """

    def __init__(self, device: Device, calls: Calls, size: int) -> None:
        """Allocate.

        Args:
            device: Where.
            calls: Scope that releases it.
            size: Bytes; 0 leaves the buffer empty, for the run to allocate.
        """
        self._calls, self._shared = calls, device.shares_memory
        self._address, self._capacity = 0, 0
        calls.after(self.free)
        self.handle = calls.made("create_data_buffer", *self._allocate(size))
        calls.later("destroy_data_buffer", self.handle)

    def write(self, array: Array, *, exact: bool) -> None:
        """Put an array into the memory.

        Args:
            array: Contiguous.
            exact: The buffer must have just its size, as range shapes want it.
        """
        size = max(array.nbytes, 1)
        if size > self._capacity:
            self.free()
            self._allocate(size)
        if exact:
            self._calls.do("update_data_buffer", self.handle, self._address, size)
        if not array.nbytes:
            return
        if self._shared:
            np.copyto(self._view(array.nbytes), array.reshape(-1).view(np.uint8))
            return
        source = array.ctypes.data
        args = (self._address, self._capacity, source, array.nbytes, _TO_DEVICE)
        self._calls.do("rt.memcpy", *args)

    def read(self, dims: tuple[int, ...], dtype: np.dtype[np.generic]) -> Array:
        """Return the memory as an array that the caller owns."""
        array = np.empty(dims, dtype)
        if not array.nbytes:
            return array
        if self._shared:
            np.copyto(array.reshape(-1).view(np.uint8), self._view(array.nbytes))
            return array
        args = (array.ctypes.data, array.nbytes, self._address, array.nbytes, _TO_HOST)
        self._calls.do("rt.memcpy", *args)
        return array

    def adopt(self) -> None:
        """Take over memory that the run allocated; it is ours to free."""
        if not self._address:
            self._address = self._calls.plain("get_data_buffer_addr", self.handle)
            self._capacity = self._calls.plain("get_data_buffer_size", self.handle)

    def empty(self) -> None:
        """Free the memory, that of a run too, and let the next run allocate."""
        self.adopt()
        self.free()
        self._calls.do("update_data_buffer", self.handle, 0, 0)

    def free(self) -> None:
        """Free the memory, if there is any."""
        address, self._address, self._capacity = self._address, 0, 0
        if address:
            self._calls.do("rt.free", address)

    def _allocate(self, size: int) -> tuple[int, int]:
        if size:
            self._address = self._calls.get("rt.malloc", size, _HUGE_FIRST)
            self._capacity = size
        return self._address, self._capacity

    def _view(self, size: int) -> Array:
        memory = (ctypes.c_uint8 * size).from_address(self._address)
        return np.frombuffer(memoryview(memory), np.uint8)
