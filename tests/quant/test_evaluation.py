"""Figures of the evaluator against plain numpy, and what it refuses."""

import json

import numpy as np
import pytest
from click.testing import CliRunner
from tests.support.models import mlp, parse, save

import cannc
from cannc.compiler.cli.main import cli
from cannc.compiler.core.errors import GoldenMismatchError, UsageError
from cannc.compiler.runtime.host_session import HostSession
from cannc.quant.report import QuantReport
from cannc.quant.sensitivity import CURVE_KEY

VOCABULARY, WIDTH = 40, 32


def language_model(seed=0, layers=4):
    """Embedding, layers, one of them hard to quantize, and a head that has no error at all."""
    rng = np.random.default_rng(seed)
    weights = {f"w{i}": rng.normal(size=(WIDTH, WIDTH)) / 4 for i in range(layers)}
    weights["w1"][3] *= 60
    weights["w1"][:, 3] *= 60
    body = " ".join(
        f"m{i} = MatMul (h{i}, w{i}) t{i} = Tanh (m{i}) h{i + 1} = Add (t{i}, h{i})"
        for i in range(layers)
    )
    text = f"""m (int64[B, S] input_ids) => (float[B, S, {VOCABULARY}] logits) {{
        h0 = Gather (table, input_ids) {body} logits = MatMul (h{layers}, head)
    }}"""
    weights["table"] = rng.normal(size=(VOCABULARY, WIDTH))
    weights["head"] = rng.choice([-1, 0, 1], size=(WIDTH, VOCABULARY))
    return parse(text, **{name: array.astype(np.float32) for name, array in weights.items()})


def tokens(count, seed):
    rng = np.random.default_rng(seed)
    return [{"input_ids": rng.integers(0, VOCABULARY, (1, 20))} for _ in range(count)]


def logits(model, feeds):
    return HostSession(cannc.load(model).model).run(feeds)["logits"].astype(np.float64)[0]


def softmax(x):
    e = np.exp(x - x.max(axis=-1, keepdims=True))
    return e / e.sum(axis=-1, keepdims=True)


def test_figures_of_a_language_model():
    model = language_model()
    quantized = cannc.quantize(model, scheme="w4a16")
    data = tokens(5, 1)
    found = cannc.QuantEvaluator(model).evaluate(quantized, data)
    exact = np.concatenate([logits(model, feeds) for feeds in data])
    actual = np.concatenate([logits(quantized, feeds) for feeds in data])
    p, q = softmax(exact), softmax(actual)
    best = exact.argmax(axis=1)
    assert found.positions == 100
    assert found.token_accuracy == (actual.argmax(axis=1) == best).mean()
    five = np.argsort(-actual, axis=1)[:, :5]
    assert found.top5 == np.mean([b in row for b, row in zip(best, five, strict=True)])
    assert found.kl == pytest.approx((p * np.log(p / q)).sum(axis=1).mean(), rel=1e-3)
    losses = []
    for index, feeds in enumerate(data):
        rows = q[20 * index : 20 * index + 19]
        losses += [-np.log(row[t]) for row, t in zip(rows, feeds["input_ids"][0, 1:], strict=True)]
    assert found.perplexity_quantized == pytest.approx(np.exp(np.mean(losses)), rel=1e-3)
    assert found.perplexity != pytest.approx(found.perplexity_quantized, rel=1e-3)
    assert 0 < found.token_accuracy < 1


def test_a_model_agrees_with_itself():
    model = language_model()
    found = cannc.QuantEvaluator(model).evaluate(model, tokens(2, 1))
    assert (found.top1, found.top5, found.kl) == (1, 1, 0)
    assert found.cosine == pytest.approx(1)
    assert found.perplexity == found.perplexity_quantized


def test_padding_does_not_count():
    text = """m (int64[B, S] input_ids, int64[B, S] attention_mask) => (float[B, S, 40] logits) {
        h = Gather (table, input_ids) m = Cast <to = 1> (attention_mask) logits = MatMul (h, w)
    }"""
    rng = np.random.default_rng(0)
    model = parse(
        text,
        table=rng.normal(size=(40, 8)).astype(np.float32),
        w=rng.normal(size=(8, 40)).astype(np.float32),
    )
    mask = np.array([[1, 1, 1, 0, 0]])
    feeds = {"input_ids": rng.integers(0, 40, (1, 5)), "attention_mask": mask}
    assert cannc.QuantEvaluator(model).evaluate(model, [feeds]).positions == 3


