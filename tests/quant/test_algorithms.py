"""Each algorithm beats the one before on the data that it is made for."""

import numpy as np
import pytest
from tests.support.calibration import calibration_of
from tests.support.models import parse
from tests.support.quant import quantized, report_of
from tests.support.runner import PlainRunner, run_plain

from cannc.compiler.core.errors import UsageError
from cannc.quant.algorithms import load_algorithm
from cannc.quant.algorithms.gptq import Gptq
from cannc.quant.scales import decode, encode
from cannc.quant.scheme import Scheme
from cannc.quant.statistics import Moments

K, N = 96, 64
NORM = """m (float[B, 96] x) => (float[B, 64] y) {
    h = LayerNormalization <axis = -1> (x, gamma, beta)
    y = MatMul (h, w)
}"""


def layer(seed=0):
    """A layer with a few loud activation channels and heavy-tailed weights, as LLMs have them."""
    rng = np.random.default_rng(seed)
    gamma = np.exp(rng.normal(size=K)).astype(np.float32)
    gamma[[3, 40]] = 30
    weight = rng.standard_t(4, size=(K, N)).astype(np.float32) * 0.1
    model = parse(NORM, gamma=gamma, beta=np.zeros(K, np.float32), w=weight)
    mixing = rng.normal(size=(24, K)).astype(np.float32)
    inputs = [{"x": (rng.normal(size=(32, 24)) @ mixing).astype(np.float32)} for _ in range(12)]
    return model, inputs[:8], inputs[8:]


def output_error(algo, scheme="w4a16", **options):
    """Relative error on inputs that calibration has not seen."""
    model, seen, unseen = layer()
    if algo != "minmax":
        options |= {"calibration": calibration_of(model, seen), "runner": PlainRunner()}
    unit = quantized(model, scheme=scheme, algo=algo, **options)
    error = norm = 0.0
    for feeds in unseen:
        golden = run_plain(model, feeds)["y"].astype(np.float64)
        error += np.square(run_plain(unit.model, feeds)["y"] - golden).sum()
        norm += np.square(golden).sum()
    return np.sqrt(error / norm), unit


def test_each_beats_the_one_before():
    minmax, mse, awq, gptq = (output_error(a)[0] for a in ("minmax", "mse", "awq", "gptq"))
    assert mse < 0.9 * minmax
    assert awq < 0.8 * mse
    assert gptq < 0.8 * mse


@pytest.mark.parametrize("algo", ["awq", "gptq"])
@pytest.mark.parametrize("options", [{"granularity": "group:32"}, {"scheme": "w4a16-asym"}])
def test_groups_and_offsets_too(algo, options):
    assert output_error(algo, **options)[0] < 0.9 * output_error("minmax", **options)[0]


def test_activations_decide_which_weights_count():
    model, seen, _ = layer()
    blind = quantized(model, scheme="w4a16", algo="mse")
    data = calibration_of(model, seen)
    seeing = quantized(model, scheme="w4a16", algo="mse", calibration=data, runner=PlainRunner())
    assert report_of(seeing).rows[0].error > report_of(blind).rows[0].error
    assert output_error("mse")[0] < 0.95 * output_error("minmax")[0]


@pytest.mark.parametrize("algo", ["mse", "awq", "gptq"])
def test_report_tells_the_error_of_the_output(algo):
    measured, unit = output_error(algo)
    (row,) = report_of(unit).quantized
    assert row.output_error == pytest.approx(measured, rel=0.4)


@pytest.mark.parametrize("algo", ["awq", "gptq"])
def test_without_data_they_are_refused(algo):
    with pytest.raises(UsageError) as caught:
        quantized(layer()[0], algo=algo)
    assert caught.value.code == "QUANT005"


def moments(x):
    gram = x.T @ x / np.float32(len(x))
    return Moments(np.square(x).mean(axis=0), np.abs(x).mean(axis=0), x, gram)


def gptq_error(x, weight, scheme):
    params = Gptq().solve(weight, scheme, np.float32, moments(x))
    return np.linalg.norm(x @ (decode(encode(weight, params, scheme), params) - weight)), params


@pytest.mark.parametrize("k", [40, 300])
def test_gptq_with_independent_inputs_is_plain_rounding(k):
    x = (np.eye(k) * np.sqrt(k)).astype(np.float32)
    weight = np.random.default_rng(1).normal(size=(k, 16)).astype(np.float32)
    _, params = gptq_error(x, weight, Scheme(4))
    plain = load_algorithm("mse").solve(weight, Scheme(4), np.float32, moments(x))
    np.testing.assert_array_equal(params.levels, encode(weight, plain, Scheme(4)))


def test_gptq_with_equal_inputs_makes_up_for_every_error_but_the_last():
    """Only the sum of the weights counts then, and it can be met to half a step."""
    k = 256
    x = np.ones((4, k), np.float32)
    weight = np.random.default_rng(2).normal(size=(k, 8)).astype(np.float32)
    _, params = gptq_error(x, weight, Scheme(4))
    total = decode(params.levels, params).sum(axis=0) - weight.sum(axis=0)
    assert (np.abs(total) < 1.5 * params.scale[0]).all()


def test_gptq_with_silent_inputs_keeps_their_weights():
    x = np.random.default_rng(3).normal(size=(64, 32)).astype(np.float32)
    x[:, 5] = 0
    weight = np.random.default_rng(4).normal(size=(32, 8)).astype(np.float32)
    _, params = gptq_error(x, weight, Scheme(8))
    decoded = decode(params.levels, params)
    assert np.abs(decoded[5] - weight[5]).max() <= 0.51 * params.scale.max()


def test_little_memory_gives_the_same_result():
    _, roomy = output_error("gptq")
    _, tight = output_error("gptq", max_memory=1)
    assert report_of(roomy).rows == report_of(tight).rows
