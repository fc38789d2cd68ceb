"""Models of opset 7 to 17 brought to 18: the same numbers, names and origins."""

import json
from pathlib import Path

import numpy as np
import onnx
import onnx_ir as ir
import pytest
from onnx import helper
from tests.support.runner import PlainRunner, run_plain

from cannc.compiler.core.graphs import walk
from cannc.compiler.core.unit import load
from cannc.passes.manager import run_passes

CASES = Path(__file__).parents[2].parent / "shared" / "cases"
OPSETS = range(7, 18)
RNG = np.random.default_rng(0)


def any_kernel(op_type, dtype):
    return None


def bring(model):
    """Run the pass as the manager does; a second run changes nothing."""
    unit = load(model)
    for _ in range(2):
        run_passes(unit, ["opset-to-18"], runner=PlainRunner(), may_use_kernel=any_kernel)
    assert unit.log[1].applied == 0
    assert not [fate for fate in unit.fates() if fate.kind == "unknown"]
    return unit


def bring_equal(model, feeds, rtol=1e-6):
    """Check that a model arrives at opset 18, valid, with equal results; return the unit."""
    unit = bring(model)
    assert unit.model.opset_imports[""] == 18, unit.log[0].notes
    assert unit.model.ir_version == 10
    proto = ir.to_proto(unit.model)
    onnx.checker.check_model(proto, full_check=True)
    want, got = run_plain(model, feeds), run_plain(proto, feeds)
    for name, array in want.items():
        assert got[name].dtype == array.dtype
        np.testing.assert_allclose(got[name], array, rtol=rtol, atol=1e-7)
    return unit


def parse(opset, text):
    ir_version = 3 if opset < 9 else 8
    return onnx.parser.parse_model(f'<ir_version: {ir_version}, opset_import: ["": {opset}]>{text}')


def ops(unit):
    return [s.node.op_type for s in walk(unit.model.graph)]


X = RNG.standard_normal((2, 3, 4, 5)).astype(np.float32)
IMAGE = "g (float[2, 3, 4, 5] x) => (float[a, b, c, d] y)"


ATTRIBUTE_FORMS = {
    "clip both": (7, 10, "y = Clip <min = -0.5, max = 0.5> (x)"),
    "clip low": (7, 10, "y = Clip <min = 0.1> (x)"),
    "clip high": (7, 10, "y = Clip <max = 0.1> (x)"),
    "clip nothing": (7, 10, "y = Clip (x)"),
    "dropout": (7, 11, "y = Dropout <ratio = 0.3> (x)"),
    "pad": (7, 10, "y = Pad <pads = [0, 0, 1, 2, 0, 0, 1, 0], value = 1.5> (x)"),
    "pad mode": (7, 10, 'y = Pad <pads = [0, 0, 1, 2, 0, 0, 1, 0], mode = "reflect"> (x)'),
    "slice": (7, 9, "y = Slice <starts = [1, -3], ends = [3, 9], axes = [2, 3]> (x)"),
    "slice without axes": (7, 9, "y = Slice <starts = [1, 1], ends = [2, 9]> (x)"),
    "topk": (7, 9, "y, i = TopK <k = 2, axis = 3> (x)"),
    "squeeze": (7, 12, "u = Unsqueeze <axes = [0, 5]> (x) y = Squeeze <axes = [0, 5]> (u)"),
    "squeeze all": (7, 12, "u = Unsqueeze <axes = [0]> (x) y = Squeeze (u)"),
    "split": (7, 12, "y, z = Split <axis = 3, split = [2, 3]> (x)"),
    "split equally": (7, 17, "y, z = Split <axis = 2> (x)"),
    "sum": (7, 12, "y = ReduceSum <axes = [1, -1]> (x)"),
    "sum all": (7, 12, "y = ReduceSum (x)"),
    "mean": (7, 17, "y = ReduceMean <axes = [1, 3], keepdims = 1> (x)"),
    "norms": (7, 17, "a = ReduceL1 <axes = [1]> (x) b = ReduceL2 <axes = [1]> (x) y = Add(a, b)"),
    "max": (7, 17, "a = ReduceMax <axes = [1]> (x) b = ReduceMin <axes = [1]> (x) y = Sub(a, b)"),
    "products": (
        7,
        17,
        """a = ReduceProd <axes = [1]> (x) b = ReduceSumSquare <axes = [1]> (x)
           c = ReduceLogSumExp <axes = [1]> (x) d = Sum(a, b, c) y = Identity(d)""",
    ),
}


