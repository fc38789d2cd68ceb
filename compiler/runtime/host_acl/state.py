"""What the host implementation remembers: handles, the current context, the last message.

Calls do not raise: like pyACL they return a code, and `State.message` keeps the text.
"""

from __future__ import annotations

import functools
import itertools
import threading
from collections import Counter
from collections.abc import Callable
from typing import Any, TypeVar

from cannc.compiler.core.errors import CanncError

F = TypeVar("F", bound=Callable[..., Any])

SUCCESS = 0
INVALID_PARAM = 100000
UNINITIALISED = 100001
REPEAT_INITIALISE = 100002
BAD_FILE = 100003
BAD_MODEL_ID = 100011
INPUTS_DIFFER = 100017
OUTPUTS_DIFFER = 100018
NOT_DYNAMIC = 100019
REPEAT_FINALISE = 100037
RT_INVALID_PARAM = 107000
RT_INVALID_DEVICE = 107001
RT_NO_CONTEXT = 107002
RT_OTHER_CONTEXT = 107004
GE_INPUT_ADDRESS = 145011
GE_INPUT_LENGTH = 145012
GE_GEAR = 145013
GE_SHAPE = 145021
RUN_FAILED = 507011


class MisuseError(Exception):
    """A call that pyACL would answer with a code."""

    def __init__(self, code: int, text: str) -> None:
        super().__init__(text)
        self.code = code


class State:
    """Handles of one process.

    Attributes:
        lock: Guards all of it.
        phase: ``new``, ``ready`` after ``acl.init``, ``ended`` after ``acl.finalize``.
    """

    def __init__(self) -> None:
        self.lock = threading.RLock()
        self.phase = "new"
        self._numbers = itertools.count(0x1000, 0x10)
        self._handles: dict[int, tuple[str, Any]] = {}
        self._thread = threading.local()

    def add(self, kind: str, thing: Any, number: int | None = None) -> int:
        """Return a new handle; `number` where it is an address."""
        handle = next(self._numbers) if number is None else number
        with self.lock:
            self._handles[handle] = (kind, thing)
        return handle

    def get(self, kind: str, handle: int, code: int = INVALID_PARAM) -> Any:
        """Return what a handle stands for.

        Raises:
            MisuseError: it was never made, is released, or is of another kind.
        """
        with self.lock:
            found = self._handles.get(handle)
        if found is None or found[0] != kind:
            raise MisuseError(code, f"{handle:#x} is no {kind}, or released already")
        return found[1]

    def drop(self, kind: str, handle: int, code: int = INVALID_PARAM) -> Any:
        """Forget a handle; a second time is a misuse."""
        with self.lock:
            thing = self.get(kind, handle, code)
            del self._handles[handle]
        return thing

    def all(self, kind: str) -> dict[int, Any]:
        """Return handle -> thing of one kind."""
        with self.lock:
            return {h: thing for h, (kind_, thing) in self._handles.items() if kind_ == kind}

    def left(self) -> dict[str, int]:
        """Return how many handles of each kind are not released."""
        with self.lock:
            return dict(Counter(kind for kind, _ in self._handles.values()))

    def has(self, kind: str, handle: int) -> bool:
        """Does the handle stand for something of this kind?"""
        found = self._handles.get(handle)
        return found is not None and found[0] == kind

    @property
    def context(self) -> int:
        """The context of this thread.

        Raises:
            MisuseError: there is none, or it was destroyed.
        """
        handle = int(getattr(self._thread, "context", 0))
        if not self.has("context", handle):
            raise MisuseError(RT_NO_CONTEXT, "this thread has no context: call acl.rt.set_context")
        return handle

    @context.setter
    def context(self, handle: int) -> None:
        self._thread.context = handle

    @property
    def message(self) -> str:
        """Text of this thread's last failure, as ``acl.get_recent_err_msg`` gives it."""
        return str(getattr(self._thread, "message", ""))

    @property
    def cause(self) -> CanncError | None:
        """The error of cannc behind this thread's last failure; None for misuse."""
        return getattr(self._thread, "cause", None)

    def fail(self, code: int, error: Exception) -> int:
        """Note a failure; return its code."""
        cause = error.__cause__
        self._thread.message = str(error)
        self._thread.cause = cause if isinstance(cause, CanncError) else None
        return code

    def require_init(self) -> None:
        """Refuse calls before ``acl.init`` and after ``acl.finalize``."""
        if self.phase != "ready":
            raise MisuseError(UNINITIALISED, "acl.init was not called, or acl.finalize was")


def action(method: F) -> F:
    """Make a method return a code: 0, or that of what it raises."""

    @functools.wraps(method)
    def call(self: Any, *args: Any) -> int:
        try:
            method(self, *args)
        except MisuseError as error:
            return int(self.state.fail(error.code, error))
        return SUCCESS

    return call  # type: ignore[return-value]


def getter(method: F) -> F:
    """Make a method return ``(value, code)``; the value is 0 when it fails."""

    @functools.wraps(method)
    def call(self: Any, *args: Any) -> tuple[Any, int]:
        try:
            return method(self, *args), SUCCESS
        except MisuseError as error:
            return 0, int(self.state.fail(error.code, error))

    return call  # type: ignore[return-value]


def plain(method: F) -> F:
    """Make a method return its value alone; 0 when it fails."""

    @functools.wraps(method)
    def call(self: Any, *args: Any) -> Any:
        try:
            return method(self, *args)
        except MisuseError as error:
            self.state.fail(error.code, error)
            return 0

    return call  # type: ignore[return-value]
