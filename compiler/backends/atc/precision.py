"""Which precision flag ATC gets: always one, so that its default never decides (D2)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

from cannc.compiler.backends.atc.refusal import refuse

Precision = Literal["keep", "fp16"]

_V2: dict[Precision, str] = {"keep": "origin", "fp16": "fp16"}
_V1: dict[Precision, str] = {"keep": "must_keep_origin_dtype", "fp16": "force_fp16"}
_FIRST_WITH_V2 = 7
"""Major CANN release from which --precision_mode_v2 is used; older ones may lack it."""


def asked(options: Mapping[str, str]) -> Precision | None:
    """Return the precision that ATC's own options ask for, as cannc names it.

    None: they say nothing, or a mode that only ATC has (mixed modes, cube modes).
    """
    for precision in _V2:
        if options.get("precision_mode_v2") == _V2[precision]:
            return precision
        if options.get("precision_mode") == _V1[precision]:
            return precision
    return None


def choose(options: Mapping[str, str], ours: Precision | None) -> Precision:
    """Return the precision of a compile.

    Raises:
        UsageError: ``ATC005`` --precision contradicts ATC's own options.
    """
    theirs = asked(options)
    flag = "precision_mode" if "precision_mode" in options else "precision_mode_v2"
    if ours is not None and flag in options and theirs != ours:
        raise refuse(
            "ATC005",
            flag,
            f"--{flag}={options[flag]} contradicts --precision={ours}",
            why=f"--precision={ours} means --precision_mode_v2={_V2[ours]}",
            fix="keep one",
        )
    return ours or theirs or "keep"


def flag_for(precision: Precision, cann: str | None) -> tuple[str, str]:
    """Return flag and value for a release; None means a current one."""
    old = cann is not None and int(cann.split(".")[0]) < _FIRST_WITH_V2
    return ("precision_mode", _V1[precision]) if old else ("precision_mode_v2", _V2[precision])
