"""onnxruntime sessions from models of any size, with weights that stay where they are.

Weights in files are referred to there, in any number of folders and at any offset, also inside an
.om: onnxruntime maps them. Large ones in memory are handed over as OrtValues, so protobuf's 2 GB
limit does not matter. Measured on 48 weights of 2048 x 2048, private memory beyond Python's 70 MB:
float32, float16 and int8 0.8 GB each (float32, repacked for MatMul), with ``low_memory`` 40 MB.
This is the only module that knows onnxruntime's options and errors.
"""

from __future__ import annotations

import ctypes
import os
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx_ir as ir
import onnxruntime as ort
from onnxruntime.capi import onnxruntime_pybind11_state as state

from cannc.compiler.core.errors import ModelError, UsageError
from cannc.compiler.core.graphs import all_graphs
from cannc.compiler.core.runner import Array
from cannc.compiler.core.tensors import read
from cannc.compiler.runtime.casts import Names

THREADS_VARIABLE = "CANNC_THREADS"
_INLINE_BYTES = 1024
_IR_VERSION = 10
"""Old releases refuse files of a newer format, whose additions no graph here needs."""
_ROOT = Path("/")
_FOLDER_OPTION = "session.model_external_initializers_file_folder_path"
_ERRORS: tuple[type[Exception], ...] = (
    *(v for v in vars(state).values() if isinstance(v, type) and issubclass(v, Exception)),
    RuntimeError,
    ValueError,
)


class OrtSession:
    """One onnxruntime session over a model's weights."""

    def __init__(self, model: ir.Model, *, fuse: bool = True, low_memory: bool = False) -> None:
        """Take over `model` (changed in place) and start the session.

        Args:
            model: A model that onnxruntime can run; its large initializers are moved out.
            fuse: False switches all of onnxruntime's graph optimizations off.
            low_memory: Keep weights as they are stored and mapped: no folding, no repacking, and
                none of the optimizations; slower.

        Raises:
            ModelError: ``RUN001`` onnxruntime refuses the model.
        """
        self._held = _move_weights_out(model)
        options = _options(fuse=fuse, low_memory=low_memory)
        values = [_ort_value(tensor, array) for tensor, array in self._held.values()]
        options.add_external_initializers([*self._held], values)
        self._values = values
        model.ir_version = min(model.ir_version, _IR_VERSION)
        data = ir.to_proto(model).SerializeToString()
        try:
            self._session = ort.InferenceSession(data, options, providers=["CPUExecutionProvider"])
        except _ERRORS as error:
            raise _explained("RUN001", "onnxruntime refuses the model", error) from error
        _trim()

    def run(self, names: Sequence[str], feeds: Mapping[str, Any]) -> list[Any]:
        """Run once; arrays, lists of arrays or None in and out.

        Raises:
            ModelError: ``RUN002`` a node failed.
        """
        try:
            outputs: list[Any] = self._session.run([*names], dict(feeds))
        except _ERRORS as error:
            raise _explained("RUN002", "the run failed", error) from error
        return outputs


def _options(*, fuse: bool, low_memory: bool) -> ort.SessionOptions:
    options = ort.SessionOptions()
    options.add_session_config_entry(_FOLDER_OPTION, str(_ROOT))
    options.log_severity_level = 4  # what matters comes back as an exception
    options.intra_op_num_threads = _threads()
    # Quantized graphs keep the numerics that they state, and their weights may be folded.
    options.add_session_config_entry("session.disable_quant_qdq", "1")
    if not fuse or low_memory:
        options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    if low_memory:
        options.add_session_config_entry("session.disable_prepacking", "1")
        options.enable_cpu_mem_arena = False
    return options


def _trim() -> None:
    """Give what loading has freed back to the system, where the C library can."""
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is not None:
        trim(0)


