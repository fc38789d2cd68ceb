"""``--keep first,last,NAME``: which weights stay in float."""

from __future__ import annotations

import re
from collections.abc import Sequence

from cannc.compiler.core.errors import UsageError, nearest
from cannc.quant.collect import WeightUse


def kept(uses: Sequence[WeightUse], keep: str | Sequence[str]) -> dict[int, str]:
    """Return index of a use -> the pattern that keeps it in float.

    Args:
        uses: All weights that could be quantized, in graph order.
        keep: Patterns, or one text with commas between them: ``first`` or ``last`` weight in graph
            order, the exact name of a node or weight, or else a regular expression searched in
            both names.

    Raises:
        UsageError: ``QUANT004`` a pattern is no regular expression or matches nothing.
    """
    patterns = keep.split(",") if isinstance(keep, str) else [*keep]
    found: dict[int, str] = {}
    for pattern in filter(None, (text.strip() for text in patterns)):
        for index in _matches(uses, pattern):
            found.setdefault(index, pattern)
    return found


def _matches(uses: Sequence[WeightUse], pattern: str) -> list[int]:
    if not uses:
        return []
    if pattern in ("first", "last"):
        return [0 if pattern == "first" else len(uses) - 1]
    names = [(use.node.name or "", use.weight.name) for use in uses]
    exact = [index for index, pair in enumerate(names) if pattern in pair]
    if exact:
        return exact
    try:
        expression = re.compile(pattern)
    except re.error as error:
        raise _bad_pattern(pattern, f"it is no regular expression: {error}") from error
    matches = [i for i, pair in enumerate(names) if any(map(expression.search, pair))]
    if not matches:
        every = [name for pair in names for name in pair]
        raise _bad_pattern(pattern, f"no weight or node has that name{nearest(pattern, every)}")
    return matches


def _bad_pattern(pattern: str, why: str) -> UsageError:
    return UsageError(
        "QUANT004",
        f"cannot keep '{pattern}'",
        where="--keep",
        why=why,
        fix="use first, last, the name of a node or weight, or a regular expression",
    )
