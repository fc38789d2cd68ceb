"""Models above opset 18 brought down, and operators that ATC does not know written out."""

import numpy as np
import onnx
import onnx_ir as ir
import pytest
from onnx import parser
from onnx.reference import ReferenceEvaluator
from tests.support.runner import PlainRunner, run_plain

from cannc.compiler.core.unit import load
from cannc.passes.fusion.npu_ops import use_npu_op
from cannc.passes.manager import run_passes

RNG = np.random.default_rng(0)
X = RNG.standard_normal((2, 4, 6)).astype(np.float32)


def any_kernel(op_type, dtype):
    return None


def parse(opset, text):
    header = f'<ir_version: 10, opset_import: ["": {opset}, "npu": 1]>'
    return parser.parse_model(header + text)


def bring(model):
    unit = load(model)
    for _ in range(2):
        run_passes(unit, ["opset-to-18"], runner=PlainRunner(), may_use_kernel=any_kernel)
    assert unit.log[1].applied == 0
    assert not [fate for fate in unit.fates() if fate.kind == "unknown"]
    return unit


def bring_equal(model, feeds, rtol=1e-5):
    """The result is valid at opset 18 and equals onnx's reference evaluator on the original."""
    unit = bring(model)
    assert unit.model.opset_imports[""] == 18, unit.log[0].notes
    proto = ir.to_proto(unit.model)
    onnx.checker.check_model(proto, full_check=True)
    want = ReferenceEvaluator(model).run(None, feeds)
    got = run_plain(proto, feeds)
    for (name, array), expected in zip(got.items(), want, strict=True):
        assert array.dtype == expected.dtype, name
        np.testing.assert_allclose(array, expected, rtol=rtol, atol=1e-6)
    return [node.op_type for node in unit.model.graph]


def stays(model, reason):
    unit = bring(model)
    assert unit.model.opset_imports[""] != 18
    assert reason in "\n".join(unit.log[0].notes)


SAME = "g (float[2, 4, 6] x) => (float[2, 4, 6] y)"


@pytest.mark.parametrize("opset", [19, 20, 21, 22, 23])
def test_unchanged_operators(opset):
    text = f"{SAME} <float[6] w = {{1, 2, 3, 4, 5, 6}}> {{ h = Mul(x, w) y = Softmax(h) }}"
    assert bring_equal(parse(opset, text), {"x": X}) == ["Mul", "Softmax"]


def test_gelu():
    assert bring_equal(parse(20, f"{SAME} {{ y = Gelu(x) }}"), {"x": X}) == [
        "Div",
        "Erf",
        "Add",
        "Mul",
        "Mul",
    ]
    bring_equal(parse(20, f'{SAME} {{ y = Gelu <approximate = "tanh"> (x) }}'), {"x": X})


def test_swish():
    assert bring_equal(parse(24, f"{SAME} {{ y = Swish(x) }}"), {"x": X}) == ["Sigmoid", "Mul"]
    assert len(bring_equal(parse(24, f"{SAME} {{ y = Swish <alpha = 1.7> (x) }}"), {"x": X})) == 3


@pytest.mark.parametrize("attributes", ["", "<axis = -2, epsilon = 0.1>", "<axis = 1>"])
def test_rms_normalization(attributes):
    scale = RNG.standard_normal((4, 6) if attributes else 6).astype(np.float32)
    text = f"{SAME} {{ y = RMSNormalization {attributes} (x, s) }}"
    model = parse(23, text)
    model.graph.initializer.append(onnx.numpy_helper.from_array(scale, "s"))
    bring_equal(model, {"x": X})


def test_rms_normalization_of_half_computes_in_float():
    text = """g (float16[2, 4] x, float16[4] s) => (float16[2, 4] y)
        { y = RMSNormalization(x, s) }"""
    unit = bring(parse(23, text))
    assert unit.model.graph[0].op_type == "Cast"
    x, s = np.full((2, 4), 600, np.float16), np.ones(4, np.float16)
    got = run_plain(unit.model, {"x": x, "s": s})["y"]
    assert got.dtype == np.float16
    assert got.tolist() == np.ones((2, 4)).tolist()


def test_group_normalization_per_channel():
    body = "y = GroupNormalization <num_groups = 2> (x, s, s)"
    text = f"{SAME} <float[4] s = {{1, 2, 3, 4}}> {{ {body} }}"
    assert bring_equal(parse(21, text), {"x": X}) == [
        "Reshape",
        "InstanceNormalization",
        "Shape",
        "Reshape",
        "Mul",
        "Add",
    ]
    text = f"g (float[2, 4, 6] x, float[4] s) => (float[2, 4, 6] y) {{ {body} }}"
    bring_equal(parse(21, text), {"x": X, "s": np.arange(4, dtype=np.float32)})


