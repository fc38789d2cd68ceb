"""float32 to float16: what is converted, what stays float32, and that the numbers hold (D1)."""

import json
from collections import Counter
from pathlib import Path

import numpy as np
import onnx
import onnx_ir as ir
import pytest
from onnx import TensorProto, helper, parser

from cannc.compiler.core.graphs import walk
from cannc.compiler.core.tensors import DerivedTensor
from cannc.compiler.core.unit import load
from cannc.compiler.runtime.host_runner import HostRunner
from cannc.passes.base import PassContext
from cannc.passes.fusion.npu_ops import use_npu_op
from cannc.passes.manager import run_passes
from cannc.passes.precision.half import Float16
from cannc.passes.rewrite import Rewriter

CASES = Path(__file__).parents[2].parent / "shared" / "cases"
HEADER = '<ir_version: 10, opset_import: ["" : 18, "npu" : 1]>\n'
HALF, FLOAT = ir.DataType.FLOAT16, ir.DataType.FLOAT


def any_kernel(op_type, dtype):
    return None


def halve(model, kernels=any_kernel):
    """Run the pass as the manager does (its invariants hold); a second run changes nothing."""
    if isinstance(model, str):
        model = parser.parse_model(HEADER + model)
    unit = load(model)
    for _ in range(2):
        run_passes(unit, ["float16"], runner=HostRunner(), may_use_kernel=kernels)
    assert unit.log[1].applied == 0
    onnx.checker.check_model(ir.to_proto(unit.model), full_check=True)
    assert not [fate for fate in unit.fates() if fate.kind == "unknown"]
    return unit


def dtypes(unit):
    """Return value name -> dtype of all values that nodes compute."""
    return {v.name: v.dtype for s in walk(unit.model.graph) for v in s.node.outputs}


def ops(unit):
    return [s.node.op_type for s in walk(unit.model.graph)]


def notes(unit):
    return "\n".join(unit.log[0].notes)


def run(unit, **feeds):
    fetches = [v.name for v in unit.model.graph.outputs]
    return HostRunner().run(unit.model, feeds, fetches)


def test_the_interface_keeps_names_and_dtypes_and_weights_become_half():
    unit = halve("""
        g (float[N, 2] x) => (float[N, 2] y)
        <float[2, 2] w = {1, 2, 3, 4.0001}>
        { [mm] h = MatMul(x, w)  [act] y = Relu(h) }
    """)
    graph = unit.model.graph
    assert [v.name for v in graph.inputs] == ["x"]
    assert graph.inputs[0].dtype == graph.outputs[0].dtype == FLOAT
    assert str(graph.outputs[0].shape) == "[N,2]"
    assert [(n.op_type, n.outputs[0].name) for n in graph] == [
        ("Cast", "x__float16"),
        ("MatMul", "h"),
        ("Relu", "y__float16"),
        ("Cast", "y"),
    ]
    assert [n.name for n in graph][1:3] == ["mm", "act"]
    weight = graph.initializers["w"].const_value
    assert weight.dtype == HALF
    assert isinstance(weight, DerivedTensor)
    assert weight.source.numpy().tolist() == [[1, 2], [3, np.float32(4.0001)]]


def test_half_interface_has_no_casts():
    unit = load(parser.parse_model(HEADER + "g (float[2] x) => (float[2] y) { y = Relu(x) }"))
    rewriter = Rewriter(unit.model, unit.provenance, "float16")
    ctx = PassContext(unit.model, rewriter, unit.target, HostRunner(), any_kernel)
    Float16(io="fp16").run(ctx)
    assert ops(unit) == ["Relu"]
    assert unit.model.graph.inputs[0].dtype == unit.model.graph.outputs[0].dtype == HALF


def test_chosen_nodes_stay_float():
    unit = load(
        parser.parse_model(
            HEADER + "g (float[2] x) => (float[2] y) { [a] h = Exp(x) [b] y = Log(h) }"
        )
    )
    rewriter = Rewriter(unit.model, unit.provenance, "float16")
    ctx = PassContext(unit.model, rewriter, unit.target, HostRunner(), any_kernel)
    Float16(keep={"a": "asked for"}).run(ctx)
    assert dtypes(unit)["h"] == FLOAT
    assert ctx.notes == ["1 node stays float32: asked for"]


def test_rounds_as_the_device_does():
    unit = halve("""
        g (float[1] x) => (float[1] y)
        <float[1] one = {1}, float[1] big = {2048}>
        { a = Add(x, one)  y = Sub(a, big) }
    """)
    assert run(unit, x=np.array([2048], np.float32))["y"] == 0


