"""``acl.rt``: devices, contexts, memory."""

from __future__ import annotations

from collections import Counter

from cannc.compiler.runtime.host_acl.memory import Memory
from cannc.compiler.runtime.host_acl.state import (
    INVALID_PARAM,
    RT_INVALID_DEVICE,
    RT_NO_CONTEXT,
    MisuseError,
    State,
    action,
    getter,
)

DEVICES = 1
DEVICE_SIDE, HOST_SIDE = 0, 1
"""Run modes: whether the program shares its memory with the device."""


class Rt:
    """The runtime calls; each returns what pyACL's of the same name does."""

    def __init__(self, state: State, memory: Memory, run_mode: int) -> None:
        self.state, self._memory, self._run_mode = state, memory, run_mode
        self._users: Counter[int] = Counter()

    @getter
    def get_device_count(self) -> int:
        """Return the number of devices: one."""
        return DEVICES

    @action
    def set_device(self, device: int) -> None:
        """Use a device in this thread."""
        self.state.require_init()
        if not 0 <= device < DEVICES:
            raise MisuseError(RT_INVALID_DEVICE, f"there is no device {device}")
        with self.state.lock:
            if not self._users[device]:
                self.state.add("device", device, device + 1)
            self._users[device] += 1

    @action
    def reset_device(self, device: int) -> None:
        """Give a device back, once for each `set_device`."""
        with self.state.lock:
            if self._users[device] < 1:
                raise MisuseError(RT_INVALID_DEVICE, f"device {device} is not in use")
            self._users[device] -= 1
            if not self._users[device]:
                self.state.drop("device", device + 1)

    @getter
    def create_context(self, device: int) -> int:
        """Make a context and make it this thread's."""
        self.state.require_init()
        self.state.get("device", device + 1, RT_INVALID_DEVICE)
        handle = self.state.add("context", device)
        self.state.context = handle
        return handle

    @action
    def set_context(self, context: int) -> None:
        """Make a context this thread's."""
        self.state.get("context", context, RT_NO_CONTEXT)
        self.state.context = context

    @getter
    def get_context(self) -> int:
        """Return this thread's context."""
        return self.state.context

    @action
    def destroy_context(self, context: int) -> None:
        """Release a context."""
        self.state.drop("context", context, RT_NO_CONTEXT)

    @getter
    def get_run_mode(self) -> int:
        """Return 0 where program and device share memory, else 1."""
        return self._run_mode

    @getter
    def malloc(self, size: int, policy: int) -> int:
        """Allocate device memory; the policy has no meaning on a host."""
        if policy < 0 or not self.state.context:
            raise MisuseError(INVALID_PARAM, f"no policy has number {policy}")
        return self._memory.allocate(size)

    @action
    def free(self, address: int) -> None:
        """Free device memory."""
        self._memory.free(address)

    @action
    def memcpy(self, target: int, capacity: int, source: int, count: int, kind: int) -> None:
        """Copy bytes between host and device."""
        if self.state.context:
            self._memory.copy(target, capacity, source, count, kind)
