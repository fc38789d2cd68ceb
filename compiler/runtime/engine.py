"""What runs a loaded model at given sizes: a device, or the host's graphs directly."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol


class Engine(Protocol):
    """A loaded model."""

    def run(self, feeds: Mapping[str, Any], gear: int | None) -> dict[str, Any]:
        """Run once.

        Args:
            feeds: Arrays by input name, of the declared dtypes and the sizes of the gear.
            gear: Number of a gear; None without gears.

        Returns:
            Output name -> array.
        """
        ...

    def close(self) -> None:
        """Wait for runs in flight, then release everything."""
        ...
