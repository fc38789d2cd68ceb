"""One run in flight: its datasets, its buffers, and the order of calls."""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from typing import Any

from cannc.compiler.core.runner import Array
from cannc.compiler.om.dtypes import ACL_DTYPE
from cannc.compiler.om.gears import Dims, Gear, GearKind
from cannc.compiler.runtime.acl.buffers import Buffer
from cannc.compiler.runtime.acl.calls import Calls
from cannc.compiler.runtime.acl.device import Device, closing_on_error
from cannc.compiler.runtime.acl.model import AclModel


class Slot:
    """Buffers for one run at a time. The context must be that of the calling thread."""

    def __init__(self, device: Device, model: AclModel) -> None:
        """Allocate for the largest sizes; what a run decides is allocated then.

        Raises:
            AclError: ``RUN030``; nothing stays allocated then.
        """
        self._device, self._model = device, model
        self.calls = Calls(device.calls.api)
        with closing_on_error(self.calls):
            self._given, self._inputs = self._dataset(model.input_bytes, least=1)
            self._wanted, self._outputs = self._dataset(model.output_bytes, least=0)

    def _dataset(self, sizes: Sequence[int], least: int) -> tuple[int, list[Buffer]]:
        dataset = self.calls.made("mdl.create_dataset")
        self.calls.later("mdl.destroy_dataset", dataset)
        buffers = []
        for size in sizes:
            buffers.append(Buffer(self._device, self.calls, max(size, least)))
            self.calls.get("mdl.add_dataset_buffer", dataset, buffers[-1].handle)
        return dataset, buffers

    def run(
        self, feeds: Mapping[str, Array], gear: Gear | None, executing: threading.Lock
    ) -> dict[str, Any]:
        """Run once.

        Args:
            feeds: Contiguous arrays of the declared dtypes, at the sizes of the gear.
            gear: The gear; None without gears.
            executing: Held while the device runs the model: one model runs once at a time.

        Raises:
            AclError: ``RUN030`` a call failed.
        """
        with Calls(self.calls.api) as run:
            self._write(run, feeds)
            try:
                with executing:
                    if gear is not None:
                        self._choose(gear)
                    self.calls.do("mdl.execute", self._model.number, self._given, self._wanted)
                    fixed = None if gear is None else self._current_dims()
                return self._read(fixed)
            finally:
                for buffer in self._left_open():
                    buffer.empty()

    def shapes(self, gear: Gear) -> list[Dims]:
        """Return the shapes of the outputs at a gear."""
        self._choose(gear)
        return self._current_dims()

    def _write(self, run: Calls, feeds: Mapping[str, Array]) -> None:
        indices = [i for i in range(len(self._inputs)) if i != self._model.gear_input]
        for index, port in zip(indices, self._model.inputs, strict=True):
            array = feeds[port.name]
            is_open = self._model.gears is None and None in (port.shape or ())
            self._inputs[index].write(array, exact=is_open)
            if is_open and port.dtype is not None:
                dims, layout = [*array.shape], self._model.formats[index]
                desc = run.made("create_tensor_desc", ACL_DTYPE[port.dtype], dims, layout)
                run.later("destroy_tensor_desc", desc)
                self.calls.get("mdl.set_dataset_tensor_desc", self._given, desc, index)

    def _choose(self, gear: Gear) -> None:
        model = self._model
        where = (model.number, self._given, model.gear_input)
        if model.gears is None or model.gears.kind == GearKind.DIMS:
            dims = model.all_dims(gear)
            row = {"dimCount": len(dims), "name": "", "dims": [*dims]}
            self.calls.do("mdl.set_input_dynamic_dims", *where, row)
        elif model.gears.kind == GearKind.BATCH:
            self.calls.do("mdl.set_dynamic_batch_size", *where, *gear.sizes)
        else:
            self.calls.do("mdl.set_dynamic_hw_size", *where, *gear.sizes)

    def _current_dims(self) -> list[Dims]:
        count = range(len(self._outputs))
        call, desc = "mdl.get_cur_output_dims", self._model.desc
        return [tuple(self.calls.get(call, desc, i)["dims"]) for i in count]

    def _read(self, fixed: Sequence[Dims] | None) -> dict[str, Any]:
        for buffer in self._left_open():
            buffer.adopt()
        results = {}
        pairs = zip(self._model.outputs, self._outputs, strict=True)
        for index, (port, buffer) in enumerate(pairs):
            assert port.dtype is not None
            dims = (port.shape or ()) if fixed is None else fixed[index]
            sizes = tuple(dim for dim in dims if isinstance(dim, int) and dim >= 0)
            if len(sizes) < len(dims):
                sizes = self._run_dims(index)
            results[port.name] = buffer.read(sizes, port.dtype.numpy())
        return results

    def _left_open(self) -> list[Buffer]:
        """Return the buffers of outputs that each run allocates."""
        pairs = zip(self._outputs, self._model.output_bytes, strict=True)
        return [buffer for buffer, size in pairs if size == 0]

    def _run_dims(self, index: int) -> Dims:
        desc = self.calls.made("mdl.get_dataset_tensor_desc", self._wanted, index)
        rank = self.calls.plain("get_tensor_desc_num_dims", desc)
        call = "get_tensor_desc_dim_v2"
        return tuple(int(self.calls.get(call, desc, axis)) for axis in range(rank))

    def close(self) -> None:
        """Release datasets, buffers and memory."""
        self.calls.close()
