"""``acl.mdl``: models, their descriptions, datasets, gears and runs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import onnx_ir as ir

from cannc.compiler.core.errors import CanncError
from cannc.compiler.om.dtypes import ACL_DTYPE, FORMAT_ND
from cannc.compiler.om.gears import SHAPE_DATA, Dims, GearKind, GearSet
from cannc.compiler.runtime.artifact import open_host
from cannc.compiler.runtime.host_acl import state as codes
from cannc.compiler.runtime.host_acl.datasets import Dataset
from cannc.compiler.runtime.host_acl.execution import Execution
from cannc.compiler.runtime.host_acl.loaded import LoadedModel, byte_size, open_dims
from cannc.compiler.runtime.host_acl.memory import Memory
from cannc.compiler.runtime.host_acl.state import MisuseError, State, action, getter, plain
from cannc.compiler.runtime.ports import Port

_LONGEST_NAME = 127
_GEAR_BYTES = 4


@dataclass
class _Model:
    loaded: LoadedModel
    context: int
    gear: int | None = None


@dataclass
class _Desc:
    model: _Model | None = None


class Mdl:
    """The model calls; each returns what pyACL's of the same name does."""

    def __init__(self, state: State, memory: Memory, *, low_memory: bool) -> None:
        self.state, self._memory, self._low_memory = state, memory, low_memory
        self._offered: dict[str, LoadedModel] = {}

    @contextmanager
    def offering(self, path: Path, loaded: LoadedModel) -> Iterator[None]:
        """Let `load_from_file` of a path find a model that is in memory: not a call of pyACL."""
        offered = self._offered
        self._offered = {**offered, str(path): loaded}
        try:
            yield
        finally:
            self._offered = offered

    @getter
    def load_from_file(self, path: str) -> int:
        """Load a host artifact into this thread's context."""
        context = self.state.context
        if not Path(path).is_file():
            raise MisuseError(codes.INVALID_PARAM, f"there is no file {path}")
        try:
            loaded = self._offered.get(path) or self._load(Path(path))
        except CanncError as error:
            raise MisuseError(codes.BAD_FILE, str(error)) from error
        return self.state.add("model", _Model(loaded, context))

    @action
    def unload(self, model_id: int) -> None:
        """Unload a model in the context that it was loaded in."""
        self._of_context(model_id)
        self.state.drop("model", model_id, codes.BAD_MODEL_ID).loaded.close()

    @plain
    def create_desc(self) -> int:
        """Return an empty description."""
        return self.state.add("model desc", _Desc())

    @action
    def get_desc(self, desc: int, model_id: int) -> None:
        """Fill a description."""
        model = self.state.get("model", model_id, codes.BAD_MODEL_ID)
        self.state.get("model desc", desc).model = model

    @action
    def destroy_desc(self, desc: int) -> None:
        """Release a description."""
        self.state.drop("model desc", desc)

    @plain
    def get_num_inputs(self, desc: int) -> int:
        """Return the number of inputs, the gear's included."""
        model = self._described(desc)
        return len(model.loaded.inputs) + (model.loaded.gears is not None)

    @plain
    def get_num_outputs(self, desc: int) -> int:
        """Return the number of outputs."""
        return len(self._described(desc).loaded.outputs)

    @plain
    def get_input_name_by_index(self, desc: int, index: int) -> str:
        """Return the name of an input."""
        return self._input(desc, index)[0]

    @plain
    def get_output_name_by_index(self, desc: int, index: int) -> str:
        """Return ``node:index:tensor``."""
        self._output(desc, index)
        return self._described(desc).loaded.names[index]

    @plain
    def get_input_data_type(self, desc: int, index: int) -> int:
        """Return an aclDataType."""
        return ACL_DTYPE[self._input(desc, index)[1]]

    @plain
    def get_output_data_type(self, desc: int, index: int) -> int:
        """Return an aclDataType."""
        return ACL_DTYPE[self._output(desc, index).dtype or ir.DataType.UNDEFINED]

    @plain
    def get_input_format(self, desc: int, index: int) -> int:
        """Return an aclFormat: plain layout."""
        self._input(desc, index)
        return FORMAT_ND

    @getter
    def get_input_dims(self, desc: int, index: int) -> dict[str, Any]:
        """Return name and dims, -1 for open ones."""
        name, _, dims = self._input(desc, index)
        return _dims(name, dims)

    @getter
    def get_output_dims(self, desc: int, index: int) -> dict[str, Any]:
        """Return name and dims: those of the largest gear, or -1 for open ones."""
        loaded = self._described(desc).loaded
        self._output(desc, index)
        gear = None if loaded.gears is None else loaded.gears.largest
        return _dims(loaded.names[index], loaded.output_dims(index, gear))

    @getter
    def get_cur_output_dims(self, desc: int, index: int) -> dict[str, Any]:
        """Return the dims at the gear that was last set."""
        model = self._described(desc)
        self._output(desc, index)
        return _dims(model.loaded.names[index], model.loaded.output_dims(index, model.gear))

    @plain
    def get_input_size_by_index(self, desc: int, index: int) -> int:
        """Return bytes: at the largest gear, 0 for range shapes."""
        name, dtype, dims = self._input(desc, index)
        gears = self._described(desc).loaded.gears
        if gears is not None:
            dims = gears.gears[gears.largest].inputs.get(name, dims)
            sizes = [byte_size(dtype, gear.inputs.get(name, dims)) for gear in gears.gears]
            return max(sizes)
        return byte_size(dtype, dims)

    @plain
    def get_output_size_by_index(self, desc: int, index: int) -> int:
        """Return bytes: the most of all gears, 0 where a run decides."""
        loaded = self._described(desc).loaded
        dtype = self._output(desc, index).dtype or ir.DataType.UNDEFINED
        count = 0 if loaded.gears is None else len(loaded.gears.gears)
        gears: list[int | None] = [*range(count)] if count else [None]
        sizes = [byte_size(dtype, loaded.output_dims(index, gear)) for gear in gears]
        return 0 if 0 in sizes else max(sizes)

    @getter
    def get_input_index_by_name(self, desc: int, name: str) -> int:
        """Return the index of an input."""
        names = [self._input(desc, i)[0] for i in range(self.get_num_inputs(desc))]
        if name not in names:
            raise MisuseError(codes.INVALID_PARAM, f"no input is called '{name}'")
        return names.index(name)

    @getter
    def get_dynamic_batch(self, desc: int) -> dict[str, Any]:
        """Return the batch gears; none for other models."""
        batch = [row[0] for row in self._rows(desc, GearKind.BATCH)]
        return {"batchCount": len(batch), "batch": batch}

    @getter
    def get_dynamic_hw(self, desc: int, index: int) -> dict[str, Any]:
        """Return the image gears; none for other models."""
        _all_inputs(index)
        rows = [[*row] for row in self._rows(desc, GearKind.IMAGE)]
        return {"hwCount": len(rows), "hw": rows}

    @getter
    def get_input_dynamic_gear_count(self, desc: int, index: int) -> int:
        """Return the number of dims gears."""
        _all_inputs(index)
        return len(self._rows(desc, GearKind.DIMS))

    @getter
    def get_input_dynamic_dims(self, desc: int, index: int, count: int) -> list[dict[str, Any]]:
        """Return for each dims gear all dims of all inputs."""
        _all_inputs(index)
        loaded = self._described(desc).loaded
        rows = self._rows(desc, GearKind.DIMS)[:count]
        return [_dims("", _all_dims(loaded, number)) for number in range(len(rows))]

    @action
    def set_dynamic_batch_size(self, model_id: int, dataset: int, index: int, batch: int) -> None:
        """Choose a batch gear."""
        self._set(model_id, dataset, index, GearKind.BATCH, (batch,))

    @action
    def set_dynamic_hw_size(
        self, model_id: int, dataset: int, index: int, height: int, width: int
    ) -> None:
        """Choose an image gear."""
        self._set(model_id, dataset, index, GearKind.IMAGE, (height, width))

    @action
    def set_input_dynamic_dims(
        self, model_id: int, dataset: int, index: int, dims: Mapping[str, Any]
    ) -> None:
        """Choose a dims gear by all dims of all inputs."""
        if dims["dimCount"] != len(dims["dims"]):
            raise MisuseError(codes.INVALID_PARAM, "dimCount is not the number of dims")
        self._set(model_id, dataset, index, GearKind.DIMS, tuple(dims["dims"]))

    @plain
    def create_dataset(self) -> int:
        """Return an empty dataset."""
        return self.state.add("dataset", Dataset())

    @action
    def destroy_dataset(self, dataset: int) -> None:
        """Release a dataset, not its buffers; descriptions that a run made go with it."""
        found: Dataset = self.state.drop("dataset", dataset)
        for desc in found.made:
            self.state.drop("tensor desc", desc)

    @getter
    def add_dataset_buffer(self, dataset: int, buffer: int) -> int:
        """Append a buffer; return ``(dataset, code)``."""
        self.state.get("data buffer", buffer)
        self.state.get("dataset", dataset).buffers.append(buffer)
        return dataset

    @getter
    def set_dataset_tensor_desc(self, dataset: int, desc: int, index: int) -> int:
        """Say what shape an input has; return ``(dataset, code)``."""
        self.state.get("tensor desc", desc)
        found: Dataset = self.state.get("dataset", dataset)
        if not 0 <= index < len(found.buffers):
            raise MisuseError(codes.INVALID_PARAM, f"there is no buffer {index}")
        found.descs[index] = desc
        return dataset

    @plain
    def get_dataset_tensor_desc(self, dataset: int, index: int) -> int:
        """Return the description of an output after a run; the dataset keeps it."""
        descs = self.state.get("dataset", dataset).descs
        if index not in descs:
            raise MisuseError(codes.INVALID_PARAM, f"buffer {index} has no description")
        return int(descs[index])

    @action
    def execute(self, model_id: int, given: int, wanted: int) -> None:
        """Run; returns when it is done."""
        model = self._of_context(model_id)
        pair = (self.state.get("dataset", handle) for handle in (given, wanted))
        Execution(self.state, self._memory, model.loaded).run(*pair)

    def _load(self, path: Path) -> LoadedModel:
        return LoadedModel(open_host(path), low_memory=self._low_memory)

    def _of_context(self, model_id: int) -> _Model:
        context = self.state.context
        model: _Model = self.state.get("model", model_id, codes.BAD_MODEL_ID)
        if model.context != context:
            raise MisuseError(codes.RT_OTHER_CONTEXT, "the model was loaded in another context")
        return model

    def _described(self, desc: int) -> _Model:
        model: _Model | None = self.state.get("model desc", desc).model
        if model is None:
            raise MisuseError(codes.INVALID_PARAM, "the description is empty: call get_desc")
        return model

    def _input(self, desc: int, index: int) -> tuple[str, ir.DataType, Dims]:
        loaded = self._described(desc).loaded
        if 0 <= index < len(loaded.inputs):
            port = loaded.inputs[index]
            return port.name, port.dtype or ir.DataType.UNDEFINED, open_dims(port)
        if index == len(loaded.inputs) and loaded.gears is not None:
            return SHAPE_DATA, ir.DataType.INT32, (len(loaded.gears.gears[0].sizes),)
        raise MisuseError(codes.INVALID_PARAM, f"there is no input {index}")

    def _output(self, desc: int, index: int) -> Port:
        outputs = self._described(desc).loaded.outputs
        if not 0 <= index < len(outputs):
            raise MisuseError(codes.INVALID_PARAM, f"there is no output {index}")
        return outputs[index]

    def _rows(self, desc: int, kind: GearKind) -> list[Dims]:
        gears = self._described(desc).loaded.gears
        if gears is None or gears.kind != kind:
            return []
        return [gear.sizes for gear in gears.gears]

    def _set(self, model_id: int, dataset: int, index: int, kind: GearKind, row: Dims) -> None:
        model: _Model = self.state.get("model", model_id, codes.BAD_MODEL_ID)
        found: Dataset = self.state.get("dataset", dataset)
        gears = model.loaded.gears
        if gears is None or gears.kind != kind:
            raise MisuseError(
                codes.NOT_DYNAMIC, f"the model has no gears of kind {kind.name.lower()}"
            )
        if index != len(model.loaded.inputs) or index >= len(found.buffers):
            raise MisuseError(codes.INVALID_PARAM, f"input {index} is not '{SHAPE_DATA}'")
        rows = [_row(model.loaded, gears, number) for number in range(len(gears.gears))]
        if row not in rows:
            raise MisuseError(codes.GE_GEAR, f"{row} is no gear; gears: {rows}")
        found.gear = model.gear = rows.index(row)


def _all_inputs(index: int) -> None:
    if index != -1:
        raise MisuseError(codes.INVALID_PARAM, f"the index of this call is -1, not {index}")


def _row(loaded: LoadedModel, gears: GearSet, number: int) -> Dims:
    return _all_dims(loaded, number) if gears.kind == GearKind.DIMS else gears.gears[number].sizes


def _all_dims(loaded: LoadedModel, number: int) -> Dims:
    assert loaded.gears is not None
    sizes = loaded.gears.gears[number].inputs
    return tuple(d for port in loaded.inputs for d in sizes.get(port.name, open_dims(port)))


def _dims(name: str, dims: Dims) -> dict[str, Any]:
    short = name if len(name) <= _LONGEST_NAME else f"acl_modelDesc_{abs(hash(name))}"
    return {"name": short, "dimCount": len(dims), "dims": [*dims]}
