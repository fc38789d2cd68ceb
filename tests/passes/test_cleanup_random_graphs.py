"""Random small graphs keep their outputs, interface and traces through cleanup."""

from __future__ import annotations

import numpy as np
import onnx
import onnx_ir as ir
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from onnx import TensorProto, helper, numpy_helper
from tests.support.passes import optimized, show
from tests.support.runner import assert_same_results

from cannc.compiler.core.unit import load

UNARY = ("Identity", "Tanh", "Neg", "Relu", "Dropout")
BINARY = ("Add", "Sub", "Mul", "Max")
SPECIAL = ("Transpose", "Twice", "Flat", "Shaped", "Cast", "If", "Slice")


@st.composite
def models(draw: st.DrawFn) -> onnx.ModelProto:
    """Graphs over (N, 3) and (3, N) values: constants, duplicates, dead ends, layout, branches."""
    nodes: list[onnx.NodeProto] = []
    weights = [
        numpy_helper.from_array(np.array(numbers, np.float32).reshape(1, 3), f"w{i}")
        for i, numbers in enumerate(
            draw(st.lists(st.sampled_from([(0, 0, 0), (1, 1, 1), (2, -1, 3)]), max_size=3))
        )
    ]
    integers = {"zero": [0], "far": [2**40], "flat": [-1, 3], "keep": [0, 3]}
    weights += [numpy_helper.from_array(np.array(v, np.int64), k) for k, v in integers.items()]
    values = ["x", *(f"w{i}" for i in range(len(weights) - len(integers)))]
    choices = st.sampled_from([*UNARY, *BINARY, *SPECIAL])
    for index, op in enumerate(draw(st.lists(choices, min_size=1, max_size=10))):
        out = f"v{index}"
        a, b = draw(st.sampled_from(values)), draw(st.sampled_from(values))
        if op in UNARY:
            nodes.append(helper.make_node(op, [a], [out]))
        elif op in BINARY:
            nodes.append(helper.make_node(op, [a, b], [out]))
        elif op == "If":
            nodes += _branch(a, b, out, draw(st.booleans()), weights)
        else:
            nodes += _special(op, a, out)
        values.append(out)
    computed = [value for value in values if value.startswith("v")]
    names = draw(st.lists(st.sampled_from(computed), min_size=1, max_size=3, unique=True))
    outputs = [helper.make_tensor_value_info(name, TensorProto.FLOAT, None) for name in names]
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, ["N", 3])
    graph = helper.make_graph(nodes, "random", [x], outputs, weights)
    opset = [helper.make_opsetid("", 18)]
    return helper.make_model(graph, opset_imports=opset, ir_version=10)


def _special(op: str, a: str, out: str) -> list[onnx.NodeProto]:
    make = helper.make_node
    if op == "Cast":
        return [make("Cast", [a], [out], to=TensorProto.FLOAT)]
    if op == "Slice":
        return [make("Slice", [a, "zero", "far", "zero"], [out])]
    if op == "Flat":
        return [make("Reshape", [a, "flat"], [out])]
    if op == "Shaped":
        return [make("Shape", [a], [f"{out}s"]), make("Reshape", [a, f"{out}s"], [out])]
    perm = [1, 0]
    first = make("Transpose", [a], [f"{out}t"], perm=perm)
    middle = f"{out}t"
    if op == "Twice":
        return [first, make("Transpose", [middle], [out], perm=perm)]
    neg = make("Neg", [middle], [f"{out}n"])
    return [first, neg, make("Transpose", [f"{out}n"], [out], perm=perm)]


def _branch(
    a: str, b: str, out: str, taken: bool, weights: list[onnx.TensorProto]
) -> list[onnx.NodeProto]:
    make, value = helper.make_node, helper.make_tensor_value_info
    weights.append(numpy_helper.from_array(np.array(taken), f"{out}c"))
    branches = {}
    for key, op in (("then_branch", "Tanh"), ("else_branch", "Neg")):
        inner = [make(op, [a], ["inner"]), make("Add", ["inner", b], [f"{out}{key}"])]
        output = [value(f"{out}{key}", TensorProto.FLOAT, None)]
        branches[key] = helper.make_graph(inner, key, [], output)
    return [make("If", [f"{out}c"], [out], **branches)]


@settings(
    max_examples=60, deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow]
)
@given(models())
def test_outputs_interface_and_traces_are_kept(model: onnx.ModelProto) -> None:
    before = load(model)
    after = optimized(before)
    x = np.random.default_rng(0).standard_normal((2, 3)).astype(np.float32)
    # Constants are folded by the same kernels; only fusion may round in another order.
    assert_same_results(model, after.model, {"x": x}, rtol=1e-6, atol=1e-6)
    proto = ir.to_proto(after.model)
    assert list(proto.graph.input) == list(model.graph.input)
    assert [o.name for o in proto.graph.output] == [o.name for o in model.graph.output]
    assert [fate.value for fate in after.fates() if fate.kind == "unknown"] == []
    onnx.checker.check_model(proto)
    assert show(optimized(after).model) == show(after.model)
