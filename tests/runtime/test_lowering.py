"""The numerics of 16-bit floats on the simulated device (D1)."""

import ml_dtypes
import numpy as np
import onnx
import onnx.parser
import onnx_ir as ir
import pytest
from onnx import TensorProto, helper, numpy_helper

from cannc.compiler.core.graphs import all_graphs, walk
from cannc.compiler.runtime.dtypes import HALF, values_of
from cannc.compiler.runtime.host_session import HostSession
from cannc.compiler.runtime.lowering import EXACT_OPS, lower
from cannc.passes.fusion.npu_ops import use_npu_op

F16 = np.float16
HEADER = '<ir_version: 10, opset_import: ["": 18, "npu": 1, "local": 1, "com.microsoft": 1]>'
ONE, SIXTY_FOUR = 15360, 21504  # the parser takes float16 numbers as their bits


def parse(text: str) -> ir.Model:
    proto = onnx.parser.parse_model(HEADER + text)
    return ir.from_proto(proto)


def run(model: ir.Model, half="round", taps=(), fuse=True, **feeds):
    return HostSession(model, half=half, taps=taps, fuse=fuse).run(feeds)


def test_each_sum_is_stored_in_float16():
    model = parse(
        f"g (float16[1] x) => (float16[1] y) {{ one = Constant <value = float16[1] {{{ONE}}}> ()"
        " a = Add (x, one) y = Sub (a, x) }"
    )
    x = np.array([2048], F16)
    for fuse in (True, False):
        assert run(model, fuse=fuse, x=x)["y"] == 0
        assert run(model, half="widen", fuse=fuse, x=x)["y"] == 1


def test_overflow_between_nodes_stays():
    model = parse(
        "g (float16[1] x) => (float16[1] y) {"
        f" c = Constant <value = float16[1] {{{SIXTY_FOUR}}}> () a = Mul (x, c) y = Div (a, c) }}"
    )
    x = np.array([2048], F16)
    for fuse in (True, False):
        assert np.isinf(run(model, fuse=fuse, x=x)["y"])
    assert run(model, half="widen", x=x)["y"] == 2048


def test_accumulation_is_float32_and_the_result_float16():
    model = parse("g (float16[1,K] a, float16[K,1] b) => (float16[1,1] y) { y = MatMul (a, b) }")
    big = np.full((1, 4099), 4.0, F16)
    assert np.isinf(run(model, a=big, b=np.full((4099, 1), 5.0, F16))["y"])  # 81980
    # 4096 ones on 2048: float16 accumulation would stay at 2048.
    a = np.concatenate([[2048.0], np.ones(4096)]).astype(F16)[None]
    assert run(model, a=a, b=np.ones((4097, 1), F16))["y"] == 6144


def test_the_stored_matmul_result_is_inf_at_81985():
    model = parse("g (float16[1,2] a, float16[2,1] b) => (float16[1,1] y) { y = MatMul (a, b) }")
    a, b = np.array([[16384.0, 13.0]], F16), np.array([[5.0], [5.0]], F16)
    exact = float((a.astype(np.float64) @ b.astype(np.float64))[0, 0])
    assert exact == 81985.0
    assert np.isinf(run(model, a=a, b=b)["y"])
    assert run(model, half="widen", a=a, b=b)["y"] == 81985.0


def test_naive_half_of_a_norm_overflows_as_on_the_device():
    model = parse(
        "g (float16[1,64] x) => (float16[1,64] y) { s = Mul (x, x)"
        " axes = Constant <value_ints = [-1]> () m = ReduceMean <keepdims = 1> (s, axes)"
        " r = Sqrt (m) y = Div (x, r) }"
    )
    x = np.full((1, 64), 300.0, F16)  # squares of 90000 do not fit float16
    result = run(model, taps=["s", "y"], x=x)
    assert np.isinf(result["s"]).all()
    assert (result["y"] == 0).all()
    assert np.allclose(run(model, half="widen", x=x)["y"], 1.0)


def test_a_float32_model_comes_back_as_it_was():
    model = parse("g (float[N] x) => (float[N] y) { a = Mul (x, x) y = Exp (a) }")
    assert ir.to_proto(lower(model, half="round")) == ir.to_proto(model)


