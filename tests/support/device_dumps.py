"""Dump files as a device writes them, from a run of a model on this machine."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx_ir as ir

from cannc.compiler.om.proto import DumpData
from cannc.compiler.runtime.host_session import HostSession
from cannc.golden.dumps.file import DTYPES, HEADER
from cannc.golden.dumps.layout import FRACTAL_NZ, NC1HWC0, ND
from cannc.golden.dumps.names import mapped

ALIGNMENT = 32
_NUMBERS = {dtype: number for number, dtype in DTYPES.items()}
_UNSEEN = {"Reshape", "Squeeze", "Unsqueeze", "Flatten", "Identity", "Constant"}


def nc1hwc0(array: np.ndarray, block: int = 16) -> np.ndarray:
    """Return (N, C, H, W) as N, C1, H, W, C0, filled up with a number that would be noticed."""
    n, c, h, w = array.shape
    filled = np.full((n, -(-c // block) * block, h, w), 7, array.dtype)
    filled[:, :c] = array
    return filled.reshape(n, -1, block, h, w).transpose(0, 1, 3, 4, 2).copy()


def fractal_nz(array: np.ndarray, block: int = 16) -> np.ndarray:
    """Return (..., M, N) as ..., N1, M1, M0, N0, filled up likewise."""
    *outer, rows, columns = array.shape
    filled = np.full(
        (*outer, -(-rows // block) * block, -(-columns // block) * block), 7, array.dtype
    )
    filled[..., :rows, :columns] = array
    blocks = filled.reshape(
        *outer, filled.shape[-2] // block, block, filled.shape[-1] // block, block
    )
    axes = len(outer)
    return blocks.transpose(*range(axes), axes + 2, axes, axes + 1, axes + 3).copy()


def describe(
    message: Any,
    array: np.ndarray,
    *,
    layout: int = ND,
    origin: tuple[str, int] | None = None,
    origin_layout: int = ND,
) -> bytes:
    """Fill an input or output message; return the bytes that belong to it, with alignment."""
    message.data_type = _NUMBERS[array.dtype]
    message.format = layout
    message.original_shape.dim.extend(array.shape)
    stored = {NC1HWC0: nc1hwc0, FRACTAL_NZ: fractal_nz}.get(layout, np.ascontiguousarray)(array)
    message.shape.dim.extend(stored.shape if array.ndim else ())
    if origin is not None:
        message.original_op.name, message.original_op.output_index = origin
        message.original_op.format = origin_layout
    data = stored.tobytes()
    data += bytes(-len(data) % ALIGNMENT)
    message.size = len(data)
    return data


def write_dump(
    folder: Path,
    op_type: str,
    op_name: str,
    outputs: Sequence[tuple[np.ndarray, dict[str, Any]]],
    inputs: Sequence[np.ndarray] = (),
    numbers: Sequence[int] = (3, 1, 1_700_000_000_000_000),
) -> Path:
    """Write one dump file: arrays with the arguments of `describe`."""
    header = DumpData(version="1.0", dump_time=numbers[-1], op_name=op_name)
    data = [describe(header.input.add(), array) for array in inputs]
    data += [describe(header.output.add(), array, **how) for array, how in outputs]
    header.space.add(type=1, size=4)
    encoded = header.SerializeToString()
    name = ".".join([mapped(op_type), mapped(op_name), *map(str, numbers)])
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / name
    path.write_bytes(HEADER.pack(len(encoded)) + encoded + b"".join(data) + bytes(4))
    return path


def dump_model(
    model: ir.Model,
    feeds: Mapping[str, np.ndarray],
    folder: Path,
    *,
    fused: Sequence[Sequence[str]] = (),
    layouts: Mapping[str, int] | None = None,
) -> None:
    """Run the compiled model and dump every node that would have a task.

    Args:
        model: The model that was given to the device's compiler.
        feeds: Inputs.
        folder: Folder of the run.
        fused: Groups of nodes that became one op, named after their last node.
        layouts: Node -> device layout of its outputs.
    """
    absorbed = {name for group in fused for name in group[:-1]}
    nodes = [n for n in model.graph if n.op_type not in _UNSEEN and n.name not in absorbed]
    taps = [value.name for node in nodes for value in node.outputs if value.name]
    arrays = HostSession(model, taps=taps).run(feeds)
    fused_names = {group[-1]: "".join(group) for group in fused}
    for time, node in enumerate(nodes):
        layout = (layouts or {}).get(node.name, ND)
        outputs = [
            (
                np.asarray(arrays[value.name]),
                {
                    "layout": layout,
                    "origin": (node.name, index),
                    "origin_layout": 0 if layout == NC1HWC0 else ND,
                },
            )
            for index, value in enumerate(node.outputs)
        ]
        op_name = fused_names.get(node.name, node.name)
        write_dump(folder, node.op_type, op_name, outputs, numbers=(time, 0, 1000 + time))
