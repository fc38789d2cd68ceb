"""A model in a device's context, described as far as pyACL knows it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import onnx_ir as ir

from cannc.compiler.core.errors import ModelError, ToolchainError
from cannc.compiler.om.dtypes import FROM_ACL
from cannc.compiler.om.gears import SHAPE_DATA, Dims, Gear, GearKind, GearSet
from cannc.compiler.runtime.acl.calls import Calls
from cannc.compiler.runtime.ports import Dim, Port

AIPP_DATA = "ascend_dynamic_aipp_data"
_ALL = -1
_NAME_PARTS = 3


@dataclass(frozen=True)
class AclModel:
    """A loaded model.

    Attributes:
        number: Its id.
        desc: Handle of its description.
        inputs: What to feed; sizes that gears or ranges leave open are None.
        outputs: What comes back.
        input_bytes: Sizes of buffers; 0 where a run decides.
        output_bytes: The same of outputs.
        formats: Layout number of each input.
        gears: The sizes that it is compiled for; None without.
        gear_input: Index of the input that takes the sizes of a gear.
    """

    number: int
    desc: int
    inputs: list[Port]
    outputs: list[Port]
    input_bytes: list[int]
    output_bytes: list[int]
    formats: list[int]
    gears: GearSet | None
    gear_input: int

    def all_dims(self, gear: Gear) -> Dims:
        """Return all dims of all inputs, as gears of kind dims are set."""
        return tuple(
            dim if isinstance(dim, int) else -1
            for port in self.inputs
            for dim in gear.inputs.get(port.name, port.shape or ())
        )


def load(calls: Calls, path: Path) -> AclModel:
    """Load an .om into the current context; `calls` unloads it.

    Raises:
        AclError: ``RUN030`` the device refuses it.
        ModelError: ``RUN033`` an input is of a kind that sessions do not feed.
    """
    number = calls.get("mdl.load_from_file", str(path))
    calls.later("mdl.unload", number)
    desc = calls.made("mdl.create_desc")
    calls.later("mdl.destroy_desc", desc)
    calls.do("mdl.get_desc", desc, number)
    return _Describer(calls, number, desc).describe()


def tensor_name(device_name: str) -> str:
    """Return the tensor of ``node:index:tensor``; other names are returned as they are."""
    parts = device_name.split(":", _NAME_PARTS - 1)
    plain = len(parts) == _NAME_PARTS and parts[1].isdigit() and parts[2]
    return parts[2] if plain else device_name


class _Describer:
    def __init__(self, calls: Calls, number: int, desc: int) -> None:
        self.calls, self.number, self.desc = calls, number, desc

    def describe(self) -> AclModel:
        count = self.calls.plain("mdl.get_num_inputs", self.desc)
        names = [self._ask("mdl.get_input_name_by_index", i) for i in range(count)]
        if AIPP_DATA in names:
            raise ModelError(
                "RUN033",
                "the model takes its AIPP parameters at run time",
                where=AIPP_DATA,
                why="sessions do not set them",
                fix="compile it with a static AIPP file",
            )
        fed = [i for i, name in enumerate(names) if name != SHAPE_DATA]
        hidden = names.index(SHAPE_DATA) if SHAPE_DATA in names else -1
        inputs = [self._port("input", i, names[i]) for i in fed]
        outs = range(self.calls.plain("mdl.get_num_outputs", self.desc))
        outputs = [
            self._port("output", i, tensor_name(self._ask("mdl.get_output_name_by_index", i)))
            for i in outs
        ]
        return AclModel(
            self.number,
            self.desc,
            inputs,
            outputs,
            [self._ask("mdl.get_input_size_by_index", i) for i in range(count)],
            [self._ask("mdl.get_output_size_by_index", i) for i in outs],
            [self._ask("mdl.get_input_format", i) for i in range(count)],
            self._gears(inputs) if hidden >= 0 else None,
            hidden,
        )

    def _ask(self, name: str, index: int) -> Any:
        return self.calls.plain(name, self.desc, index)

    def _port(self, side: str, index: int, name: str) -> Port:
        number = self._ask(f"mdl.get_{side}_data_type", index)
        dtype = FROM_ACL.get(number)
        if dtype is None:
            raise ToolchainError(
                "RUN034",
                f"{side} '{name}' has a dtype that cannot be fed",
                where=f"aclDataType {number}",
                fix="cast it inside the model",
            )
        dims = self.calls.get(f"mdl.get_{side}_dims", self.desc, index)["dims"]
        shape: tuple[Dim, ...] = tuple(dim if dim >= 0 else None for dim in dims)
        return Port(name, ir.TensorType(dtype), shape)

    def _gears(self, inputs: Sequence[Port]) -> GearSet:
        order = tuple(port.name for port in inputs)
        batch = self.calls.get("mdl.get_dynamic_batch", self.desc)["batch"]
        if batch:
            return GearSet(GearKind.BATCH, order, tuple(_filled(inputs, (n,)) for n in batch))
        sizes = self.calls.get("mdl.get_dynamic_hw", self.desc, _ALL)["hw"]
        if sizes:
            gears = tuple(_filled(inputs, tuple(row)) for row in sizes)
            return GearSet(GearKind.IMAGE, order, gears)
        count = self.calls.get("mdl.get_input_dynamic_gear_count", self.desc, _ALL)
        rows = self.calls.get("mdl.get_input_dynamic_dims", self.desc, _ALL, count)
        return GearSet(
            GearKind.DIMS, order, tuple(_cut_up(inputs, tuple(row["dims"])) for row in rows)
        )


def _filled(inputs: Sequence[Port], sizes: Dims) -> Gear:
    """Return a batch or image gear: the open dims of each input take its sizes in turn."""
    shapes = {}
    for port in inputs:
        left = list(sizes)
        dims = [
            dim if isinstance(dim, int) else left.pop(0) if len(left) > 1 else left[0]
            for dim in port.shape or ()
        ]
        shapes[port.name] = tuple(dims)
    return Gear(sizes, shapes)


def _cut_up(inputs: Sequence[Port], row: Dims) -> Gear:
    """Return a dims gear from all dims of all inputs."""
    shapes, sizes, rest = {}, [], list(row)
    for port in inputs:
        rank = len(port.shape or ())
        shapes[port.name], rest = tuple(rest[:rank]), rest[rank:]
        pairs = zip(port.shape or (), shapes[port.name], strict=True)
        sizes += [size for dim, size in pairs if dim is None]
    return Gear(tuple(sizes), shapes)
