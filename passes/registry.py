"""All passes by name, and the recipes of the optimization levels. Loaded only when used."""

from __future__ import annotations

import importlib
from typing import Literal, get_args

from cannc.compiler.core.errors import UsageError, nearest
from cannc.passes.base import Pass

Level = Literal["O0", "O1", "O2"]

PASSES: dict[str, str] = {}
"""Pass name -> ``module:Class``. A test checks the table against the files."""

CLEANUP: tuple[str, ...] = ()
"""Run until nothing changes, at the start and after every other group."""

FUSION: dict[Level, tuple[str, ...]] = {"O0": (), "O1": (), "O2": ()}


def load_pass(name: str) -> Pass:
    """Return the pass of that name.

    Raises:
        UsageError: ``PASS001`` no such pass.
    """
    if name not in PASSES:
        raise UsageError(
            "PASS001",
            f"no pass is called '{name}'{nearest(name, PASSES)}",
            where="--passes",
            fix=f"known passes: {', '.join(sorted(PASSES))}",
        )
    module, _, attribute = PASSES[name].partition(":")
    cls: type[Pass] = getattr(importlib.import_module(module), attribute)
    return cls()


def check_level(level: str) -> Level:
    """Return a valid level.

    Raises:
        UsageError: ``PASS002`` no such level.
    """
    for known in get_args(Level):
        if level == known:
            return known  # type: ignore[no-any-return]
    raise UsageError("PASS002", f"no optimization level '{level}'", fix="use O0, O1 or O2")
