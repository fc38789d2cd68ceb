"""A host artifact in memory: what it takes and gives, and the graphs of its gears."""

from __future__ import annotations

import math
import threading
from collections.abc import Mapping
from typing import Any

import onnx_ir as ir

from cannc.compiler.om.attributes import typed
from cannc.compiler.om.dtypes import ACL_DTYPE, packed_bytes
from cannc.compiler.om.gears import OUTPUT_DIMS, Dims, GearSet
from cannc.compiler.om.reader import OmFile
from cannc.compiler.runtime.host_session import HostSession
from cannc.compiler.runtime.ports import Port

_BYTE_BITS = 8


class LoadedModel:
    """The graphs of an artifact. Gears that differ in shapes only share one session.

    Attributes:
        gears: The gears; None without.
        inputs: The inputs that a caller feeds.
        outputs: The graph outputs.
        names: Outputs as a device names them: node, index and tensor.
    """

    def __init__(self, om: OmFile, *, low_memory: bool = False) -> None:
        """Load the graph of the largest gear; others, where they differ, at their first use.

        Args:
            om: A host artifact.
            low_memory: See `HostSession`.

        Raises:
            ModelError: it is damaged, or onnxruntime refuses its graph.
        """
        self._om = om
        self._low_memory = low_memory
        self._lock = threading.Lock()
        self._sessions: dict[int | None, HostSession] = {}
        self.gears: GearSet | None = self._om.gears
        first = self._session(None if self.gears is None else self.gears.largest)
        self.inputs: list[Port] = first.inputs
        self.outputs: list[Port] = first.outputs
        definition = self._om.definition
        names = typed(definition.attr, "attr_model_out_nodes_name", "list:s", [])
        self.names = [
            str(name) if str(name).endswith(f":{port.name}") else f"out:{index}:{port.name}"
            for index, (name, port) in enumerate(
                zip([*names, *[""] * len(self.outputs)], self.outputs, strict=False)
            )
        ]
        self._gear_dims = _gear_dims(definition)

    @property
    def is_plain(self) -> bool:
        """Can all inputs and outputs travel as pyACL's buffers?

        Strings, sequences, optionals, packed numbers and tensors of unknown rank cannot.
        """
        return all(_is_plain(port) for port in (*self.inputs, *self.outputs))

    def output_dims(self, index: int, gear: int | None) -> Dims:
        """Return an output's shape, -1 for sizes that a run decides; that of a gear if given."""
        port = self.outputs[index]
        if gear is None:
            return open_dims(port)
        return self._gear_dims.get((gear, index), open_dims(port))

    def run(self, feeds: Mapping[str, Any], gear: int | None) -> dict[str, Any]:
        """Run the graph of a gear at the sizes of the inputs.

        Raises:
            ModelError: ``RUN002`` a node failed.
        """
        return self._session(gear).run(feeds)

    def close(self) -> None:
        """Release the sessions."""
        self._sessions.clear()

    def _session(self, gear: int | None) -> HostSession:
        group = None if gear is None else self._om.gear_groups[gear]
        with self._lock:
            if group not in self._sessions:
                model = self._om.to_model(group)
                self._sessions[group] = HostSession(model, low_memory=self._low_memory)
            return self._sessions[group]


def open_dims(port: Port) -> Dims:
    """Return the dims of a plain port, -1 where they are open."""
    return tuple(dim if isinstance(dim, int) else -1 for dim in port.shape or ())


def byte_size(dtype: ir.DataType, dims: Dims) -> int:
    """Return the bytes of a tensor; 0 while a dim is open, as pyACL says it."""
    return 0 if -1 in dims else packed_bytes(dtype, math.prod(dims))


def _is_plain(port: Port) -> bool:
    dtype = port.dtype
    return (
        isinstance(port.type, ir.TensorType)
        and port.shape is not None
        and dtype is not None
        and dtype in ACL_DTYPE
        and dtype not in (ir.DataType.STRING, ir.DataType.UNDEFINED)
        and dtype.bitwidth >= _BYTE_BITS
    )


def _gear_dims(definition: Any) -> dict[tuple[int, int], Dims]:
    """Return the shapes of outputs by gear and output, as the root graph lists them."""
    end = next(op for op in definition.graph[0].op if op.type == "NetOutput")
    rows = typed(end.attr, OUTPUT_DIMS, "list:s", [])
    split = [[int(part) for part in str(row).split(",") if part] for row in rows]
    return {(row[0], row[1]): tuple(row[2:]) for row in split}
