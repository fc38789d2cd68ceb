"""The input sizes that an artifact is for: gears, ranges, or those of its graph."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from cannc.compiler.core.errors import UsageError
from cannc.compiler.om.gears import Dims, GearSet
from cannc.compiler.om.ranges import OPEN_RANGE, Ranges, range_text
from cannc.compiler.om.reader import OmFile
from cannc.compiler.runtime.gears import fit
from cannc.compiler.runtime.ports import Port


@dataclass(frozen=True)
class Sizes:
    """What an artifact says about the sizes of its inputs.

    Attributes:
        gears: Its gears.
        ranges: Input name -> least and most size per dimension; most is -1 where it is open.
    """

    gears: GearSet | None = None
    ranges: Mapping[str, Ranges] = field(default_factory=dict)

    @classmethod
    def of(cls, om: OmFile) -> Sizes:
        """Read them from a host artifact."""
        return cls(om.gears, om.ranges)

    def check_ranges(self, feeds: Mapping[str, Any]) -> None:
        """Compare inputs with the ranges.

        Raises:
            UsageError: ``INP008`` a size is outside.
        """
        for name, ranges in self.ranges.items():
            shape = np.shape(feeds[name]) if name in feeds else ()
            for axis, (size, (least, most)) in enumerate(zip(shape, ranges, strict=False)):
                if size < least or (most != -1 and size > most):
                    raise UsageError(
                        "INP008",
                        f"input '{name}': dimension {axis} is {size}",
                        where=f"compiled for {name}[{range_text(ranges)}]",
                        why="the artifact states the range of each size",
                        fix="feed sizes within the range, or compile with a wider one",
                    )

    def check(self, feeds: Mapping[str, Any]) -> None:
        """Refuse inputs that have neither the sizes of a gear nor sizes within the ranges.

        Raises:
            UsageError: ``INP008`` outside a range, ``RUN015`` no gear has these sizes.
        """
        self.check_ranges(feeds)
        if self.gears is not None:
            fit(self.gears, feeds, "none")

    def takes(self, feeds: Mapping[str, Any]) -> bool:
        """Would `check` accept these inputs?"""
        try:
            self.check(feeds)
        except UsageError:
            return False
        return True

    def largest(self) -> dict[str, Dims]:
        """Return the sizes of the largest gear, or the most that the ranges allow, by input.

        Where a range is open its least size counts. Inputs with a size that is open altogether are
        left out.
        """
        if self.gears is not None:
            return dict(self.gears.gears[self.gears.largest].inputs)
        return {
            name: tuple(max(bounds) for bounds in ranges)
            for name, ranges in self.ranges.items()
            if OPEN_RANGE not in ranges
        }

    def fixed(self, ports: Sequence[Port]) -> list[Port]:
        """Return inputs at the sizes that `largest` gives."""
        sizes = self.largest()
        return [Port(p.name, p.type, sizes.get(p.name, p.shape)) for p in ports]
