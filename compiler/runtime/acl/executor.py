"""Runs of one model on a device: load once, run many, N in flight."""

from __future__ import annotations

import queue
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from cannc.compiler.om.gears import Dims
from cannc.compiler.runtime.acl.device import Device, closing_on_error
from cannc.compiler.runtime.acl.model import AclModel, load
from cannc.compiler.runtime.acl.slot import Slot


class AclExecutor:
    """A model on a device. Threads may run it at once; those beyond `in_flight` wait.

    Copies of different runs overlap; the model itself runs once at a time, since one model id
    must not be executed from two threads.

    Attributes:
        model: What is loaded.
    """

    def __init__(self, api: Any, path: Path, device: int, in_flight: int) -> None:
        """Open the device and load the model.

        Args:
            api: pyACL's module, or an object with its calls.
            path: The .om file.
            device: Number of the device.
            in_flight: How many runs may hold buffers at once.

        Raises:
            AclError: ``RUN030`` a call failed; everything is released then.
            ModelError: codes of `load`.
        """
        self._device = Device(api, device)
        self._executing = threading.Lock()
        self._count = in_flight
        self._slots: queue.Queue[Slot | None] = queue.Queue()
        with closing_on_error(self._device.calls):
            self.model: AclModel = load(self._device.calls, path)
        for _ in range(in_flight):
            self._slots.put(None)

    @property
    def api(self) -> Any:
        """What the calls go to."""
        return self._device.calls.api

    def run(self, feeds: Mapping[str, Any], gear: int | None) -> dict[str, Any]:
        """Run once; see `Slot.run`.

        Args:
            feeds: Contiguous arrays by input name.
            gear: Number of a gear; None without gears.
        """
        gears = self.model.gears
        chosen = None if gears is None or gear is None else gears.gears[gear]
        slot = self._slots.get()
        try:
            self._device.enter()
            if slot is None:
                slot = Slot(self._device, self.model)
            return slot.run(feeds, chosen, self._executing)
        finally:
            self._slots.put(slot)

    def gear_results(self) -> list[list[Dims]]:
        """Return the shapes of the outputs for each gear, as the device states them."""
        gears = self.model.gears
        slot = self._slots.get()
        try:
            self._device.enter()
            slot = slot or Slot(self._device, self.model)
            with self._executing:
                return [slot.shapes(gear) for gear in (gears.gears if gears else ())]
        finally:
            self._slots.put(slot)

    def close(self) -> None:
        """Wait for runs in flight, then release everything. Call it once."""
        slots = [self._slots.get() for _ in range(self._count)]
        self._device.enter()
        for slot in slots:
            if slot is not None:
                self._device.calls.after(slot.close)
        self._device.close()
