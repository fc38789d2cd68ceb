"""What to quantize to: width, symmetry, and how many weights share one scale."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from typing import Literal

from cannc.compiler.core.errors import UsageError, nearest

SCHEMES = ("w8a16", "w4a16", "w8a16-asym", "w4a16-asym")
GROUP_SIZES = (32, 64, 128, 256)


@dataclass(frozen=True)
class Scheme:
    """A weight-only scheme: integer weights, activations as they are.

    Attributes:
        bits: Width of a stored weight.
        symmetric: Zero is level 0 and levels are -127..127 (-7..7); else an offset is stored and
            the whole range is used.
        group: Weights along the input axis that share one scale; None: all of a channel.
    """

    bits: Literal[4, 8] = 8
    symmetric: bool = True
    group: int | None = None

    @classmethod
    def parse(cls, name: str = "w8a16", granularity: str = "channel") -> Scheme:
        """Read a scheme such as ``w8a16`` and a granularity, ``channel`` or ``group:128``.

        Raises:
            UsageError: ``QUANT001`` unknown scheme, ``QUANT002`` unknown granularity.
        """
        if name.lower() not in SCHEMES:
            raise UsageError(
                "QUANT001",
                f"no quantization scheme '{name}'{nearest(name.lower(), SCHEMES)}",
                where="--scheme",
                fix=f"use one of {', '.join(SCHEMES)}",
            )
        width, _, symmetry = name.lower().partition("-")
        return cls(4 if width == "w4a16" else 8, symmetry != "asym", _group(granularity))

    @property
    def high(self) -> int:
        """Largest level."""
        return (1 << (self.bits - 1)) - 1

    @property
    def low(self) -> int:
        """Smallest level; symmetric schemes leave out the one that has no positive partner."""
        return -self.high if self.symmetric else -self.high - 1

    @property
    def granularity(self) -> str:
        """The granularity as `parse` reads it."""
        return "channel" if self.group is None else f"group:{self.group}"

    def per_channel(self) -> Scheme:
        """Return the same scheme with one scale per channel."""
        return replace(self, group=None)

    def __str__(self) -> str:
        """The scheme as `parse` reads it."""
        return f"w{self.bits}a16" + ("" if self.symmetric else "-asym")


def _group(granularity: str) -> int | None:
    if granularity == "channel":
        return None
    match = re.fullmatch(r"group:(\d+)", granularity)
    if match and int(match[1]) in GROUP_SIZES:
        return int(match[1])
    known = ["channel", *(f"group:{size}" for size in GROUP_SIZES)]
    raise UsageError(
        "QUANT002",
        f"no granularity '{granularity}'{nearest(granularity, known)}",
        where="--granularity",
        why="Ascend's kernels take groups whose size is a multiple of 32",
        fix=f"use one of {', '.join(known)}",
    )
