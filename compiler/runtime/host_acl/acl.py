"""The module ``acl`` on a host: an object with the calls that cannc uses.

It stands in for pyACL where the backend ``host`` is asked for by name or by the artifact, never by
itself, and it checks its caller more closely than a device does.
"""

from __future__ import annotations

import functools

from cannc.compiler.runtime.host_acl import state as codes
from cannc.compiler.runtime.host_acl.datasets import Buffers
from cannc.compiler.runtime.host_acl.mdl import Mdl
from cannc.compiler.runtime.host_acl.memory import Memory
from cannc.compiler.runtime.host_acl.rt import DEVICE_SIDE, Rt
from cannc.compiler.runtime.host_acl.state import MisuseError, State, action


class HostAcl(Buffers):
    """What ``import acl`` gives on a machine with a device.

    Attributes:
        rt: Devices, contexts and memory.
        mdl: Models and runs.
        state: Handles, the last error, and what was not released.
    """

    def __init__(self, *, run_mode: int = DEVICE_SIDE, low_memory: bool = False) -> None:
        """Start as a new process does.

        Args:
            run_mode: What ``rt.get_run_mode`` says: 0, memory is shared, as it is on a host, or 1
                for the copies that a device on a card needs.
            low_memory: Keep weights as stored, at the price of speed.
        """
        self.state = State()
        memory = Memory(self.state)
        self.rt = Rt(self.state, memory, run_mode)
        self.mdl = Mdl(self.state, memory, low_memory=low_memory)

    @action
    def init(self, config: str = "") -> None:
        """Start; once per process."""
        if config:
            raise MisuseError(codes.INVALID_PARAM, "the host knows no configuration file")
        if self.state.phase != "new":
            raise MisuseError(codes.REPEAT_INITIALISE, "acl.init was called before")
        self.state.phase = "ready"

    @action
    def finalize(self) -> None:
        """End; once per process."""
        if self.state.phase == "ended":
            raise MisuseError(codes.REPEAT_FINALISE, "acl.finalize was called before")
        self.state.require_init()
        self.state.phase = "ended"

    def get_recent_err_msg(self) -> str:
        """Return the text of the last failure."""
        return self.state.message

    def get_soc_name(self) -> str:
        """Say that this is no SoC."""
        return "host"

    def left(self) -> dict[str, int]:
        """Return what is not released, by kind: not a call of pyACL."""
        return self.state.left()


@functools.cache
def host_acl(*, low_memory: bool) -> HostAcl:
    """Return the one of this process."""
    return HostAcl(low_memory=low_memory)