@pytest.mark.parametrize("form", ATTRIBUTE_FORMS)
def test_attributes_become_inputs(form):
    first, last, body = ATTRIBUTE_FORMS[form]
    for opset in {first, last}:
        if opset < 11 and "-1]" in body:
            body = body.replace("-1]", "3]")
        bring_equal(parse(opset, f"{IMAGE} {{ {body} }}"), {"x": X})


@pytest.mark.parametrize("opset", OPSETS)
def test_every_opset(opset):
    unit = bring_equal(
        parse(opset, f"{IMAGE} {{ [first] h = Relu(x) [second] y = ReduceMax <axes = [1]> (h) }}"),
        {"x": X},
    )
    assert [n.name for n in unit.model.graph] == ["first", "second"]
    assert {f.value: f.kind for f in unit.fates()} == {"h": "same", "y": "same"}


@pytest.mark.parametrize("axis", [None, 0, 1, 2, 3])
@pytest.mark.parametrize("op_type", ["Softmax", "LogSoftmax", "Hardmax"])
@pytest.mark.parametrize("shape", ["2, 3, 4, 5", "N, M, H, W"])
def test_softmax_over_all_later_axes(op_type, axis, shape):
    given = "" if axis is None else f"<axis = {axis}>"
    model = parse(
        11, f"g (float[{shape}] x) => (float[a, b, c, d] y) {{ y = {op_type} {given} (x) }}"
    )
    unit = bring_equal(model, {"x": X})
    split = 1 if axis is None else axis
    flat = X.reshape(int(np.prod(X.shape[:split])), -1).astype(np.float64)
    exponentials = np.exp(flat - flat.max(1, keepdims=True))
    soft = exponentials / exponentials.sum(1, keepdims=True)
    largest = flat == flat.max(1, keepdims=True)
    want = {"Softmax": soft, "LogSoftmax": np.log(soft), "Hardmax": largest}[op_type]
    got = run_plain(unit.model, {"x": X})["y"]
    np.testing.assert_allclose(got, want.reshape(X.shape), rtol=1e-5)


@pytest.mark.parametrize(
    ("shape", "axis", "kept"), [("2, 7, 1, 1", 1, 1), ("2, 1, 7", 1, 2), ("2, 7", 1, -1)]
)
def test_softmax_over_one_long_axis_stays_one_node(shape, axis, kept):
    rank = ", ".join("abcd"[: shape.count(",") + 1])
    text = f"g (float[{shape}] x) => (float[{rank}] y) {{ y = Softmax <axis = {axis}> (x) }}"
    x = RNG.standard_normal([int(d) for d in shape.split(",")]).astype(np.float32)
    unit = bring_equal(parse(11, text), {"x": x})
    assert ops(unit) == ["Softmax"]
    assert unit.model.graph[0].attributes["axis"].as_int() == kept


@pytest.mark.parametrize("mode", ["nearest", "linear"])
def test_upsample(mode):
    text = f'{IMAGE} {{ y = Upsample <mode = "{mode}", scales = [1.0, 1.0, 2.0, 2.5]> (x) }}'
    assert ops(bring_equal(parse(7, text), {"x": X})) == ["Resize"]
    text = f'{IMAGE} <float[4] s = {{1, 1, 2, 2.5}}> {{ y = Upsample <mode = "{mode}"> (x, s) }}'
    assert ops(bring_equal(parse(9, text), {"x": X})) == ["Resize"]


@pytest.mark.parametrize("scales", ["1, 1, 2, 3", "1, 1, 0.6, 0.7", "1, 1, 0.5, 1"])
@pytest.mark.parametrize("mode", ["nearest", "linear"])
def test_resize_10(mode, scales):
    text = f'{IMAGE} <float[4] s = {{{scales}}}> {{ y = Resize <mode = "{mode}"> (x, s) }}'
    bring_equal(parse(10, text), {"x": X}, rtol=1e-5)


def test_resize_10_that_rounds_both_ways_stays():
    text = f"{IMAGE} <float[4] s = {{1, 1, 2, 0.6}}> {{ y = Resize (x, s) }}"
    unit = bring(parse(10, text))
    assert unit.model.opset_imports[""] == 10
    assert "round differently" in unit.log[0].notes[0]


