"""Amounts as people write them."""

from __future__ import annotations

import re

from cannc.compiler.core.errors import UsageError

_UNITS = {"": 1, "b": 1, "kb": 10**3, "mb": 10**6, "gb": 10**9}
_UNITS |= {"kib": 2**10, "mib": 2**20, "gib": 2**30}


def parse_bytes(text: str | None, where: str) -> int | None:
    """Read ``2GB``, ``512 MiB`` or ``1000``; None stays None.

    Raises:
        UsageError: ``QTY001`` a text of another form.
    """
    if text is None:
        return None
    found = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*([a-zA-Z]*)\s*", text)
    if found is None or found[2].lower() not in _UNITS:
        raise UsageError("QTY001", f"cannot read size '{text}'", where=where, fix="2GB or 512MiB")
    return int(float(found[1]) * _UNITS[found[2].lower()])