def test_the_argument_is_not_changed():
    model = parse("g (float16[N] x) => (float16[N] y) { a = Mul (x, x) y = Exp (a) }")
    before = ir.to_proto(model)
    HostSession(model, taps=["a"])
    lower(model, half="widen")
    assert ir.to_proto(model) == before


def test_taps_read_what_the_consumer_reads():
    model = parse(
        "g (float16[N] x) => (float16[N] y) { a = Exp (x) t = Transpose (a) y = Neg (t) }"
    )
    x = np.array([0.1, 1.3, 9.7], F16)
    result = run(model, taps=["a", "t"], x=x)
    rounded = np.exp(x.astype(np.float32)).astype(F16)
    assert result["a"].dtype == F16
    for name, expected in (("a", rounded), ("t", rounded), ("y", -rounded)):
        np.testing.assert_array_equal(result[name], expected)


def test_only_nodes_that_compute_are_followed_by_a_rounding():
    model = parse(
        "g (float16[2,3] x) => (float16[3,2] y)"
        " { t = Transpose <perm = [1, 0]> (x) r = Relu (t) n = Neg (r) y = Identity (n) }"
    )
    casts = [n for n in lower(model, half="round").graph if n.op_type == "Cast"]
    assert len(casts) == 2  # the two borders


@pytest.mark.parametrize(
    "op_type", sorted(EXACT_OPS & {"Abs", "Ceil", "Floor", "Neg", "Relu", "Round", "Sign"})
)
def test_exact_operators_are_exact_on_every_float16(op_type):
    every = np.arange(2**16, dtype=np.uint16).view(F16)
    every = every[np.isfinite(every)]
    model = parse(f"g (float[N] x) => (float[N] y) {{ y = {op_type} (x) }}")
    wide = run(model, x=every.astype(np.float32))["y"]
    np.testing.assert_array_equal(wide.astype(F16).astype(np.float32), wide)


def test_weights_keep_their_storage():
    weight = np.arange(4096, dtype=np.float32).reshape(64, 64).astype(F16)
    graph = helper.make_graph(
        [helper.make_node("MatMul", ["x", "w"], ["y"])],
        "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT16, ["N", 64])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT16, ["N", 64])],
        [numpy_helper.from_array(weight, "w")],
    )
    model = ir.from_proto(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)]))
    lowered = lower(model, half="round")
    stored = lowered.graph.initializers["w"].const_value
    assert stored is model.graph.initializers["w"].const_value
    x = np.eye(64, dtype=F16)[:2]
    np.testing.assert_array_equal(run(model, x=x)["y"], weight[:2])


def test_a_weight_and_an_input_may_be_outputs():
    graph = helper.make_graph(
        [helper.make_node("Mul", ["x", "w"], ["y"])],
        "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT16, [2])],
        [helper.make_tensor_value_info(n, TensorProto.FLOAT16, [2]) for n in ("y", "x", "w")],
        [numpy_helper.from_array(np.array([3, 5], F16), "w")],
    )
    model = ir.from_proto(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)]))
    result = run(model, x=np.array([2, 4], F16))
    assert {k: v.tolist() for k, v in result.items()} == {"y": [6, 20], "x": [2, 4], "w": [3, 5]}
    assert all(array.dtype == F16 for array in result.values())


def test_dtype_attributes():
    model = parse(
        "g (float16[2,2] x, int64[1] n) => (float16[2,2] eye, float16[K] zeros, float16[2,2] like)"
        " { eye = EyeLike <dtype = 10> (x) zeros = ConstantOfShape <value = float16[1] {15360}> (n)"
        " wide = Cast <to = 1> (x) half = Mul (wide, wide) like = CastLike (half, x) }"
    )
    result = run(model, x=np.full((2, 2), 1.001, F16), n=np.array([3], np.int64))
    assert {v.dtype for v in result.values()} == {np.dtype(F16)}
    np.testing.assert_array_equal(result["eye"], np.eye(2))
    np.testing.assert_array_equal(result["zeros"], np.ones(3))
    x = np.float32(F16(1.001))
    np.testing.assert_array_equal(result["like"], np.full((2, 2), F16(x * x)))


