"""pyACL calls with every return code checked, and releases in reverse order whatever happens."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from types import TracebackType
from typing import Any

from cannc.compiler.core.errors import ToolchainError
from cannc.compiler.runtime.acl.status import SUCCESS, AclError


class Calls:
    """One scope of resources. Names of calls are as after ``acl.``, e.g. ``rt.malloc``.

    When the scope ends all releases are called, last first; the first that fails is raised after
    the others were tried.
    """

    def __init__(self, api: Any) -> None:
        """Args: pyACL's module, or an object with its calls."""
        self.api = api
        self._releases = ExitStack()

    def do(self, name: str, *args: Any) -> None:
        """Call what returns a code.

        Raises:
            AclError: ``RUN030`` it is not 0.
            ToolchainError: ``RUN031`` this pyACL does not have the call.
        """
        self._check(name, self._find(name)(*args))

    def get(self, name: str, *args: Any) -> Any:
        """Call what returns ``(value, code)``; return the value. Raises as `do`."""
        value, status = self._find(name)(*args)
        self._check(name, status)
        return value

    def plain(self, name: str, *args: Any) -> Any:
        """Call what returns only a value. Raises as `do`, but for codes."""
        return self._find(name)(*args)

    def made(self, name: str, *args: Any) -> int:
        """Call what returns a handle or 0.

        Raises:
            AclError: ``RUN030`` it is 0.
        """
        handle = self.plain(name, *args)
        if not handle:
            raise self._error(name, _NO_HANDLE)
        return int(handle)

    def later(self, name: str, *args: Any) -> None:
        """Release something by this call when the scope ends."""
        self._releases.callback(self._release, name, args)

    def after(self, release: Callable[[], None]) -> None:
        """Run `release` when the scope ends: for what takes more than one call."""
        self._releases.callback(release)

    def _release(self, name: str, args: tuple[Any, ...]) -> None:
        status = self._find(name)(*args)
        if status is not None:  # destroy_tensor_desc alone returns nothing
            self._check(name, status)

    def _find(self, name: str) -> Any:
        found = self.api
        for part in name.split("."):
            found = getattr(found, part, None)
        if found is None:
            raise ToolchainError(
                "RUN031",
                f"this pyACL has no call acl.{name}",
                where=str(getattr(self.api, "__file__", "acl")),
                why="the CANN release is older than the ones that cannc drives",
                fix="install a newer CANN toolkit and source its set_env.sh",
            )
        return found

    def _check(self, name: str, status: int) -> None:
        if status != SUCCESS:
            raise self._error(name, status)

    def _error(self, name: str, status: int) -> AclError:
        recent = getattr(self.api, "get_recent_err_msg", None)
        return AclError(f"acl.{name}", status, (recent() or "") if recent is not None else "")

    def close(self) -> None:
        """Release everything; calling it again does nothing."""
        self._releases.close()

    def __enter__(self) -> Calls:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()


_NO_HANDLE = 500000
"""What stands for the code that such calls do not give."""
