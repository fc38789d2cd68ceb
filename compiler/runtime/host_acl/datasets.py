"""Data buffers, datasets and tensor descriptions: what a run is given, in pyACL's terms."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from cannc.compiler.runtime.host_acl.state import (
    INVALID_PARAM,
    MisuseError,
    State,
    action,
    getter,
    plain,
)


@dataclass
class DataBuffer:
    """An address and a size; address 0 lets the run allocate."""

    address: int
    size: int


@dataclass
class TensorDesc:
    """Type, shape and layout of one tensor."""

    dtype: int
    dims: tuple[int, ...]
    layout: int


@dataclass
class Dataset:
    """Buffers in index order, descriptions by index, those of a run's own, and the gear set."""

    buffers: list[int] = field(default_factory=list)
    descs: dict[int, int] = field(default_factory=dict)
    made: list[int] = field(default_factory=list)
    gear: int | None = None


class Buffers:
    """The calls of ``acl`` itself that concern buffers and descriptions."""

    state: State

    @plain
    def create_data_buffer(self, address: int, size: int) -> int:
        """Return a buffer over memory of the caller's."""
        if size < 0 or (address == 0) != (size == 0):
            raise MisuseError(INVALID_PARAM, f"{size} bytes at {address:#x} are no buffer")
        return self.state.add("data buffer", DataBuffer(address, size))

    @action
    def update_data_buffer(self, buffer: int, address: int, size: int) -> None:
        """Let a buffer be over other memory."""
        found: DataBuffer = self.state.get("data buffer", buffer)
        found.address, found.size = address, size

    @action
    def destroy_data_buffer(self, buffer: int) -> None:
        """Release the buffer, not its memory."""
        self.state.drop("data buffer", buffer)

    @plain
    def get_data_buffer_addr(self, buffer: int) -> int:
        """Return the address."""
        return int(self.state.get("data buffer", buffer).address)

    @plain
    def get_data_buffer_size(self, buffer: int) -> int:
        """Return the size in bytes."""
        return int(self.state.get("data buffer", buffer).size)

    @plain
    def create_tensor_desc(self, dtype: int, dims: Sequence[int], layout: int) -> int:
        """Return a description of a tensor."""
        return self.state.add("tensor desc", TensorDesc(dtype, tuple(dims), layout))

    @plain
    def destroy_tensor_desc(self, desc: int) -> None:
        """Release a description; this call alone returns nothing."""
        self.state.drop("tensor desc", desc)

    @plain
    def get_tensor_desc_num_dims(self, desc: int) -> int:
        """Return the rank."""
        return len(self.state.get("tensor desc", desc).dims)

    @getter
    def get_tensor_desc_dim_v2(self, desc: int, axis: int) -> int:
        """Return a size."""
        dims = self.state.get("tensor desc", desc).dims
        if not 0 <= axis < len(dims):
            raise MisuseError(INVALID_PARAM, f"there is no axis {axis}")
        return int(dims[axis])
