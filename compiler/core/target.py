"""The target of a compilation: which SoC, and which CANN release compiles for it.

Names and figures come from the SoC table (`data/soc.json`, made from CANN's own platform files).
"""

from __future__ import annotations

import json
import logging
import re
from dataclasses import dataclass
from functools import cache
from importlib import resources
from typing import Any

from cannc.compiler.core.errors import UsageError, nearest

log = logging.getLogger(__name__)

DEFAULT_SOC = "Ascend910B4"

_MISTAKEN = {
    "Ascend910B": "a first-generation 910; the A2 chips are Ascend910B1 to Ascend910B4",
}
"""Names that exist but are often meant for another chip."""


@cache
def soc_table() -> dict[str, dict[str, Any]]:
    """Return the SoC table: full SoC name -> family, cores, memory, bandwidths (bytes, MHz)."""
    text = (resources.files("cannc.compiler.core") / "data" / "soc.json").read_text()
    table: dict[str, dict[str, Any]] = json.loads(text)["soc"]
    return table


@dataclass(frozen=True)
class Target:
    """What the artifact is built for.

    Attributes:
        soc: Full SoC name as ATC's ``--soc_version`` takes it, e.g. ``Ascend910B4``.
        cann: CANN release, e.g. ``8.0.0``; None means the newest that the tables know.
    """

    soc: str = DEFAULT_SOC
    cann: str | None = None

    @classmethod
    def parse(cls, soc: str | None, cann: str | None = None) -> Target:
        """Check user input and return the target.

        Raises:
            UsageError: ``SOC001`` unknown SoC, ``SOC002`` malformed CANN release.
        """
        name = soc or DEFAULT_SOC
        if name not in soc_table():
            alike = _alike(name)
            hint = f"use one of {', '.join(alike[:8])}" if alike else "see 'cannc targets'"
            raise UsageError(
                "SOC001",
                f"unknown SoC '{name}'{nearest(name, soc_table())}",
                where="--soc",
                why="kernels differ between the chips of a family, so the full name is needed "
                "(ATC: E10001 on --soc_version)",
                fix=f"{hint} (npu-smi info shows the chip on a device)",
            )
        if name in _MISTAKEN:
            log.warning("%s is %s", name, _MISTAKEN[name])
        if cann is not None and not re.fullmatch(r"\d+(\.\d+){1,3}(\.?\w+)?", cann):
            raise UsageError(
                "SOC002", f"'{cann}' is not a CANN release", where="--cann", fix="e.g. 8.0.0"
            )
        return cls(name, cann)

    @property
    def family(self) -> str:
        """Kernel family as the operator tables spell it, e.g. ``ascend910b``, ``ascend310p``."""
        return str(soc_table()[self.soc]["family"]).lower()


def _alike(name: str) -> list[str]:
    """Return the known names that begin as `name` does, with or without ``Ascend`` in front."""
    start = name.lower().removeprefix("ascend")
    while len(start) > 2:
        found = [known for known in soc_table() if known[6:].lower().startswith(start)]
        if found:
            return sorted(found)
        start = start[:-1]
    return []
