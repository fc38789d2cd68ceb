"""Function bodies against the formulas of npu-ops.md, written apart from them in numpy."""

import math

import numpy as np
import onnx
import onnx_ir as ir
import onnxruntime as ort
import pytest
from onnx.reference import ReferenceEvaluator

from cannc.compiler.core.errors import ModelError, PassError
from cannc.passes.fusion.npu_bodies import BODIES
from cannc.passes.fusion.npu_ops import npu_function, refresh_npu_ops, use_npu_op

RNG = np.random.default_rng(5)
_erf = np.vectorize(math.erf)


def _normal(*shape):
    return RNG.normal(size=shape).astype(np.float32)


def _sigmoid(x):
    return 1 / (1 + np.exp(-x))


def _gelu_tanh(x):
    return 0.5 * x * (1 + np.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)))


def _rms_norm(x, gamma):
    axes = tuple(range(x.ndim - gamma.ndim, x.ndim))
    rstd = 1 / np.sqrt((x**2).mean(axes, keepdims=True) + 1e-6)
    return [x * rstd * gamma, rstd]


def _add_rms_norm(a, b, gamma):
    return [*_rms_norm(a + b, gamma), a + b]


def _rotary(x, cos, sin):
    half = x.shape[-1] // 2
    turned = np.concatenate([-x[..., half:], x[..., :half]], -1)
    return [x * cos + turned * sin]


def _geglu(x):
    left, right = np.split(x, 2, -1)
    return [left * _gelu_tanh(right), _gelu_tanh(right)]


def _group_norm_silu(x, gamma, beta, groups=2, eps=1e-3):
    grouped = x.reshape(x.shape[0], groups, -1)
    mean, var = grouped.mean(-1, keepdims=True), grouped.var(-1, keepdims=True)
    column = (1, -1) + (1,) * (x.ndim - 2)
    unit = ((grouped - mean) / np.sqrt(var + eps)).reshape(x.shape)
    normed = unit * gamma.reshape(column) + beta.reshape(column)
    return [normed * _sigmoid(normed), mean[..., 0], (1 / np.sqrt(var + eps))[..., 0]]


def _anti_quant(x, scale, offset):
    return [(x.astype(np.float64) + offset) * scale]


def _weight_quant(x, weight, scale, offset, group=0):
    k = weight.shape[0]
    table, moved = np.atleast_2d(scale), np.atleast_2d(offset)
    rows = np.arange(k) // group if group else np.zeros(k, int)
    return [x @ ((weight.astype(np.float64) + moved[rows]) * table[rows])]


def _pack(levels):
    """Pack int4 numbers, eight to an int32, the first in the lowest bits."""
    nibbles = (levels.astype(np.int64) & 15).reshape(levels.shape[0], -1, 8)
    return (nibbles << (4 * np.arange(8))).sum(-1).astype(np.uint32).view(np.int32)


INT8 = RNG.integers(-128, 128, (48, 8), dtype=np.int8)
INT4 = RNG.integers(-8, 8, (48, 16), dtype=np.int8)
FLOAT32_OUTPUTS = {("NPURmsNorm", 1), ("NPUAddRmsNorm", 1)}
X = _normal(2, 3, 8)

