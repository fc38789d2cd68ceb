"""Input scales move without changing the model, or not at all and with a reason."""

import numpy as np
import onnx_ir as ir
import pytest
from tests.support.calibration import calibration_of
from tests.support.models import parse
from tests.support.quant import quantized, report_of, unknown_fates
from tests.support.runner import PlainRunner, run_plain

from cannc.compiler.core.shapes import infer_shapes
from cannc.compiler.core.unit import load
from cannc.passes.rewrite import Rewriter
from cannc.quant.collect import collect
from cannc.quant.equalize import equalize
from cannc.quant.scheme import Scheme
from cannc.quant.statistics import Statistics

RNG = np.random.default_rng(3)
K = 48


def normal(*shape):
    return RNG.normal(size=shape).astype(np.float32)


def loud():
    """Factors of channels, some of them much larger than the others."""
    factors = np.exp(RNG.normal(size=K)).astype(np.float32)
    factors[[1, 30]] = 40
    return factors


WEIGHTS = {"w": normal(K, 16), "v": normal(K, 16), "g": loud(), "b": normal(K), "p": normal(K, K)}

FORMS = {
    "layer norm": "h = LayerNormalization <axis = -1> (x, g, b)",
    "layer norm without offset": "h = LayerNormalization <axis = -1> (x, g)",
    "decomposed": "n = Softmax (x) m = Mul (n, g) h = Add (m, b)",
    "factor in front": "n = Softmax (x) h = Mul (g, n)",
    "layer before": "q = Mul (p, g) n = MatMul (x, r) h = Relu (n)",
    "layer before, transposed": "h = Gemm <transB = 1> (x, t, b)",
    "behind a transpose": "rt = Transpose (t) h = MatMul (x, rt)",
    "gate": "a = Softmax (x) u = MatMul (x, r) h = Mul (a, u)",
    "gate turned": "a = Softmax (x) u = MatMul (x, r) h = Mul (u, a)",
}


def scaled(
    body, tail="y = MatMul (h, w) z = MatMul (h, v)", outputs="float[B, 16] y, float[B, 16] z"
):
    weights = WEIGHTS | {"r": WEIGHTS["p"] * WEIGHTS["g"], "t": (WEIGHTS["p"] * WEIGHTS["g"]).T}
    body = body.replace("q = Mul (p, g) ", "")
    text = f"m (float[B, {K}] x) => ({outputs}) {{ {body} {tail} }}"
    weights = {
        name: w
        for name, w in weights.items()
        if f"{name}" in text.replace(",", " ").replace(")", " ").replace("(", " ").split()
    }
    unit = load(parse(text, **{n: np.ascontiguousarray(w) for n, w in weights.items()}))
    infer_shapes(unit.model)
    work = unit.copy()
    uses = collect(work.model).uses
    samples = [{"x": normal(16, K)} for _ in range(2)]
    statistics = Statistics(work.model, uses, PlainRunner(), samples, "moments")
    rewriter = Rewriter(work.model, work.provenance, "quantize")
    result = equalize(rewriter, uses, lambda use: Scheme(4), statistics)
    return unit, work, result


@pytest.mark.parametrize("body", FORMS.values(), ids=FORMS)
def test_the_model_computes_the_same(body):
    unit, work, result = scaled(body)
    notes = [note for x, note in result.notes.items() if "exponent" in note]
    assert len(notes) == 1
    assert not unknown_fates(work)
    feeds = {"x": normal(5, K)}
    golden, actual = run_plain(unit.model, feeds), run_plain(work.model, feeds)
    for name in golden:
        np.testing.assert_allclose(actual[name], golden[name], rtol=1e-4, atol=1e-3)


def test_weights_and_moments_are_those_of_the_scaled_model():
    _, work, result = scaled(FORMS["layer norm"])
    (moments,) = (m for m in result.moments.values() if not isinstance(m, str))
    (x,) = (x for x, note in result.notes.items() if "exponent" in note)
    assert x.name == "h__scaled"
    feeds = [{"x": normal(64, K)} for _ in range(4)]
    rows = np.concatenate([PlainRunner().run(work.model, f, [x.name])[x.name] for f in feeds])
    np.testing.assert_allclose(np.square(rows).mean(axis=0), moments.mean_square, rtol=0.6)
    assert moments.mean_abs.max() / moments.mean_abs.min() < 30


