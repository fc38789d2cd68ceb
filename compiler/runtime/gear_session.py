"""Runs artifacts with gears: each input by the graph of the gear that takes it."""

from __future__ import annotations

import logging
import threading
from collections.abc import Mapping
from typing import Any

from cannc.compiler.om.gears import GearSet
from cannc.compiler.om.reader import OmFile
from cannc.compiler.runtime.feeding import prepare_feeds
from cannc.compiler.runtime.gears import Padding, check_harmless, cut, fit, result_sizes
from cannc.compiler.runtime.host_session import HostSession
from cannc.compiler.runtime.ports import Port

log = logging.getLogger(__name__)


class GearSession:
    """The gears of a host artifact, loaded once and run many times.

    The graph of the chosen gear is what runs. Gears whose graphs differ in shapes only, which is
    how they are written, share one session, so gears cost no memory.

    Attributes:
        inputs: What to feed, in graph order; dimensions that gears vary are open.
        outputs: The graph outputs.
    """

    def __init__(
        self, om: OmFile, gears: GearSet, padding: Padding, *, low_memory: bool = False
    ) -> None:
        """Load the graph of the largest gear; others, where they differ, at their first use.

        Args:
            om: The artifact.
            gears: Its gears.
            padding: Which axes may be padded to reach a gear; see `cannc.compiler.runtime.gears`.
            low_memory: See `HostSession`.

        Raises:
            ModelError: onnxruntime refuses the graph, or it is damaged.
        """
        self._om, self._gears, self._padding = om, gears, padding
        self._low_memory = low_memory
        self._lock = threading.Lock()
        self._sessions: dict[int, HostSession] = {}
        self._judged: set[tuple[int, tuple[tuple[str, tuple[int, ...]], ...]]] = set()
        self._noted: set[str] = set()
        first = self._session(gears.largest)
        self.inputs: list[Port] = first.inputs
        self.outputs: list[Port] = first.outputs

    def run(self, feeds: Mapping[str, Any], *, allow_nan: bool = True) -> dict[str, Any]:
        """Run once at the sizes of a gear; see `HostSession.run`.

        The first run that pads an axis for a gear is compared with a run at the real sizes, which
        only a host can do.

        Raises:
            UsageError: ``RUN015`` to ``RUN017`` no gear takes the inputs, or padding is not safe;
                ``INP...`` the inputs do not fit the model.
        """
        ready = prepare_feeds(self.inputs, feeds, allow_nan=allow_nan, noted=self._noted)
        fitted = fit(self._gears, ready, self._padding)
        session = self._session(fitted.number)
        if not fitted.axes:
            return session.run(ready)
        sizes = result_sizes(fitted, self.inputs, self.outputs)
        results = cut(session.run(fitted.pad(ready)), sizes)
        key = (fitted.number, tuple(sorted(fitted.axes.items())))
        if key not in self._judged:
            check_harmless(results, session.run(ready))
            self._judged.add(key)
            log.info("inputs are padded to gear %d: %s", fitted.number, fitted.gear)
        return results

    def _session(self, number: int) -> HostSession:
        group = self._om.gear_groups[number]
        with self._lock:
            if group not in self._sessions:
                model = self._om.to_model(group)
                self._sessions[group] = HostSession(model, low_memory=self._low_memory)
            return self._sessions[group]
