"""One run: buffers checked as a device would, the graph run on them, results written back."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import onnx_ir as ir

from cannc.compiler.core.errors import CanncError
from cannc.compiler.core.runner import Array
from cannc.compiler.om.dtypes import ACL_DTYPE, FORMAT_ND
from cannc.compiler.om.gears import Dims
from cannc.compiler.runtime.host_acl import state as codes
from cannc.compiler.runtime.host_acl.datasets import DataBuffer, Dataset, TensorDesc
from cannc.compiler.runtime.host_acl.loaded import LoadedModel, byte_size, open_dims
from cannc.compiler.runtime.host_acl.memory import Memory
from cannc.compiler.runtime.host_acl.state import MisuseError, State
from cannc.compiler.runtime.ports import Port


@dataclass(frozen=True)
class Execution:
    """A model on the way through one call of ``acl.mdl.execute``."""

    state: State
    memory: Memory
    model: LoadedModel

    def run(self, given: Dataset, wanted: Dataset) -> None:
        """Check both datasets, run, and fill the outputs.

        Raises:
            MisuseError: numbers of buffers, sizes or addresses, a gear or shapes not set, or a
                node that failed.
        """
        gear = self._gear(given, wanted)
        feeds = {
            port.name: self._input(given, index, port, gear)
            for index, port in enumerate(self.model.inputs)
        }
        try:
            results = self.model.run(feeds, gear)
        except CanncError as error:
            raise MisuseError(codes.RUN_FAILED, f"{error.what}: {error.why}") from error
        for index, port in enumerate(self.model.outputs):
            self._output(wanted, index, port, gear, results[port.name])

    def _gear(self, given: Dataset, wanted: Dataset) -> int | None:
        hidden = 0 if self.model.gears is None else 1
        inputs = len(self.model.inputs) + hidden
        if len(given.buffers) != inputs:
            text = f"{len(given.buffers)} input buffers, the model has {inputs} inputs"
            raise MisuseError(codes.INPUTS_DIFFER, text)
        if len(wanted.buffers) != len(self.model.outputs):
            text = f"{len(wanted.buffers)} output buffers, not {len(self.model.outputs)}"
            raise MisuseError(codes.OUTPUTS_DIFFER, text)
        if not hidden:
            return None
        if given.gear is None:
            text = "no gear is set, and a device would silently run the largest"
            raise MisuseError(codes.INVALID_PARAM, text)
        return given.gear

    def _input(self, given: Dataset, index: int, port: Port, gear: int | None) -> Array:
        dims = self._input_dims(given, index, port, gear)
        buffer: DataBuffer = self.state.get("data buffer", given.buffers[index])
        assert port.dtype is not None
        size = byte_size(port.dtype, dims)
        if buffer.size < size:
            text = f"input '{port.name}' has {buffer.size} bytes, needs {size}"
            raise MisuseError(codes.GE_INPUT_LENGTH, text)
        if size == 0:
            return np.empty(dims, port.dtype.numpy())
        try:
            raw = self.memory.view(buffer.address, size)
        except MisuseError as error:
            raise MisuseError(codes.GE_INPUT_ADDRESS, f"input '{port.name}': {error}") from error
        return raw.view(port.dtype.numpy()).reshape(dims)

    def _input_dims(self, given: Dataset, index: int, port: Port, gear: int | None) -> Dims:
        if gear is not None and self.model.gears is not None:
            return self.model.gears.gears[gear].inputs.get(port.name, open_dims(port))
        dims = open_dims(port)
        if -1 not in dims:
            return dims
        if index not in given.descs:
            text = f"the shape of input '{port.name}' is not set"
            raise MisuseError(codes.GE_SHAPE, text)
        desc: TensorDesc = self.state.get("tensor desc", given.descs[index])
        fits = len(desc.dims) == len(dims) and all(
            declared in (-1, size) for declared, size in zip(dims, desc.dims, strict=True)
        )
        if not fits:
            text = f"input '{port.name}' of shape {dims} cannot be {desc.dims}"
            raise MisuseError(codes.GE_SHAPE, text)
        return desc.dims

    def _output(
        self, wanted: Dataset, index: int, port: Port, gear: int | None, result: Array
    ) -> None:
        declared = self.model.output_dims(index, gear)
        fits = len(declared) == result.ndim and all(
            size in (-1, real) for size, real in zip(declared, result.shape, strict=True)
        )
        if not fits:
            text = f"output '{port.name}' is declared {declared} and came out as {result.shape}"
            raise MisuseError(codes.RUN_FAILED, text)
        buffer: DataBuffer = self.state.get("data buffer", wanted.buffers[index])
        if buffer.address == 0 and result.nbytes:
            buffer.address = self.memory.allocate(result.nbytes)
            buffer.size = result.nbytes
        if buffer.size < result.nbytes:
            text = f"output '{port.name}' has {buffer.size} bytes, needs {result.nbytes}"
            raise MisuseError(codes.OUTPUTS_DIFFER, text)
        if result.nbytes:
            view = self.memory.view(buffer.address, result.nbytes)
            np.copyto(view.view(result.dtype).reshape(result.shape), result)
        self._describe(wanted, index, port, result.shape)

    def _describe(self, wanted: Dataset, index: int, port: Port, dims: Sequence[int]) -> None:
        dtype = ACL_DTYPE[port.dtype or ir.DataType.UNDEFINED]
        if index in wanted.descs:
            desc: TensorDesc = self.state.get("tensor desc", wanted.descs[index])
            desc.dims = tuple(dims)
            return
        desc = TensorDesc(dtype, tuple(dims), FORMAT_ND)
        wanted.descs[index] = self.state.add("tensor desc", desc)
        wanted.made.append(wanted.descs[index])
