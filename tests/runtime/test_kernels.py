"""Replacements of fused operators: equal to the function body, refused where they do not fit."""

import numpy as np
import onnx_ir as ir
import pytest
from tests.support.models import parse

from cannc.compiler.core.graphs import walk
from cannc.compiler.runtime.host_session import HostSession
from cannc.compiler.runtime.kernels import unpack_int4, use_kernels
from cannc.passes.fusion.npu_ops import use_npu_op

HEADER = '<ir_version: 10, opset_import: ["": 18, "npu": 1]>'
RNG = np.random.default_rng(0)


def fused(text: str, op_type: str, **weights) -> ir.Model:
    model = ir.from_proto(parse(HEADER + text, **weights))
    use_npu_op(model, op_type)
    return model


def remaining(model: ir.Model) -> list[str]:
    copy = model.clone()
    use_kernels(copy, contrib=True)
    return [s.node.op_type for s in walk(copy.graph) if s.node.domain == "npu"]


def by_body(model: ir.Model, feeds):
    """Run the function body: another name keeps the replacement away."""
    copy = model.clone()
    for scoped in walk(copy.graph):
        if scoped.node.domain == "npu":
            scoped.node.domain = "body"
    for identifier, function in [*copy.functions.items()]:
        del copy.functions[identifier]
        function.domain = "body"
        copy.functions[function.identifier()] = function
    copy.opset_imports["body"] = 1
    return HostSession(copy).run(feeds)


def check_equal(model: ir.Model, feeds, tolerance: float = 1e-6):
    assert remaining(model) == []
    expected, actual = by_body(model, feeds), HostSession(model).run(feeds)
    assert list(actual) == list(expected)
    for name, array in expected.items():
        assert actual[name].dtype == array.dtype
        if array.dtype == np.float16:  # float32 results this near differ by one step at most
            tolerance = 2e-3
        np.testing.assert_allclose(
            actual[name].astype(np.float64), array, rtol=tolerance, atol=tolerance
        )


CASES = {
    "NPUFastGelu": "g (T[N,70] x) => (T[N,70] y) { y = npu.NPUFastGelu (x) }",
    "NPUGeluV2": "g (T[N,70] x) => (T[N,70] y) { y = npu.NPUGeluV2 (x) }",
    "NPUGeluV2 tanh": "g (T[N,70] x) => (T[N,70] y)"
    ' { y = npu.NPUGeluV2 <approximate = "tanh"> (x) }',
    "NPURmsNorm": "g (T[N,70] x, T[70] g) => (T[N,70] y) { y = npu.NPURmsNorm (x, g) }",
    "NPURmsNorm 2": "g (T[N,7,10] x, T[7,10] g) => (T[N,7,10] y) { y = npu.NPURmsNorm (x, g) }",
    "NPURmsNorm f32 gamma": "g (T[N,70] x, float[70] g) => (T[N,70] y)"
    " { y = npu.NPURmsNorm (x, g) }",
    "NPUAddRmsNorm": "g (T[N,70] a, T[N,70] b, T[70] g) => (T[N,70] y, T[N,70] s)"
    " { y, r, s = npu.NPUAddRmsNorm (a, b, g) }",
}


@pytest.mark.parametrize("dtype", ["float", "float16"])
@pytest.mark.parametrize("case", CASES)
def test_kernels_equal_the_body(case, dtype):
    model = fused(CASES[case].replace("T[", f"{dtype}["), case.split()[0])
    feeds = {}
    for value in model.graph.inputs:
        shape = [dim if isinstance(dim, int) else 5 for dim in value.shape]
        feeds[value.name] = (RNG.standard_normal(shape) * 3).astype(value.dtype.numpy())
    check_equal(model, feeds)


def test_an_rstd_that_is_read_keeps_the_body():
    text = (
        "g (float[2,8] x, float[8] g) => (float[2,8] y, float[2,1] r)"
        " { y, r = npu.NPURmsNorm (x, g) }"
    )
    assert remaining(fused(text, "NPURmsNorm")) == ["NPURmsNorm"]


def test_names_types_and_node_names_stay():
    model = fused(
        "g (float16[2,8] x) => (float16[2,8] z) { [act] y = npu.NPUFastGelu (x) z = Neg (y) }",
        "NPUFastGelu",
    )
    use_kernels(model, contrib=True)
    (node,) = [n for n in model.graph if n.name == "act"]
    assert node.outputs[0].name == "y"
    assert node.outputs[0].is_graph_output() is False
    assert [n.op_type for n in model.graph] == ["Cast", "QuickGelu", "CastLike", "Neg"]


def quantized(dtype: str, weight, scale, offset, group: int = 0) -> ir.Model:
    attribute = f"<antiquant_group_size = {group}>" if group else ""
    text = (
        f"g ({dtype}[N,{weight.shape[0]}] x) => ({dtype}[N,16] y)"
        f" {{ y = npu.WeightQuantBatchMatmulV2 {attribute} (x, w, s, o) }}"
    )
    return fused(text, "WeightQuantBatchMatmulV2", w=weight, s=scale, o=offset)


@pytest.mark.parametrize("dtype", ["float", "float16"])
@pytest.mark.parametrize("offset", [0.0, -3.0, 0.5, 200.0])
@pytest.mark.parametrize(
    ("group", "scales"), [(0, (16,)), (0, (1, 16)), (0, (1,)), (32, (3, 16)), (64, (2, 16))]
)
def test_int8_weights_are_dequantized_at_load(dtype, offset, group, scales):
    kind = np.float16 if dtype == "float16" else np.float32
    weight = RNG.integers(-128, 128, (96, 16)).astype(np.int8)  # 96 = 64 + 32: a ragged group
    scale = (RNG.random(scales) * 0.02 + 0.001).astype(kind)
    model = quantized(dtype, weight, scale, np.full(scales, offset, kind), group)
    x = RNG.standard_normal((3, 96)).astype(kind)
    check_equal(model, {"x": x}, 1e-5)
    rows = np.arange(96) // group if group else None
    table = scale.astype(np.float64) if rows is None else scale.astype(np.float64)[rows]
    expected = x.astype(np.float64) @ ((weight + offset) * table)
    result = HostSession(model).run({"x": x})["y"]
    np.testing.assert_allclose(result.astype(np.float64), expected, rtol=2e-3, atol=2e-3)


def test_packed_int4_weights():
    levels = RNG.integers(-8, 8, (64, 16)).astype(np.int8)
    words = np.zeros((64, 2), np.uint32)
    for column in range(16):
        nibble = (levels[:, column].astype(np.int64) & 0xF).astype(np.uint32)
        words[:, column // 8] |= nibble << np.uint32(4 * (column % 8))
    packed = words.view(np.int32)
    np.testing.assert_array_equal(unpack_int4(packed), levels)
    scale = np.full((16,), 0.1, np.float32)
    model = quantized("float", packed, scale, np.zeros(16, np.float32))
    x = RNG.standard_normal((3, 64)).astype(np.float32)
    check_equal(model, {"x": x}, 1e-5)
    expected = x @ (levels * np.float32(0.1))
    np.testing.assert_allclose(
        HostSession(model).run({"x": x})["y"], expected, rtol=1e-4, atol=1e-5
    )


def test_a_weight_that_is_computed_keeps_the_body():
    text = (
        "g (float[2,8] x, int8[8,4] w, float[4] s, float[4] o) => (float[2,4] y)"
        " { y = npu.WeightQuantBatchMatmulV2 (x, w, s, o) }"
    )
    assert remaining(fused(text, "WeightQuantBatchMatmulV2")) == ["WeightQuantBatchMatmulV2"]
