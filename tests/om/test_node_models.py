"""Every model of ONNX's own node tests goes through a file and comes back equal."""

import os
import warnings
from collections import Counter

import onnx
import onnx_ir as ir
from onnx.external_data_helper import load_external_data_for_tensor, uses_external_data
from tests.support.gears import with_gears
from tests.support.om_files import written

from cannc.compiler.om.gears import GearKind

EVERY_WITH_GEARS = 25


def normalized(model: onnx.ModelProto, folder: str) -> onnx.ModelProto:
    """Return the model in the form in which two equal ones are the same bytes.

    Order of attributes, functions and value_info carries no meaning, nor does how a tensor holds
    its numbers (typed fields, raw bytes, another file).
    """
    model.functions.sort(key=lambda f: (f.domain, f.name))
    pending = [model.graph]
    while pending:
        graph = pending.pop()
        graph.value_info.sort(key=lambda v: v.name)
        tensors = list(graph.initializer)
        for node in graph.node:
            node.attribute.sort(key=lambda a: a.name)
            for attribute in node.attribute:
                tensors += [attribute.t] if attribute.HasField("t") else []
                tensors += attribute.tensors
                pending += [attribute.g] if attribute.HasField("g") else []
                pending += attribute.graphs
        for tensor in tensors:
            _normalize_tensor(tensor, folder)
    return model


def _normalize_tensor(tensor: onnx.TensorProto, folder: str) -> None:
    if uses_external_data(tensor):
        load_external_data_for_tensor(tensor, folder)
        tensor.ClearField("data_location")
        tensor.ClearField("external_data")
    if tensor.data_type != onnx.TensorProto.STRING:
        raw = ir.from_proto(tensor).tobytes()
        kept = onnx.TensorProto(name=tensor.name, data_type=tensor.data_type, dims=tensor.dims)
        kept.doc_string, kept.raw_data = tensor.doc_string, raw
        tensor.CopyFrom(kept)


def static_inputs(proto: onnx.ModelProto) -> dict[str, tuple[int, ...]]:
    """Return the shapes of tensor inputs; none if an input has an open shape."""
    values = [v for v in ir.from_proto(proto).graph.inputs if isinstance(v.type, ir.TensorType)]
    if any(v.shape is None or not v.shape.is_static() for v in values):
        return {}
    return {v.name: tuple(v.shape.numpy()) for v in values}


def test_all_node_models(tmp_path, monkeypatch):
    monkeypatch.setattr(os, "fsync", lambda _: None)  # thousands of files that nobody will miss
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the cases overflow on purpose while they are made
        from onnx.backend.test.case.node import collect_testcases

        cases = [case for case in collect_testcases(None) if case.model is not None]
    op_types = Counter()
    for index, case in enumerate(cases):
        expected = normalized(ir.to_proto(ir.from_proto(case.model)), "")
        files = [written(case.model, tmp_path / "case.om")]
        shapes = static_inputs(case.model)
        if index % EVERY_WITH_GEARS == 0 and shapes:
            # Two gears of one size: it is the way there and back that is tried.
            path = tmp_path / "gears.om"
            rows = [(1,), (2,)]
            files.append(with_gears(case.model, path, [shapes] * 2, rows, GearKind.DIMS))
        for file in files:
            found = normalized(ir.to_proto(file.to_model()), str(tmp_path))
            assert found == expected, case.name
        op_types.update(node.op_type for node in expected.graph.node)
    assert len(cases) > 1500
    assert len(op_types) > 150