def test_masks_are_clipped_with_a_note_and_infinities_stay():
    unit = halve("""
        g (float[3] x) => (float[3] y)
        <float[3] m = {0, -3.4e38, 1}>
        { y = Add(x, m) }
    """)
    assert unit.model.graph.initializers["m"].const_value.numpy().tolist() == [0, -65504, 1]
    assert "constant 'm': 1 of 3 numbers clipped to +-65504" in notes(unit)
    infinite = helper.make_tensor("m", TensorProto.FLOAT, [2], [-np.inf, 1.0])
    model = parser.parse_model(HEADER + "g (float[2] x, float[2] m) => (float[2] y) {y = Add(x,m)}")
    del model.graph.input[1]
    model.graph.initializer.append(infinite)
    unit = halve(model)
    assert unit.model.graph.initializers["m"].const_value.numpy().tolist() == [-np.inf, 1]
    assert not unit.log[0].notes


def test_scalar_that_becomes_zero_is_told():
    unit = halve("""
        g (float[2] x) => (float[2] y) <float tiny = {1e-9}> { y = Mul(x, tiny) }
    """)
    assert "constant 'tiny' is not zero but becomes zero" in notes(unit)


def test_shared_constant_serves_both_precisions():
    unit = halve("""
        g (float[2, 4] x) => (float[2, 4] y)
        <float k = {0.1}>
        { c = Mul(x, x) m = ReduceMean(c) e = Add(m, k) r = Sqrt(e) n = Div(x, r) y = Add(n, k) }
    """)
    graph = unit.model.graph
    assert graph.initializers["k"].dtype == HALF
    twin = next(v for name, v in graph.initializers.items() if name != "k")
    assert twin.dtype == FLOAT
    assert twin.const_value.numpy() == np.float32(0.1)


def test_float_only_inputs_stay_float():
    unit = halve("""
        g (float[1, 1, 2, 2] x) => (float[1, 1, 4, 4] y)
        <float[4] s = {1, 1, 2, 2}>
        { h = Relu(x) r = Resize <mode = "nearest"> (h, , s) y = Neg(r) }
    """)
    assert unit.model.graph.initializers["s"].dtype == FLOAT
    assert dtypes(unit)["r"] == HALF


def test_float_only_operator_gets_casts():
    unit = halve("""
        g (float[1, 6, 4] b, float[1, 1, 6] s) => (int64[K, 3] y)
        <int64[1] n = {3}>
        { c = Relu(b) y = NonMaxSuppression(c, s, n) }
    """)
    assert ops(unit) == ["Cast", "Relu", "Cast", "NonMaxSuppression"]


@pytest.mark.parametrize(
    "body",
    [
        "f = Cast <to = 1> (i) g = Add(f, one) j = Cast <to = 7> (g) y = Gather(t, j)",
        "f = Cast <to = 1> (i) g = Mul(f, t) y = Sin(g)",
        "f = Cast <to = 1> (i) g = Mul(f, one) y = Range(g, one, one)",
    ],
)
def test_numbers_that_are_integers_stay_float(body):
    inputs = "int64 i" if "Range" in body else "int64[4] i"
    unit = halve(f"""
        g ({inputs}) => (float[M] y) <float one = {{1}}, float[4] t = {{1, 2, 3, 4}}> {{ {body} }}
    """)
    assert dtypes(unit)["f"] == dtypes(unit)["g"] == FLOAT


def test_integers_that_stay_numbers_become_half():
    unit = halve("""
        g (int64[4] i, float[4] x) => (float[4] y) { f = Cast <to = 1> (i) y = Mul(f, x) }
    """)
    assert dtypes(unit)["f"] == HALF
    assert unit.model.graph.node("Cast_0").attributes["to"].as_int() == HALF


def test_float_region_of_the_author_stays():
    unit = halve("""
        g (float16[4] x) => (float16[4] y)
        { f = Cast <to = 1> (x) e = Exp(f) y = Cast <to = 10> (e) }
    """)
    assert ops(unit) == ["Cast", "Exp", "Cast"]
    assert dtypes(unit)["e"] == FLOAT


def test_cast_that_became_a_noop_goes():
    unit = halve("""
        g (float16[4] x, float[4] z) => (float[4] y) { f = Cast <to = 1> (x) y = Add(f, z) }
    """)
    assert ops(unit) == ["Cast", "Add", "Cast"]


def test_bodies_captured_and_carried_values():
    unit = halve("""
        g (float[2] x, bool c, int64 n) => (float[2] y, float[K, 2] all)
        <float[2] w = {0.5, 2}>
        {
          h = Mul(x, w)
          p = If (c) <
            then_branch = a () => (float[2] ta) { ta = Add(h, w) },
            else_branch = b () => (float[2] tb) { tb = Constant <value_floats = [1.0, 2.0]> () }>
          t = Constant <value = bool {1}> ()
          y, all = Loop (n, t, p) <body = l (int64 i, bool ci, float[2] v)
             => (bool co, float[2] vo, float[2] s)
            { co = Identity(ci)  vo = Add(v, h)  s = Mul(vo, w) }>
        }
    """)
    kinds = dtypes(unit)
    assert kinds["p"] == kinds["ta"] == kinds["tb"] == kinds["vo"] == kinds["s"] == HALF
    assert ops(unit).count("Cast") == 3
    x = np.array([1, 3], np.float32)
    got = run(unit, x=x, c=np.array(True), n=np.array(2))
    h = x * np.float32([0.5, 2])
    np.testing.assert_allclose(got["y"], h + [0.5, 2] + 2 * h)
    assert got["all"].dtype == np.float32