def test_branches_round_inside_and_return_declared_types():
    model = parse(
        "g (bool c, float16[1] x) => (float16[1] y) { y = If (c) <"
        f" then_branch = t () => (float16[1] a) {{ one = Constant <value = float16[1] {{{ONE}}}> ()"
        " s = Add (x, one) a = Sub (s, x) },"
        " else_branch = e () => (float16[1] b) { b = Identity (x) }> }"
    )
    x = np.array([2048], F16)
    assert run(model, c=np.array(True), x=x)["y"] == 0
    assert run(model, c=np.array(False), x=x)["y"] == 2048


def test_loops_carry_rounded_values():
    model = parse(
        "g (int64 n, float16[1] x) => (float16[1] y, float16[K,1] all) {"
        " go = Constant <value = bool {1}> () y, all = Loop (n, go, x) <"
        " body = b (int64 i, bool c, float16[1] v) => (bool d, float16[1] w, float16[1] seen) {"
        f" d = Identity (c) one = Constant <value = float16[1] {{{ONE}}}> () w = Add (v, one)"
        " seen = Identity (w) }> }"
    )
    result = run(model, n=np.array(5), x=np.array([2046], F16))
    assert result["y"].tolist() == [2048]
    assert result["all"].ravel().tolist() == [2047, 2048, 2048, 2048, 2048]


def test_scan_and_its_declared_types():
    body = helper.make_graph(
        [helper.make_node("Add", ["s", "e"], ["t"]), helper.make_node("Identity", ["t"], ["o"])],
        "body",
        [helper.make_tensor_value_info(n, TensorProto.FLOAT16, [1]) for n in ("s", "e")],
        [helper.make_tensor_value_info(n, TensorProto.FLOAT16, [1]) for n in ("t", "o")],
    )
    node = helper.make_node("Scan", ["x", "xs"], ["y", "ys"], body=body, num_scan_inputs=1)
    graph = helper.make_graph(
        [node],
        "g",
        [
            helper.make_tensor_value_info("x", TensorProto.FLOAT16, [1]),
            helper.make_tensor_value_info("xs", TensorProto.FLOAT16, [3, 1]),
        ],
        [
            helper.make_tensor_value_info("y", TensorProto.FLOAT16, [1]),
            helper.make_tensor_value_info("ys", TensorProto.FLOAT16, [3, 1]),
        ],
    )
    model = ir.from_proto(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)]))
    result = run(model, x=np.array([2048], F16), xs=np.ones((3, 1), F16))
    assert result["y"].tolist() == [2048]
    assert result["ys"].dtype == F16


def test_a_branch_may_hold_its_own_weight():
    def branch(name, value):
        weight = numpy_helper.from_array(np.full(600, value, F16), f"{name}_w")
        out = helper.make_tensor_value_info(f"{name}_y", TensorProto.FLOAT16, [600])
        node = helper.make_node("Mul", ["x", f"{name}_w"], [f"{name}_y"])
        return helper.make_graph([node], name, [], [out], [weight])

    node = helper.make_node(
        "If", ["c"], ["y"], then_branch=branch("t", 2), else_branch=branch("e", 3)
    )
    graph = helper.make_graph(
        [node],
        "g",
        [
            helper.make_tensor_value_info("c", TensorProto.BOOL, []),
            helper.make_tensor_value_info("x", TensorProto.FLOAT16, [600]),
        ],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT16, [600])],
    )
    model = ir.from_proto(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)]))
    x = np.arange(600).astype(F16)
    np.testing.assert_array_equal(run(model, c=np.array(True), x=x)["y"], x * F16(2))
    np.testing.assert_array_equal(run(model, c=np.array(False), x=x)["y"], x * F16(3))


def test_sequences():
    model = parse(
        "g (seq(float16[2]) s) => (float16[2] y, seq(float16[2]) t) {"
        " i = Constant <value_int = 0> () a = SequenceAt (s, i)"
        " y = Exp (a) t = SequenceInsert (s, y) }"
    )
    first = np.array([0.1, 0.2], F16)
    result = run(model, s=[first, first * F16(2)])
    expected = np.exp(first.astype(np.float32)).astype(F16)
    np.testing.assert_array_equal(result["y"], expected)
    assert [array.dtype for array in result["t"]] == [F16] * 3
    np.testing.assert_array_equal(result["t"][2], expected)


