"""A device as sessions share it: pyACL started once, the device set, a context of its own."""

from __future__ import annotations

import atexit
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from cannc.compiler.core.errors import ToolchainError, add_note
from cannc.compiler.runtime.acl.calls import Calls
from cannc.compiler.runtime.acl.status import AclError

_DEVICE_SIDE = 0
_REPEAT_INITIALISE = 100002


class Device:
    """A context on a device.

    Attributes:
        calls: Where what lives in the context is released.
        shares_memory: True where program and device have one memory, so that nothing is copied.
    """

    def __init__(self, api: Any, number: int) -> None:
        """Start pyACL if nobody did, and open a context.

        Args:
            api: pyACL's module, or an object with its calls.
            number: Number of the device.

        Raises:
            AclError: ``RUN030`` a call failed; nothing stays open then.
        """
        self.calls = Calls(api)
        self._lock = threading.Lock()
        self._closed = False
        with closing_on_error(self.calls):
            process = _process(api)
            process.take(number)
            self.calls.after(lambda: process.give_back(number))
            self._context = self.calls.get("rt.create_context", number)
            self.calls.later("rt.destroy_context", self._context)
            self.shares_memory = self.calls.get("rt.get_run_mode") == _DEVICE_SIDE

    def enter(self) -> None:
        """Make the context that of the calling thread."""
        self.calls.do("rt.set_context", self._context)

    def close(self) -> None:
        """Release all that lives in the context, then the context and the device."""
        with self._lock:
            if self._closed:
                return
            self._closed = True
        try:
            self.enter()
        finally:
            self.calls.close()


@contextmanager
def closing_on_error(calls: Calls) -> Iterator[None]:
    """Release a scope if the block fails; a release that fails too becomes a note of the error."""
    try:
        yield
    except BaseException as error:
        try:
            calls.close()
        except ToolchainError as other:
            add_note(error, f"releasing failed too: {other.what}: {other.why}")
        raise


class _Process:
    """What is per process: pyACL itself, and how many contexts use each device."""

    def __init__(self, api: Any) -> None:
        self._calls = Calls(api)
        self._lock = threading.Lock()
        self._users: Counter[int] = Counter()
        self._started = False

    def take(self, device: int) -> None:
        """Start pyACL at the first use, and set the device."""
        with self._lock:
            if not self._started:
                self._start()
            if not self._users[device]:
                self._calls.do("rt.set_device", device)
            self._users[device] += 1

    def give_back(self, device: int) -> None:
        """Reset the device when nobody uses it any more."""
        with self._lock:
            self._users[device] -= 1
            if not self._users[device]:
                self._calls.do("rt.reset_device", device)

    def _start(self) -> None:
        try:
            self._calls.do("init")
        except AclError as error:
            if error.status != _REPEAT_INITIALISE:
                raise
        else:  # who started it ends it
            atexit.register(self._calls.do, "finalize")
        self._started = True


_processes: dict[Any, _Process] = {}
_processes_lock = threading.Lock()


def _process(api: Any) -> _Process:
    with _processes_lock:
        if api not in _processes:
            _processes[api] = _Process(api)
        return _processes[api]