def test_group_normalization_per_group():
    text = f"{SAME} <float[2] s = {{1, 2}}> {{ y = GroupNormalization <num_groups = 2> (x, s, s) }}"
    model = parse(18, text)
    unit = bring(model)
    grouped = X.reshape(2, 2, -1)
    normed = (grouped - grouped.mean(-1, keepdims=True)) / np.sqrt(
        grouped.var(-1, keepdims=True) + 1e-5
    )
    scale = np.array([1, 2], np.float32)[:, None]
    want = (normed * scale + scale).reshape(X.shape)
    np.testing.assert_allclose(run_plain(unit.model, {"x": X})["y"], want, rtol=1e-4, atol=1e-5)


def test_cast_like():
    text = "g (float[2, 4, 6] x, int64[1] t) => (int64[2, 4, 6] y) { y = CastLike(x, t) }"
    assert bring_equal(parse(18, text), {"x": X, "t": np.array([1])}) == ["Cast"]


def test_attention_by_its_definition():
    text = """g (float[1, 2, 4, 8] q, float[1, 2, 6, 8] k, float[1, 2, 6, 8] v)
        => (float[1, 2, 4, 8] y) { [att] y = Attention <is_causal = 1> (q, k, v) }"""
    q, k, v = (RNG.standard_normal((1, 2, n, 8)).astype(np.float32) for n in (4, 6, 6))
    assert "Attention" not in bring_equal(parse(23, text), {"q": q, "k": k, "v": v})


def test_grid_sample_modes():
    text = """g (float[1, 1, 4, 4] x, float[1, 3, 3, 2] i) => (float[1, 1, 3, 3] y)
        { y = GridSample <mode = "cubic"> (x, i) }"""
    grid = RNG.uniform(-1, 1, (1, 3, 3, 2)).astype(np.float32)
    image = RNG.standard_normal((1, 1, 4, 4)).astype(np.float32)
    bring_equal(parse(20, text), {"x": image, "i": grid}, rtol=1e-4)


def test_dft_axis():
    text = """g (float[1, 4, 6, 1] x) => (float[1, 4, 6, 2] y) <int64 a = {1}>
        { y = DFT (x, , a) }"""
    bring_equal(parse(20, text), {"x": X[:1, :, :, None]}, rtol=1e-4)


def test_defaults_of_newer_attributes_are_dropped():
    text = "g (float[2, 4, 6] x) => (int64[2, 4, 6] y) { y = Cast <to = 7, saturate = 1> (x) }"
    assert bring_equal(parse(19, text), {"x": X}) == ["Cast"]


@pytest.mark.parametrize(
    ("opset", "body", "reason"),
    [
        (
            19,
            'p = Constant <value_ints = [0, 0, 1, 0, 0, 1]> () y = Pad <mode = "wrap"> (x, p)',
            "mode=wrap",
        ),
        (19, "y = AveragePool <kernel_shape = [2], dilations = [2]> (x)", "dilations"),
        (28, "y = Mod(x, x)", "opset 28"),
    ],
)
def test_what_opset_18_cannot_say_stays(opset, body, reason):
    text = f"g (float[2, 4, 6] x) => (float[a, b, c] y) {{ {body} }}"
    stays(parse(opset, text), reason)


def test_new_dtype_stays():
    text = "g (float8e4m3fn[2] x) => (float[2] y) { y = Cast <to = 1> (x) }"
    stays(parse(19, text), "tensor(float8e4m3fn)")


def test_local_function_stays():
    model = parse(19, f"{SAME} {{ y = Relu(x) }}")
    model.opset_import.add(domain="mine", version=1)
    opset = [onnx.helper.make_opsetid("", 19)]
    node = onnx.helper.make_node("Relu", ["a"], ["b"])
    model.functions.append(onnx.helper.make_function("mine", "F", ["a"], ["b"], [node], opset))
    stays(model, "function mine::F")


def test_bodies_of_fused_operators_follow():
    model = parse(
        20,
        "g (float[2, 4, 6] x) => (float[2, 4, 6] y) <float[6] w = {1, 1, 1, 1, 1, 1}>"
        "{ y = npu.NPURmsNorm <epsilon = 1e-6> (x, w) }",
    )
    unit = load(model)
    use_npu_op(unit.model, "NPURmsNorm", 1)
    result = bring(ir.to_proto(unit.model))
    (function,) = result.model.functions.values()
    assert function.opset_imports[""] == result.model.opset_imports[""] == 18
    got = run_plain(result.model, {"x": X})["y"]
    np.testing.assert_allclose(got, X / np.sqrt((X * X).mean(-1, keepdims=True) + 1e-6), rtol=1e-5)