def test_resize_11_with_sizes_drops_its_empty_inputs():
    text = f"""{IMAGE} <float[0] e = {{}}, int64[4] s = {{2, 3, 8, 10}}>
        {{ y = Resize <mode = "cubic", coordinate_transformation_mode = "align_corners">
             (x, e, e, s) }}"""
    unit = bring_equal(parse(11, text), {"x": X}, rtol=1e-4)
    assert unit.model.graph[0].inputs[1:3] == (None, None)


def test_batch_norm_of_opset_7():
    text = f"""{IMAGE} <float[3] s = {{1, 2, 3}}, float[3] m = {{0, 1, 2}}>
        {{ y = BatchNormalization <epsilon = 0.1> (x, s, m, m, s) }}"""
    for opset in (7, 9):
        model = parse(opset, text)
        if opset == 7:
            model.graph.node[0].attribute.append(helper.make_attribute("spatial", 1))
        bring_equal(model, {"x": X})


def test_batch_norm_per_element_stays():
    text = f"""{IMAGE} <float[3] s = {{1, 2, 3}}>
        {{ y = BatchNormalization <spatial = 0> (x, s, s, s, s) }}"""
    unit = bring(parse(7, text))
    assert unit.model.opset_imports[""] == 7
    assert "spatial=0" in unit.log[0].notes[0]
    assert ops(unit) == ["BatchNormalization"]


def test_scatter_and_roi_align():
    text = """g (float[4, 5] x) => (float[4, 5] y) <int64[1, 2] i = {1, 3}, float[1, 2] u = {9, 8}>
        { y = Scatter <axis = 1> (x, i, u) }"""
    bring_equal(parse(10, text), {"x": X[0, 0]})
    text = """g (float[2, 3, 4, 5] x) => (float[a, b, c, d] y)
        <float[1, 4] r = {0.3, 0.2, 3.6, 2.9}, int64[1] i = {1}>
        { y = RoiAlign <output_height = 2, output_width = 2> (x, r, i) }"""
    bring_equal(parse(10, text), {"x": X}, rtol=1e-5)


def test_branches_go_too():
    text = """g (float[2, 3] x, bool c) => (float[2, 3] y) {
        y = If (c) <
          then_branch = a () => (float[2, 3] ta) { ta = Clip <min = 0.0> (x) },
          else_branch = b () => (float[2, 3] tb) {
            u = Unsqueeze <axes = [0]> (x)  tb = Squeeze <axes = [0]> (u) }>
    }"""
    for choice in (True, False):
        bring_equal(parse(10, text), {"x": X[0, 0, :2, :3], "c": np.array(choice)})


def test_notes_of_the_exporter_and_weights_stay():
    model = parse(12, f"{IMAGE} {{ [n] y = ReduceSum <axes = [1]> (x) }}")
    entry = model.graph.node[0].metadata_props.add()
    entry.key, entry.value = "module", "layer1.pool"
    weight = RNG.standard_normal((3, 1, 1)).astype(np.float32)
    model.graph.initializer.append(onnx.numpy_helper.from_array(weight, "w"))
    unit = load(model)
    before = unit.model.graph.initializers["w"].const_value
    run_passes(unit, ["opset-to-18"], runner=PlainRunner(), may_use_kernel=any_kernel)
    assert unit.model.graph[0].metadata_props["module"] == "layer1.pool"
    assert unit.model.graph.initializers["w"].const_value is before


def test_below_7_only_what_never_changed():
    same = bring(parse(6, f"{IMAGE} {{ y = Elu (x) }}"))
    assert same.model.opset_imports[""] == 18
    other = bring(parse(6, "g (float[2] x) => (float[2] y) { y = Add(x, x) }"))
    assert other.model.opset_imports[""] == 6
    assert "Add_0 (Add): it changed before opset 7" in other.log[0].notes[0]


@pytest.mark.parametrize("number", [2, 4, 6, 8, 10])
def test_cases(number):
    if not CASES.is_dir():
        pytest.skip("the shared cases are not beside the repository")
    listed = json.loads((CASES / "cases.json").read_text())["cases"]
    (case,) = (c for c in listed if c["id"] == f"ops-{number:02}")
    unit = bring(onnx.load(CASES / case["model"]))
    assert unit.model.opset_imports[""] == 18
    assert not set(case.get("checks", {}).get("no_ops", ())) & set(ops(unit))
    got = run_plain(unit.model, dict(np.load(CASES / case["inputs"])))
    for name, expected in np.load(CASES / case["outputs"]).items():
        np.testing.assert_allclose(got[name], expected, rtol=1e-5, atol=1e-6)
