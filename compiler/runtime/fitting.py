"""Runs inputs of any size by the gears of an artifact: nearest gear, padding, cutting back."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

from cannc.compiler.om.gears import GearSet
from cannc.compiler.runtime.engine import Engine
from cannc.compiler.runtime.gears import Fit, Padding, check_harmless, cut, fit, result_sizes
from cannc.compiler.runtime.ports import Port

log = logging.getLogger(__name__)

_Sizes: TypeAlias = "tuple[tuple[str, tuple[int, ...]], ...]"


class GearRunner:
    """Chooses a gear for each run.

    The first run that pads an axis for a gear is judged. A host compares it with a run at the real
    sizes. A device has no such graph: there a second run is padded with the last element of the
    axis instead of zeros, and no result may depend on which it was.
    """

    def __init__(
        self,
        engine: Engine,
        gears: GearSet,
        padding: Padding,
        ports: tuple[Sequence[Port], Sequence[Port]],
        exact: Engine | None,
    ) -> None:
        """Describe the model.

        Args:
            engine: What runs it.
            gears: Its gears.
            padding: Which axes may be padded; see `cannc.compiler.runtime.gears`.
            ports: Its inputs and outputs; dims of one name have one size.
            exact: What runs real sizes; None on a device.
        """
        self._engine, self._gears, self._padding, self._exact = engine, gears, padding, exact
        self._inputs, self._outputs = ports
        self._judged: set[tuple[int, _Sizes]] = set()

    def run(self, feeds: Mapping[str, Any]) -> dict[str, Any]:
        """Run once at the sizes of a gear.

        Args:
            feeds: What `prepare_feeds` returns.

        Raises:
            UsageError: ``RUN015`` to ``RUN017`` no gear takes the inputs, or padding is not safe.
        """
        fitted = fit(self._gears, feeds, self._padding)
        if not fitted.axes:
            return self._engine.run(feeds, fitted.number)
        sizes = result_sizes(fitted, self._inputs, self._outputs)
        results = cut(self._engine.run(fitted.pad(feeds), fitted.number), sizes)
        key = (fitted.number, tuple(sorted(fitted.axes.items())))
        if key not in self._judged:
            check_harmless(results, self._judge(fitted, feeds, sizes))
            self._judged.add(key)
            log.info("inputs are padded to gear %d: %s", fitted.number, fitted.gear)
        return results

    def _judge(
        self, fitted: Fit, feeds: Mapping[str, Any], sizes: Mapping[str, tuple[int, ...]]
    ) -> dict[str, Any]:
        if self._exact is not None:
            return self._exact.run(feeds, fitted.number)
        return cut(self._engine.run(fitted.pad(feeds, edge=True), fitted.number), sizes)
