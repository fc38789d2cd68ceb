import numpy as np
import onnx_ir as ir
import pytest
from tests.support.models import mlp, parse, save

from cannc.compiler.core.errors import ModelError, UsageError
from cannc.compiler.core.unit import load
from cannc.compiler.om.writer import write_om
from cannc.golden.compare import compare

RNG = np.random.default_rng(0)
X = {"x": RNG.standard_normal((3, 8)).astype(np.float32)}


def faulty():
    model = mlp()
    weight = next(t for t in model.graph.initializer if t.name == "b1")
    weight.raw_data = (np.frombuffer(weight.raw_data, np.float32) + 1).tobytes()
    return model


def test_modes():
    both = compare(mlp(), faulty(), inputs=X)
    arriving = compare(mlp(), faulty(), inputs=X, mode="accumulated")
    added = compare(mlp(), faulty(), inputs=X, mode="isolated")
    assert both.verdict == arriving.verdict == added.verdict == "fail"
    assert {layer.isolated for layer in arriving.layers} == {None}
    assert {layer.accumulated for layer in added.layers} == {None}
    assert [c.node for c in both.culprits] == [c.node for c in added.culprits] == ["Add_1"]
    assert arriving.culprits == ()
    assert [layer.name for layer in both.layers if not layer.passed] == ["hb", "a", "o", "y"]
    assert [layer.name for layer in added.layers if not layer.passed] == ["hb"]


@pytest.mark.parametrize("form", ["proto", "ir", "unit", "onnx", "text", "om"])
def test_every_kind_of_model(form, tmp_path):
    unit = load(faulty())
    if form == "om":
        unit.stamp()
        write_om(unit.model, tmp_path / "m.om", name="m", attributes={})
    candidates = {
        "proto": faulty,
        "ir": lambda: unit.model,
        "unit": lambda: unit,
        "onnx": lambda: unit.save(tmp_path / "m.onnx"),
        "text": lambda: str(unit.save(tmp_path / "m.onnx")),
        "om": lambda: tmp_path / "m.om",
    }
    report = compare(save(mlp(), tmp_path / "golden.onnx"), candidates[form](), inputs=X)
    assert report.culprits[0].node == "Add_1"
    assert report.facts.golden == "golden.onnx"
    assert report.warnings == ()
    assert str(tmp_path) not in str(report)


def test_the_arguments_are_not_changed():
    golden, candidate = load(mlp()), load(faulty())
    before = [ir.to_proto(u.model).SerializeToString() for u in (golden, candidate)]
    compare(golden, candidate, inputs=X)
    after = [ir.to_proto(u.model).SerializeToString() for u in (golden, candidate)]
    assert before == after


def test_several_samples_give_worst_and_mean():
    small, large = X["x"], 100 * X["x"]
    report = compare(mlp(), faulty(), inputs=[{"x": small}, {"x": large}, {"x": small[:1]}])
    row = next(layer for layer in report.layers if layer.name == "hb")
    alone = [
        compare(mlp(), faulty(), inputs={"x": x}).layers[1].isolated
        for x in (small, large, small[:1])
    ]
    assert row.isolated.rel_l2 == max(m.rel_l2 for m in alone)
    assert row.added.mean["rel_l2"] == pytest.approx(np.mean([m.rel_l2 for m in alone]))
    assert report.facts.samples == 3


def test_inputs_come_from_a_file_or_the_examples_or_a_seed(tmp_path):
    np.savez(tmp_path / "x.npz", **X)
    assert compare(mlp(), mlp(), inputs=tmp_path / "x.npz").facts.inputs == "file x.npz"
    unit = load(mlp())
    unit.examples = dict(X)
    assert compare(unit, mlp()).facts.inputs == "examples stored with the model"
    assert compare(mlp(), unit).facts.inputs == "examples stored with the model"
    static = parse(
        "m (float[2] x, int64[2] i) => (float[2] y) { f = Cast<to = 1>(i) y = Add(x, f) }"
    )
    first, again = compare(static, static), compare(static, static)
    assert "random, seed 0" in first.facts.inputs
    assert first == again
    other = compare(static, static, seed=1)
    assert other.layers[1].accumulated.golden_max != first.layers[1].accumulated.golden_max


def test_what_cannot_be_fed_is_an_error():
    with pytest.raises(UsageError, match="CMP003"):
        compare(mlp(), mlp())
    with pytest.raises(UsageError, match="INP001"):
        compare(mlp(), mlp(), inputs={})
    with pytest.raises(UsageError, match="INP006"):
        compare(mlp(), mlp(), inputs={"x": np.full((1, 8), np.nan, np.float32)})


def test_a_stop_of_the_original_is_no_golden():
    broken = parse("m (float[N] x) => (float[K] y) { y = Reshape(x, s) }", s=np.array([7]))
    with pytest.raises(ModelError, match="CMP005") as caught:
        compare(broken, broken, inputs={"x": np.zeros(3, np.float32)})
    assert "no golden" in caught.value.what


def test_thresholds_decide():
    loose = compare(mlp(), faulty(), inputs=X, thresholds={"rel_l2": 10.0, "cosine": -1.0})
    assert loose.verdict == "pass"
    assert loose.facts.thresholds == {"rel_l2": 10.0, "cosine": -1.0}
    tight = ["max_abs=0"]
    assert compare(mlp(), mlp(), inputs=X, thresholds=tight).verdict == "pass"


def test_a_layer_of_another_shape_fails_with_the_reason():
    text = "m (float[2, 3] x) => (float[6] y) {{ t = Transpose<perm = {}>(x) y = Reshape(t, s) }}"
    golden, candidate = (
        parse(text.format(perm), s=np.array([-1])) for perm in ("[1, 0]", "[0, 1]")
    )
    report = compare(golden, candidate, inputs={"x": RNG.standard_normal((2, 3)).astype("f4")})
    row = report.layers[0]
    assert (row.passed, row.note) == (False, "shape (3, 2) became (2, 3)")
    assert report.first_divergence is row
    assert report.verdict == "fail"
    # Fed with golden's numbers, the layer behind it is innocent.
    assert report.layers[1].isolated.max_abs == 0.0


def test_overflow_is_charged_to_the_layer_that_overflows():
    golden = parse("m (float[1] x) => (float[1] y) { a = Mul(x, k) b = Mul(a, d) y = Neg(b) }",
                   k=np.float32([1000]), d=np.float32([0.001]))  # fmt: skip
    candidate = parse(
        """m (float[1] x) => (float[1] y) {
            h = Cast<to = 10>(x)
            a = Mul(h, k)
            b = Mul(a, d)
            n = Neg(b)
            y = Cast<to = 1>(n)
        }""",
        k=np.float16([1000]),
        d=np.float16([0.001]),
    )
    report = compare(golden, candidate, inputs={"x": np.float32([100])})
    assert report.culprits[0].name == "a"
    assert report.culprits[0].isolated.overflows == 1
    assert report.first_divergence.name == "a"


def test_a_float16_original_is_the_reference_without_rounding():
    text = "m (float16[1] x) => (float16[1] y) { a = Add(x, one) y = Sub(a, x) }"
    model = parse(text, one=np.float16([1]))
    report = compare(model, model, inputs={"x": np.float16([2048])})
    row = report.layers[0]
    assert row.accumulated.golden_max == 2049.0
    assert row.accumulated.max_abs == 1.0
    assert report.outputs[0].passed is False
    assert report.facts.device == "host (simulated float16)"