# id -> operator, attributes, inputs (float32 ones follow the dtype under test), expected outputs
CASES = {
    "rms": ("NPURmsNorm", {}, [X, _normal(8)], _rms_norm),
    "rms-two-dims": ("NPURmsNorm", {}, [X, _normal(3, 8)], _rms_norm),
    "rms-tiny": ("NPURmsNorm", {}, [X * 1e-3, _normal(8)], _rms_norm),
    "add-rms": ("NPUAddRmsNorm", {}, [X, _normal(2, 3, 8), _normal(8)], _add_rms_norm),
    "gelu": ("NPUGeluV2", {}, [X], lambda x: [0.5 * x * (1 + _erf(x / math.sqrt(2)))]),
    "gelu-tanh": ("NPUGeluV2", {"approximate": "tanh"}, [X], lambda x: [_gelu_tanh(x)]),
    "fast-gelu": ("NPUFastGelu", {}, [X], lambda x: [x * _sigmoid(1.702 * x)]),
    "mish": ("NPUMish", {}, [X], lambda x: [x * np.tanh(np.log1p(np.exp(x)))]),
    "rotary": (
        "NPURotaryMul",
        {},
        [_normal(2, 3, 4, 8), _normal(1, 3, 1, 8), _normal(1, 3, 1, 8)],
        _rotary,
    ),
    "geglu": ("NPUGeglu", {}, [X], _geglu),
    "group-norm-silu": (
        "NPUGroupNormSilu",
        {"num_groups": 2, "eps": 1e-3},
        [_normal(2, 4, 3, 5), _normal(4), _normal(4)],
        _group_norm_silu,
    ),
    "group-norm-silu-2d": (
        "NPUGroupNormSilu",
        {"group": 2, "eps": 1e-3},
        [_normal(3, 8), _normal(8), _normal(8)],
        _group_norm_silu,
    ),
    "matmul-channel": (
        "WeightQuantBatchMatmulV2",
        {},
        [_normal(3, 48), INT8, _normal(8) / 100, _normal(8)],
        _weight_quant,
    ),
    "matmul-tensor": (
        "WeightQuantBatchMatmulV2",
        {},
        [_normal(3, 48), INT8, _normal(1) / 100, np.zeros(1, np.float32)],
        _weight_quant,
    ),
    "matmul-group": (
        "WeightQuantBatchMatmulV2",
        {"antiquant_group_size": 32},
        [_normal(3, 48), INT8, _normal(2, 8) / 100, _normal(2, 8)],
        lambda *given: _weight_quant(*given, group=32),
    ),
    "matmul-int4": (
        "WeightQuantBatchMatmulV2",
        {},
        [_normal(3, 48), _pack(INT4), _normal(1, 16) / 10, np.zeros((1, 16), np.float32)],
        lambda x, w, scale, offset: _weight_quant(x, INT4, scale, offset),
    ),
    "matmul-int4-group": (
        "WeightQuantBatchMatmulV2",
        {"antiquant_group_size": 32},
        [_normal(3, 48), _pack(INT4), _normal(2, 16) / 10, _normal(2, 16)],
        lambda x, w, scale, offset: _weight_quant(x, INT4, scale, offset, group=32),
    ),
    "anti-quant": ("NPUAntiQuant", {}, [INT8, _normal(8), _normal(8)], _anti_quant),
    "anti-quant-one": ("NPUAntiQuant", {}, [INT8, _normal(1), _normal(1)], _anti_quant),
}


def _model(op_type, attributes, inputs, num_outputs, opset):
    values = [
        ir.Value(
            name=f"i{n}",
            type=ir.TensorType(ir.DataType.from_numpy(a.dtype)),
            shape=ir.Shape(a.shape),
        )
        for n, a in enumerate(inputs)
    ]
    node = ir.node(op_type, values, attributes, domain="npu", num_outputs=num_outputs, name="fused")
    for index, value in enumerate(node.outputs):
        value.name = f"o{index}"
    graph = ir.Graph(values, node.outputs, nodes=[node], opset_imports={"": opset}, name="g")
    model = ir.Model(graph, ir_version=8)
    use_npu_op(model, op_type, num_outputs)
    proto = onnx.shape_inference.infer_shapes(ir.to_proto(model), strict_mode=True, data_prop=True)
    onnx.checker.check_model(proto, full_check=True)
    return proto


def _ort(proto, feeds, level=ort.GraphOptimizationLevel.ORT_DISABLE_ALL):
    options = ort.SessionOptions()
    options.graph_optimization_level = level
    session = ort.InferenceSession(
        proto.SerializeToString(), options, providers=["CPUExecutionProvider"]
    )
    return session.run(None, feeds)