def _threads() -> int:
    text = os.environ.get(THREADS_VARIABLE, "0")
    if not text.isdigit():
        raise UsageError(
            "RUN003",
            f"{THREADS_VARIABLE} is '{text}'",
            fix="set it to a number of threads; 0 or unset means one per core",
        )
    return int(text)


def _move_weights_out(model: ir.Model) -> dict[str, tuple[ir.TensorProtocol, Array]]:
    """Replace large initializers by references; return those in memory: name -> tensor, numbers.

    What lies in a file is referred to there. What is in memory gets a stand-in that onnxruntime
    replaces by an OrtValue; since it does that in the main graph only, weights of branches move
    there.
    """
    main = model.graph
    names = Names(model)
    held: dict[str, tuple[ir.TensorProtocol, Array]] = {}
    for _, graph in all_graphs(main):
        for name, value in [*graph.initializers.items()]:
            tensor = value.const_value
            if not value.uses() and not value.is_graph_output():
                graph.initializers.pop(name)  # onnxruntime drops it and would then miss it
                continue
            if tensor is None:
                continue
            if not _can_be_outside(tensor):
                value.const_value = _inline(tensor)
                continue
            if isinstance(tensor, ir.ExternalTensor):
                value.const_value = _in_file(tensor)
                continue
            if graph is not main:
                if value.is_graph_output():
                    continue
                graph.initializers.pop(name)
                value.name = names.fresh(name)
                main.initializers.add(value)
            held[value.name or ""] = (tensor, np.ascontiguousarray(tensor.numpy()))
            value.const_value = _reference(tensor, "held", 0, value.name or "")
    return held


def _in_file(tensor: ir.ExternalTensor) -> ir.ExternalTensor:
    """Return a reference relative to the root folder, since weights may lie in many folders."""
    path = Path(tensor.path).resolve()
    location = path.relative_to(_ROOT).as_posix()
    return _reference(tensor, location, tensor.offset or 0, tensor.name)


def _reference(
    tensor: ir.TensorProtocol, location: str, offset: int, name: str
) -> ir.ExternalTensor:
    shape = ir.Shape(tensor.shape.numpy())
    return ir.ExternalTensor(location, offset, tensor.nbytes, tensor.dtype, shape=shape, name=name)


def _inline(tensor: ir.TensorProtocol) -> ir.TensorProtocol:
    """Return the tensor in memory: onnxruntime's shape inference reads axes and shapes itself."""
    if not isinstance(tensor, ir.ExternalTensor):
        return tensor
    return ir.Tensor(read(tensor), dtype=tensor.dtype, name=tensor.name)


def _can_be_outside(tensor: ir.TensorProtocol) -> bool:
    return (
        tensor.nbytes > _INLINE_BYTES
        and tensor.dtype.bitwidth >= 8
        and tensor.dtype not in (ir.DataType.COMPLEX64, ir.DataType.COMPLEX128)
    )


def _ort_value(tensor: ir.TensorProtocol, array: Array) -> ort.OrtValue:
    if np.dtype(array.dtype.type).isbuiltin == 1:  # whatever its byte order mark says
        return ort.OrtValue.ortvalue_from_numpy(array)
    bits = array.view({1: np.uint8, 2: np.uint16}[array.dtype.itemsize])
    return ort.OrtValue.ortvalue_from_numpy_with_onnx_type(bits, int(tensor.dtype))


def _explained(code: str, what: str, error: Exception) -> ModelError:
    """Turn onnxruntime's message into ours: the node apart, internals cut off."""
    text = re.sub(r"^\[ONNXRuntimeError\] : \d+ : \w+ : ", "", str(error))
    node = re.search(r"(?:[Nn]ode with name|Name:|Node \(|Node:)\s*'?([^'()\s]*)", text)
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return ModelError(
        code,
        what,
        where=f"node {node[1]}" if node and node[1] else "",
        why=" ".join(lines)[:600],
        fix="check the inputs' shapes and values; 'cannc check' lists unsupported operators",
    )
