"""onnxruntime sessions from models of any size, with weights that stay where they are.

Large weights are handed over as OrtValues around numpy views (of a mapped file or of memory), so
neither protobuf's 2 GB limit nor a copy stands in the way, and they may lie in any number of files.
This is the only module that knows onnxruntime's options and errors.
"""

from __future__ import annotations

import mmap
import os
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import onnx_ir as ir
import onnxruntime as ort
from onnxruntime.capi import onnxruntime_pybind11_state as state

from cannc.compiler.core.errors import ModelError, UsageError
from cannc.compiler.core.graphs import all_graphs, unique
from cannc.compiler.core.runner import Array
from cannc.compiler.core.tensors import read, source_of

THREADS_VARIABLE = "CANNC_THREADS"
_INLINE_BYTES = 1024
_ERRORS: tuple[type[Exception], ...] = (
    *(v for v in vars(state).values() if isinstance(v, type) and issubclass(v, Exception)),
    RuntimeError,
    ValueError,
)


class OrtSession:
    """One onnxruntime session over a model's weights.

    Attributes:
        output_names: In graph order.
    """

    def __init__(self, model: ir.Model, *, fuse: bool = True, low_memory: bool = False) -> None:
        """Take over `model` (changed in place) and start the session.

        Args:
            model: A model that onnxruntime can run; its large initializers are moved out.
            fuse: False switches all of onnxruntime's graph optimizations off.
            low_memory: Keep weights as they are stored: no folding, no repacking; slower.

        Raises:
            ModelError: ``RUN001`` onnxruntime refuses the model.
        """
        self._held = _move_weights_out(model)
        options = _options(fuse=fuse, low_memory=low_memory)
        values = [_ort_value(tensor, array) for tensor, array in self._held.values()]
        options.add_external_initializers([*self._held], values)
        self._values = values
        disabled = ["ConstantFolding"] if low_memory else []
        data = ir.to_proto(model).SerializeToString()
        try:
            self._session = ort.InferenceSession(
                data, options, providers=["CPUExecutionProvider"], disabled_optimizers=disabled
            )
        except _ERRORS as error:
            raise _explained("RUN001", "onnxruntime refuses the model", error) from error
        self.output_names = [output.name for output in self._session.get_outputs()]
        _give_pages_back(tensor for tensor, _ in self._held.values())

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
    options.log_severity_level = 4  # what matters comes back as an exception
    options.intra_op_num_threads = _threads()
    if not fuse:
        options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    if low_memory:
        options.add_session_config_entry("session.disable_prepacking", "1")
        options.enable_cpu_mem_arena = False
    return options


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
    """Replace large initializers by references; return name -> tensor and its numbers.

    Those of branches move to the main graph, since only that takes weights from outside.
    """
    main = model.graph
    taken = {v.name for _, g in all_graphs(main) for n in g for v in n.outputs}
    taken |= {v.name for _, g in all_graphs(main) for v in (*g.inputs, *g.initializers.values())}
    held: dict[str, tuple[ir.TensorProtocol, Array]] = {}
    for _, graph in all_graphs(main):
        for name, value in [*graph.initializers.items()]:
            tensor = value.const_value
            if tensor is None:
                continue
            if not _can_be_held(tensor):
                value.const_value = _inline(tensor)
                continue
            if graph is not main:
                if value.is_graph_output():
                    continue
                graph.initializers.pop(name)
                value.name = unique(name, taken)
                taken.add(value.name)
                main.initializers.add(value)
            held[value.name or ""] = (tensor, np.ascontiguousarray(tensor.numpy()))
            value.const_value = _reference(tensor, value.name or "")
    return held


def _reference(tensor: ir.TensorProtocol, name: str) -> ir.ExternalTensor:
    """Return a stand-in that onnxruntime replaces by the OrtValue of that name."""
    shape = ir.Shape(tensor.shape.numpy())
    return ir.ExternalTensor("held", 0, tensor.nbytes, tensor.dtype, shape=shape, name=name)


def _inline(tensor: ir.TensorProtocol) -> ir.TensorProtocol:
    """Return the tensor in memory: onnxruntime's shape inference reads axes and shapes itself."""
    if not isinstance(tensor, ir.ExternalTensor):
        return tensor
    return ir.Tensor(read(tensor), dtype=tensor.dtype, name=tensor.name)


def _can_be_held(tensor: ir.TensorProtocol) -> bool:
    return (
        tensor.nbytes > _INLINE_BYTES
        and tensor.dtype.bitwidth >= 8
        and tensor.dtype not in (ir.DataType.COMPLEX64, ir.DataType.COMPLEX128)
    )


def _ort_value(tensor: ir.TensorProtocol, array: Array) -> ort.OrtValue:
    if np.dtype(array.dtype.type).isbuiltin == 1:  # whatever its byte order mark
        return ort.OrtValue.ortvalue_from_numpy(array)
    bits = array.view({1: np.uint8, 2: np.uint16}[array.dtype.itemsize])
    return ort.OrtValue.ortvalue_from_numpy_with_onnx_type(bits, int(tensor.dtype))


def _give_pages_back(tensors: Iterable[ir.TensorProtocol]) -> None:
    """Drop mapped pages that loading has read (D16); they come back when they are needed."""
    for tensor in tensors:
        origin = source_of(tensor)
        if isinstance(origin, ir.ExternalTensor) and origin.raw is not None:
            origin.raw.madvise(mmap.MADV_DONTNEED)


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