def test_untyped_inputs_of_a_loop_body():
    model = parser.parse_model(
        HEADER
        + """g (float[2] x, int64 n) => (float[2] y) {
          t = Constant <value = bool {1}> ()
          y = Loop (n, t, x) <body = l (int64 i, bool c, float[2] v) => (bool d, float[2] w)
            { d = Identity(c)  w = Add(v, x) }>
        }"""
    )
    for value in model.graph.node[1].attribute[0].g.input:
        value.ClearField("type")
    unit = load(model)
    run_passes(unit, ["float16"], runner=HostRunner(), may_use_kernel=any_kernel)
    assert dtypes(unit)["w"] == HALF
    assert ops(unit).count("Cast") == 2


def test_sequences():
    unit = halve("""
        g (float[2] x) => (float[4] y)
        { a = Relu(x) q = SequenceConstruct(a, x) y = ConcatFromSequence <axis = 0> (q) }
    """)
    assert str(unit.model.graph.node("SequenceConstruct_1").outputs[0].type) == (
        "Sequence(Tensor(FLOAT16))"
    )


def test_sequence_at_the_interface_stays_float():
    unit = halve("""
        g (float[2] x) => (seq(float[2]) q) { a = Relu(x) q = SequenceConstruct(a, x) }
    """)
    assert dtypes(unit) == {"x__float16": HALF, "a": HALF, "a__float16": FLOAT, "q": FLOAT}


def test_attributes_that_name_the_dtype():
    unit = halve("""
        g (int64[1] n, float[N] x) => (float[N] y)
        {
          a = ConstantOfShape <value: tensor = float[1] {0.5}> (n)
          b = ConstantOfShape(n)
          r = RandomNormal <shape = [1]> ()
          c = Sum(a, b, r)
          y = Add(c, x)
        }
    """)
    assert {name: d for name, d in dtypes(unit).items() if name in "abrc"} == dict.fromkeys(
        "abrc", HALF
    )


def test_float32_outputs_of_fused_operators_stay():
    model = parser.parse_model(
        HEADER
        + """g (float[2, 8] x) => (float[2, 8] y, float[2, 1] rstd)
        <float[8] w = {1, 1, 1, 1, 1, 1, 1, 1}>
        { y, rstd = npu.NPURmsNorm(x, w) }"""
    )
    unit = load(model)
    use_npu_op(unit.model, "NPURmsNorm", 2)
    model = ir.to_proto(unit.model)
    unit = halve(model)
    assert ops(unit) == ["Cast", "NPURmsNorm", "Cast"]
    assert dtypes(unit)["rstd"] == FLOAT
    x = np.linspace(-3, 3, 16, dtype=np.float32).reshape(2, 8)
    got = run(unit, x=x)
    rstd = 1 / np.sqrt((x * x).mean(-1, keepdims=True) + 1e-6)
    np.testing.assert_allclose(got["rstd"], rstd, rtol=1e-3)
    np.testing.assert_allclose(got["y"], x * rstd, rtol=2e-3)
    refused = halve(model, lambda op, dtype: "none" if dtype == HALF else None)
    assert ops(refused) == ["NPURmsNorm"]
    assert "without a float16 kernel" in notes(refused)


def test_unknown_operator_stays_float():
    model = parser.parse_model(
        '<ir_version: 10, opset_import: ["" : 18, "other" : 1]>'
        "g (float[2] x) => (float[2] y) { a = Relu(x) b = other.Odd(a) y = Neg(b) }"
    )
    unit = load(model)
    run_passes(unit, ["float16"], runner=HostRunner(), may_use_kernel=any_kernel)
    (odd,) = (n for n in unit.model.graph if n.op_type == "Odd")
    assert odd.inputs[0].dtype == FLOAT
    assert "operators without a known definition" in notes(unit)
    assert Counter(ops(unit))["Cast"] == 2


@pytest.mark.parametrize("number", [1, 3, 5, 7, 9, 11, 13])
def test_cases(number):
    if not CASES.is_dir():
        pytest.skip("the shared cases are not beside the repository")
    listed = json.loads((CASES / "cases.json").read_text())["cases"]
    (case,) = (c for c in listed if c["id"] == f"fp-{number:02}")
    unit = halve(onnx.load(CASES / case["model"]))
    got = run(unit, **np.load(CASES / case["inputs"]))
    for name, expected in np.load(CASES / case["outputs"]).items():
        error = np.linalg.norm(got[name] - expected) / np.linalg.norm(expected)
        assert error <= case["rel_l2"]