@pytest.mark.parametrize(
    ("body", "tail", "outputs", "reason"),
    [
        (
            FORMS["layer norm"],
            "y = MatMul (h, w) z = Relu (h)",
            "float[B, 16] y, float[Q, R] z",
            "others read",
        ),
        (
            FORMS["layer norm"],
            "y = MatMul (h, w)",
            f"float[B, 16] y, float[B, {K}] h",
            "graph output",
        ),
        ("h = Identity (x)", "y = MatMul (h, w)", "float[B, 16] y", "'x' is no result of a layer"),
        ("n = Mul (x, g) h = Tanh (n)", "y = MatMul (h, w)", "float[B, 16] y", "Tanh is in front"),
        ("h = Mul (x, x)", "y = MatMul (h, w)", "float[B, 16] y", "a square"),
        (
            "n = Mul (x, g) h = Add (n, x)",
            "y = MatMul (h, w)",
            "float[B, 16] y",
            "others read 'x' too",
        ),
        (
            FORMS["layer norm"],
            "s = Transpose (h) y = MatMul (wt, s)",
            "float[16, B] y",
            "does not sum over the last",
        ),
    ],
)
def test_near_misses_are_refused(body, tail, outputs, reason):
    WEIGHTS.setdefault("wt", np.ascontiguousarray(WEIGHTS["w"].T))
    unit, work, result = scaled(body, tail, outputs)
    (note,) = result.notes.values()
    assert note.startswith("no input scales: ")
    assert reason in note
    assert [n.name for n in work.model.graph] == [n.name for n in unit.model.graph]


def test_shared_constants_are_scaled_for_one_reader_only():
    unit, work, _ = scaled(
        "h = LayerNormalization <axis = -1> (x, g, b) k = LayerNormalization <axis = -1> (x, g, b)",
        "y = MatMul (h, w) z = Relu (k)",
        f"float[B, 16] y, float[B, {K}] z",
    )
    feeds = {"x": normal(5, K)}
    np.testing.assert_array_equal(
        run_plain(work.model, feeds)["z"], run_plain(unit.model, feeds)["z"]
    )


def test_quantization_says_what_was_done_and_leaves_no_float_weights():
    text = f"""m (float[B, {K}] x) => (float[B, 16] y, float[B, 16] z) {{
        h = LayerNormalization <axis = -1> (x, g, b) y = MatMul (h, w) z = MatMul (h, v)
    }}"""
    model = parse(text, **{name: WEIGHTS[name] for name in "wvgb"})
    data = calibration_of(model, [{"x": normal(16, K)}])
    unit = quantized(model, scheme="w4a16", algo="awq", calibration=data, runner=PlainRunner())
    assert all("input scales with exponent" in row.reason for row in report_of(unit).quantized)
    floats = [
        v.name
        for v in unit.model.graph.initializers.values()
        if v.dtype == ir.DataType.FLOAT and len(v.shape) == 2 and v.shape[0] > 1
    ]
    assert floats == []
    assert [row.weight for row in report_of(unit).quantized] == ["w", "v"]
    assert set(unit.model.graph.initializers) > {"g", "b"}


def test_a_kept_weight_gets_its_scales_in_float():
    text = f"""m (float[B, {K}] x) => (float[B, 16] y, float[B, 16] z) {{
        h = LayerNormalization <axis = -1> (x, g, b) y = MatMul (h, w) z = MatMul (h, v)
    }}"""
    model = parse(text, **{name: WEIGHTS[name] for name in "wvgb"})
    data = calibration_of(model, [{"x": normal(16, K)}])
    options = {"algo": "awq", "calibration": data, "runner": PlainRunner(), "keep": "last"}
    unit = quantized(model, scheme="w4a16", **options)
    feeds = {"x": normal(7, K)}
    golden, actual = run_plain(model, feeds), run_plain(unit.model, feeds)
    np.testing.assert_allclose(actual["z"], golden["z"], rtol=1e-3, atol=1e-3)
    assert np.abs(actual["y"] - golden["y"]).max() > 0.1