def test_classifiers_and_other_models():
    feeds = [{"x": np.random.default_rng(i).normal(size=(4, 8))} for i in range(3)]
    quantized = cannc.quantize(mlp(), scheme="w4a16")
    found = cannc.QuantEvaluator(mlp()).evaluate(quantized, feeds)
    assert found.positions == 12
    assert found.perplexity is None
    assert 0.8 < found.cosine < 1
    plain = parse(
        "m (float[N, 3, 8] x) => (float[N, 3, 4] y) { y = MatMul (x, w) }",
        w=np.eye(8, 4, dtype=np.float32),
    )
    sample = [{"x": np.ones((1, 3, 8), np.float32)}]
    assert cannc.QuantEvaluator(plain).evaluate(plain, sample).positions == 0


def test_calibration_data_is_refused_unless_allowed():
    model, data = language_model(), tokens(4, 1)
    quantized = cannc.quantize(model, calib=data, algo="mse")
    with pytest.raises(UsageError) as caught:
        cannc.QuantEvaluator(model).evaluate(quantized, [*tokens(2, 9), data[2]])
    assert caught.value.code == "QEV001"
    assert "1 of 3" in caught.value.what
    allowed = cannc.QuantEvaluator(model, allow_overlap=True)
    assert allowed.evaluate(quantized, data).samples == 4
    with pytest.raises(UsageError, match="calibration samples"):
        cannc.quantize(model, calib=data, algo="mse", min_cosine=0.5, eval_data=data)


@pytest.mark.parametrize("ranking", ["isolated", "end-to-end"])
def test_the_fewest_layers_stay_in_float(ranking):
    model, data = language_model(), tokens(6, 2)
    evaluator = cannc.QuantEvaluator(model)
    full = evaluator.evaluate(cannc.quantize(model, scheme="w4a16"), data).cosine
    least = (1 + full) / 2
    unit = cannc.quantize(model, scheme="w4a16", min_cosine=least, eval_data=data, ranking=ranking)
    assert evaluator.evaluate(unit, data).cosine >= least
    curve = json.loads(unit.model.metadata_props[CURVE_KEY])
    points = curve["points"]
    assert [len(p["kept"]) for p in points] == sorted({len(p["kept"]) for p in points})
    met = [p for p in points if p["meets"]]
    kept = len(met[0]["kept"])
    assert 0 < kept <= 4
    assert len(QuantReport.of(unit).quantized) == 5 - kept
    assert [p for p in points if len(p["kept"]) == kept - 1 and not p["meets"]]
    assert points[0]["nbytes"] < met[0]["nbytes"]
    measured = [layer["effect"] is not None for layer in curve["layers"]]
    assert all(measured) if ranking == "end-to-end" else not any(measured)


def test_the_damaged_layer_is_the_most_sensitive():
    model = language_model()
    calibrated = cannc.quantize(model, scheme="w4a16", calib=tokens(8, 3), algo="mse")
    first = cannc.QuantEvaluator(model).sensitivity(calibrated)[0]
    rows = {row.node: row.weight for row in QuantReport.of(calibrated).rows}
    assert rows[first.node] == "w1"


def test_a_goal_out_of_reach_is_an_error():
    with pytest.raises(GoldenMismatchError) as caught:
        cannc.quantize(
            language_model(), "w4a16", keep=["head"], min_cosine=1.0, eval_data=tokens(3, 2)
        )
    assert caught.value.code == "QEV003"


@pytest.mark.parametrize(
    "options",
    [
        {"min_cosine": 0.9},
        {"eval_data": tokens(1, 2)},
        {"min_cosine": 0.9, "min_token_accuracy": 0.9, "eval_data": tokens(1, 2)},
        {"min_token_accuracy": 99.5, "eval_data": tokens(1, 2)},
    ],
)
def test_wrong_goals(options):
    with pytest.raises(UsageError) as caught:
        cannc.quantize(language_model(), **options)
    assert caught.value.code == "QEV002"


def test_command_line_writes_the_curve(tmp_path):
    path = save(language_model(), tmp_path / "lm.onnx")
    np.savez(tmp_path / "eval.npz", input_ids=np.arange(40).reshape(2, 20))
    arguments = ["quantize", str(path), "-o", str(tmp_path / "q.onnx"), "--scheme", "w4a16"]
    arguments += ["--min-token-accuracy", "0.9", "--eval", str(tmp_path / "eval.npz")]
    result = CliRunner().invoke(cli, [*arguments, "--curve", str(tmp_path / "curve.json")])
    assert result.exit_code == 0, result.output
    curve = json.loads((tmp_path / "curve.json").read_text())
    assert (curve["metric"], curve["least"]) == ("top1", 0.9)
    assert any(point["meets"] for point in curve["points"])