def test_bfloat16():
    model = parse(
        "g (bfloat16[1] x) => (bfloat16[1] y) { wide = Cast <to = 1> (x)"
        " one = Constant <value_floats = [1.0]> () o = CastLike (one, x)"
        " a = Add (x, o) y = Sub (a, x) }"
    )
    x = np.array([256], ml_dtypes.bfloat16)  # 257 needs nine bits
    result = run(model, taps=["a"], x=x)
    assert result["y"].dtype == ml_dtypes.bfloat16
    assert result["y"].astype(np.float32) == 0
    assert result["a"].astype(np.float32) == 256
    assert run(model, half="widen", x=x)["y"] == 1


def test_plain_functions_store_their_inner_values():
    text = (
        "g (float16[1] x) => (float16[1] y) { y = local.there_and_back (x) }"
        ' <domain: "local", opset_import: ["": 18]>'
        " there_and_back (v) => (w) { one = Constant <value_float = 1.0> () o = CastLike (one, v)"
        " s = Add (v, o) w = Sub (s, v) }"
    )
    assert run(parse(text), x=np.array([2048], F16))["y"] == 0


def test_fused_operators_compute_in_float32_and_store_float16():
    model = parse(
        "g (float16[1,64] x, float16[64] g) => (float16[1,64] y, float[1,1] r)"
        " { y, r = npu.NPURmsNorm (x, g) }"
    )
    use_npu_op(model, "NPURmsNorm", 2)
    x, gamma = np.full((1, 64), 300.0, F16), np.ones(64, F16)
    for fuse in (True, False):
        result = run(model, fuse=fuse, x=x, g=gamma)
        assert (result["y"] == 1).all()  # squares of 90000 never leave the kernel
        assert result["r"].dtype == np.float32
        np.testing.assert_allclose(result["r"], [[1 / 300]], rtol=1e-6)


def test_a_kernel_rounds_where_its_body_says_so():
    """NPUAddRmsNorm takes its statistics from the sum after rounding (npu-ops.md section 3)."""
    model = parse(
        "g (float16[1,2] a, float16[1,2] b, float16[2] g) => (float16[1,2] y, float[1,1] r,"
        " float16[1,2] s) { y, r, s = npu.NPUAddRmsNorm (a, b, g) }"
    )
    use_npu_op(model, "NPUAddRmsNorm", 3)
    feeds = {"a": np.array([[2048, 0]], F16), "b": np.array([[1, 0]], F16), "g": np.ones(2, F16)}
    result = run(model, **feeds)
    assert result["s"].tolist() == [[2048, 0]]
    np.testing.assert_allclose(result["r"], [[1 / np.sqrt(2048.0**2 / 2)]], rtol=1e-6)


def test_contrib_operators_keep_the_dtype_of_their_input():
    model = parse(
        "g (float16[1] x) => (float16[1] y) { a = com.microsoft.Gelu (x) y = Add (a, a) }"
    )
    x = np.array([0.7], F16)
    result = run(model, taps=["a"], x=x)
    assert result["a"].dtype == F16
    assert result["y"] == result["a"] * F16(2)


def test_mixed_graphs_round_only_the_float16_part():
    model = parse(
        "g (float[1] x) => (float[1] y, float16[1] z)"
        " { y = Exp (x) h = Cast <to = 10> (x) z = Exp (h) }"
    )
    x = np.array([1.2345678], np.float32)
    result = run(model, taps=["h"], x=x)
    assert result["y"].dtype == np.float32
    np.testing.assert_allclose(result["y"], np.exp(x), rtol=1e-6)
    assert result["h"] == x.astype(F16)
    assert result["z"] == np.exp(x.astype(F16).astype(np.float32)).astype(F16)


def test_nothing_computes_in_half_after_lowering():
    model = parse(
        "g (bool c, float16[2,2] x) => (float16[2,2] y) { m = MatMul (x, x) s = Softmax (m)"
        " i = If (c) <then_branch = t () => (float16[2,2] a) { a = Tanh (s) },"
        " else_branch = e () => (float16[2,2] b) { b = Erf (s) }> y = Add (i, x) }"
    )
    lowered = lower(model, half="round")
    onnx.checker.check_model(ir.to_proto(lowered), full_check=True)
    for scoped in walk(lowered.graph):
        if scoped.node.op_type != "Cast":
            values = [v for v in (*scoped.node.inputs, *scoped.node.outputs) if v is not None]
            assert all(v.dtype not in HALF for v in values), scoped.node
    names = [v.name for _, g in all_graphs(lowered.graph) for v in values_of(g)]
    assert len(names) == len(set(names))
