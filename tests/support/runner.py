"""Oracles: onnxruntime with all its optimizations off, as a `Runner` and for comparing models."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import onnx
import onnx_ir as ir
import onnxruntime as ort

from cannc.compiler.core.runner import Array


class PlainRunner:
    """Runs models on onnxruntime, graph optimizations disabled, no float16 simulation."""

    def run(
        self, model: ir.Model, feeds: Mapping[str, Array], fetches: Sequence[str]
    ) -> dict[str, Array]:
        """Run once; fetched values need not be graph outputs."""
        proto = ir.to_proto(model)
        declared = {value.name for value in proto.graph.output}
        proto.graph.output.extend(
            onnx.ValueInfoProto(name=name) for name in fetches if name not in declared
        )
        results = session(proto).run(list(fetches), dict(feeds))
        return dict(zip(fetches, results, strict=True))


def session(model: onnx.ModelProto | ir.Model) -> ort.InferenceSession:
    """Return a session on the CPU that changes nothing about the graph."""
    options = ort.SessionOptions()
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.log_severity_level = 4
    options.intra_op_num_threads = 1
    proto = ir.to_proto(model) if isinstance(model, ir.Model) else model
    return ort.InferenceSession(
        proto.SerializeToString(), options, providers=["CPUExecutionProvider"]
    )


def run_plain(model: onnx.ModelProto | ir.Model, feeds: Mapping[str, Array]) -> dict[str, Array]:
    """Run a model once and return its outputs by name."""
    running = session(model)
    names = [output.name for output in running.get_outputs()]
    return dict(zip(names, running.run(names, dict(feeds)), strict=True))


def assert_same_results(
    before: onnx.ModelProto | ir.Model,
    after: onnx.ModelProto | ir.Model,
    feeds: Mapping[str, Array],
    *,
    rtol: float = 0.0,
    atol: float = 0.0,
) -> None:
    """Both models give the same outputs, by name and in the same order."""
    expected, actual = run_plain(before, feeds), run_plain(after, feeds)
    assert list(actual) == list(expected)
    for name, array in expected.items():
        assert actual[name].dtype == array.dtype, name
        np.testing.assert_allclose(actual[name], array, rtol=rtol, atol=atol, err_msg=name)
