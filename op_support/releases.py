"""What differs between CANN releases, as far as it is known."""

from __future__ import annotations

from cannc.compiler.core.target import Target

# A user's report saw ATC of CANN 8.1 refuse mixed domains; the sources of 2026 (CANN 9) accept
# them (parser-run.md). What lies between is not known.
_LAST_KNOWN_OLD = (8, 1)
_FIRST_KNOWN_NEW = (9, 0)


def single_import_only(target: Target) -> bool | None:
    """Does ATC refuse a file that imports more than one operator domain (E16005)?

    None when it is not known for that release. No release given means the newest known.
    """
    release = _release(target)
    if release is None or release >= _FIRST_KNOWN_NEW:
        return False
    return True if release <= _LAST_KNOWN_OLD else None


def unknown_operator_code(target: Target) -> str:
    """Return the error code that ATC prints for an operator without a plugin."""
    release = _release(target)
    return "E19010" if release is not None and release < _FIRST_KNOWN_NEW else "E13010"


def _release(target: Target) -> tuple[int, int] | None:
    if target.cann is None:
        return None
    major, minor = target.cann.split(".")[:2]
    return int(major), int(minor)