@pytest.mark.parametrize("opset", [17, 18])
@pytest.mark.parametrize("dtype", [np.float32, np.float16])
@pytest.mark.parametrize("case", CASES)
def test_body_computes_the_formula(case, dtype, opset):
    op_type, attributes, inputs, formula = CASES[case]
    typed = [a.astype(dtype) if a.dtype == np.float32 else a for a in inputs]
    if op_type == "NPUAntiQuant":
        typed = inputs  # its scale is float32, its output float16
    exact = formula(*(a.astype(np.float64) if a.dtype.kind == "f" else a for a in typed))
    proto = _model(op_type, attributes, typed, len(exact), opset)
    feeds = {f"i{n}": a for n, a in enumerate(typed)}
    half = dtype == np.float16 or op_type == "NPUAntiQuant"
    tolerance = 2e-3 if half else 3e-6
    enabled = _ort(proto, feeds, ort.GraphOptimizationLevel.ORT_ENABLE_ALL)
    for found in (_ort(proto, feeds), enabled, ReferenceEvaluator(proto).run(None, feeds)):
        for index, (value, expected) in enumerate(zip(found, exact, strict=True)):
            scale = max(np.abs(expected).max(), 1e-6)
            np.testing.assert_allclose(value, expected, rtol=tolerance, atol=tolerance * scale)
            wanted = np.float16 if op_type == "NPUAntiQuant" else typed[0].dtype
            assert value.dtype == (np.float32 if (op_type, index) in FLOAT32_OUTPUTS else wanted)


@pytest.mark.parametrize("case", CASES)
def test_shape_of_the_first_output_is_inferred(case):
    op_type, attributes, inputs, formula = CASES[case]
    exact = formula(*(a.astype(np.float64) if a.dtype.kind == "f" else a for a in inputs))
    proto = _model(op_type, attributes, inputs, 1, 18)
    for dim in proto.graph.output[0].type.tensor_type.shape.dim:
        dim.Clear()
    bare = onnx.shape_inference.infer_shapes(proto, data_prop=True)
    dims = bare.graph.output[0].type.tensor_type.shape.dim
    assert len(dims) == exact[0].ndim
    assert all(d.dim_value in (0, n) for d, n in zip(dims, exact[0].shape, strict=True))


@pytest.mark.parametrize("op_type", BODIES)
def test_body_exists_at_every_supported_opset(op_type):
    for opset in (15, 17, 18, 20, 23):
        model = ir.Model(ir.Graph([], [], nodes=[], opset_imports={"": opset}), ir_version=10)
        assert npu_function(op_type, model, 1).opset_imports[""] == opset


def test_bounds_are_refused():
    model = ir.Model(ir.Graph([], [], nodes=[], opset_imports={"": 18}), ir_version=10)
    with pytest.raises(PassError, match="no function body"):
        npu_function("NPURmsNrom", model, 1)
    with pytest.raises(PassError, match="3 asked for"):
        npu_function("NPURmsNorm", model, 3)
    model.graph.opset_imports[""] = 14
    with pytest.raises(ModelError, match="opset 14"):
        npu_function("NPURmsNorm", model, 1)


def test_nodes_of_one_name_list_the_same_outputs():
    x = ir.Value(name="x", type=ir.TensorType(ir.DataType.FLOAT), shape=ir.Shape([2, 4]))
    gamma = ir.Value(name="gamma", type=ir.TensorType(ir.DataType.FLOAT), shape=ir.Shape([4]))
    nodes = [
        ir.node("NPURmsNorm", [x, gamma], domain="npu", num_outputs=n, name=f"n{n}") for n in (1, 2)
    ]
    for node, name in zip(nodes, "ab", strict=True):
        node.outputs[0].name = name
    nodes[1].outputs[1].name = "a__output1"
    outputs = [nodes[0].outputs[0], *nodes[1].outputs]
    graph = ir.Graph([x, gamma], outputs, nodes=nodes, opset_imports={"": 18}, name="g")
    model = ir.Model(graph, ir_version=8)
    refresh_npu_ops(model)
    assert [len(node.outputs) for node in nodes] == [2, 2]
    names = [value.name for node in nodes for value in node.outputs]
    assert len(set(names)) == 4
    feeds = {"x": _normal(2, 4), "gamma": _normal(4)}
    a, b, _ = _ort(ir.to_proto(model), feeds)
    np.testing.assert_array_equal(a, b)
    expected = _rms_norm(feeds["x"], feeds["gamma"])[0]
    np.testing.assert_allclose(a, expected, rtol=1e-5)
