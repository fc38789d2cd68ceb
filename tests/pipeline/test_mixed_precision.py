"""--precision mixed: what fails in half on the calibration inputs stays float32, nothing else."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir
import pytest
from tests.support.models import parse, save

import cannc
from cannc.compiler.backends.atc.handover import prepare
from cannc.compiler.cli.main import main
from cannc.compiler.core.errors import GoldenMismatchError
from cannc.compiler.core.target import Target
from cannc.compiler.core.unit import load
from cannc.compiler.mixing import ERROR, NEEDED, OVERFLOW, STAGE, find_mix
from cannc.compiler.runtime.host_runner import HostRunner
from cannc.compiler.runtime.host_session import HostSession
from cannc.golden.sources import Samples
from cannc.golden.verdict import Thresholds
from cannc.passes.optimize import to_float16

RANDOM = np.random.default_rng(0)
W = RANDOM.standard_normal((32, 32)).astype(np.float32) / 6
X = RANDOM.standard_normal((4, 32)).astype(np.float32)

# The square passes 65504 where |a| > 0.86; the root brings it back.
OVERFLOWING = """g (float[4, 32] x) => (float[4, 32] y) <float half = {0.5}, float k = {300.0}> {
    a = MatMul(x, w) b = Mul(a, k) c = Mul(b, b) d = Pow(c, half) e = Div(d, k)
    y = MatMul(e, v) }"""

# Two large numbers whose difference is small: half keeps nothing of it.
CANCELLING = """g (float[4, 32] x) => (float[4, 32] y) <float big = {4096.0}> {
    a = MatMul(x, w) b = Add(a, big) c = Sub(b, big) y = MatMul(c, v) }"""

HARMLESS = """g (float[4, 32] x) => (float[4, 32] y) {
    a = MatMul(x, w) b = Tanh(a) y = MatMul(b, v) }"""

FAILING = {
    "overflow": (OVERFLOWING, {"c", "d"}, OVERFLOW),
    "cancellation": (CANCELLING, {"b", "c"}, ERROR),
}


def model(text):
    return parse(text, w=W, v=W.T.copy())


def optimized(text, precision, x=X):
    # O0, so that cleanup does not take the planted fault away.
    return cannc.optimize(model(text), "O0", precision=precision, inputs={"x": x})


def single(unit):
    """Return the values that are computed in float32, casts aside."""
    nodes = [n for n in unit.model.graph if n.op_type != "Cast"]
    return {n.outputs[0].name for n in nodes if n.outputs[0].dtype == ir.DataType.FLOAT}


def numpy_result(text, x):
    a = x.astype(np.float64) @ W
    hidden = {OVERFLOWING: np.abs(a), CANCELLING: a, HARMLESS: np.tanh(a)}[text]
    return hidden @ W.T.astype(np.float64)


def error(unit, text, x=X):
    got = HostSession(unit.model).run({"x": x})["y"].astype(np.float64)
    want = numpy_result(text, x)
    return np.linalg.norm(got - want) / np.linalg.norm(want)


@pytest.mark.parametrize(("text", "kept", "reason"), FAILING.values(), ids=FAILING)
def test_only_what_fails_in_half_stays_float32(text, kept, reason):
    whole = optimized(text, "fp16")
    assert not error(whole, text) < 0.1
    unit = optimized(text, "mixed")
    assert error(unit, text) < 2e-3
    assert kept <= single(unit)
    assert not single(unit) & {"a", "e", "y"}
    assert any(reason in note for stage in unit.log for note in stage.notes)
    (stage,) = [stage for stage in unit.log if stage.name == STAGE]
    assert stage.applied >= len(stage.notes) - 1 > 0
    assert "given by the caller" in stage.notes[0]


def test_nothing_stays_float32_where_half_does():
    unit = optimized(HARMLESS, "mixed")
    assert single(unit) == set()
    assert unit.log[-1].notes == ("0 of 5 nodes stay float32; calibrated on given by the caller",)


def mix(text, rel_l2, obedient=True):
    def half(unit, keep):
        keep = keep if obedient else {}
        return to_float16(unit, keep, runner=HostRunner(), may_use_kernel=lambda op, dtype: None)

    samples = Samples([{"x": X}], "a test")
    return find_mix(load(model(text)), half, samples, Thresholds(rel_l2=rel_l2, max_abs=1.0))


def test_the_fewest_that_an_output_needs():
    # Between what half does to one MatMul and to all nodes together.
    whole = error(optimized(HARMLESS, "fp16"), HARMLESS)
    found = mix(HARMLESS, whole * 0.9)
    assert 0 < len(found.kept) < 3
    assert set(found.kept.values()) <= {NEEDED, ERROR}


def test_bounds_that_no_choice_meets():
    with pytest.raises(GoldenMismatchError, match="no choice of float32 nodes") as caught:
        mix(HARMLESS, 1e-12, obedient=False)
    assert caught.value.code == "OPT005"


def test_the_inputs_decide():
    unit = optimized(OVERFLOWING, "mixed", X * np.float32(1e-2))
    assert single(unit) == set()


def test_original_values_keep_their_fate():
    unit = optimized(CANCELLING, "mixed")
    assert {fate.value: fate.kind for fate in unit.fates()} == dict.fromkeys("abcy", "same")
    assert cannc.compare(model(CANCELLING), unit, inputs={"x": X}).verdict == "pass"


def test_atc_is_told_what_keeps_its_dtype(tmp_path):
    path, inputs, out = (tmp_path / name for name in ("m.onnx", "in.npz", "out.onnx"))
    save(model(OVERFLOWING), path)
    np.savez(inputs, x=X)
    command = ["optimize", path, "-o", out, "-O0", "--precision", "mixed", "--inputs", inputs]
    assert main([str(part) for part in command]) == 0
    unit = load(out)
    kept = {n.name for n in unit.model.graph if n.outputs[0].name in ("c", "d")}
    assert kept <= set(prepare(unit.model, Target()).float32_nodes)
