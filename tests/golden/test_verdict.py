import math

import numpy as np
import onnx_ir as ir
import pytest

from cannc.compiler.core.errors import UsageError
from cannc.golden.metrics import measure
from cannc.golden.verdict import Grade, Thresholds, judge


def judged(golden, candidate, grade=Grade.FLOAT32, **bounds):
    return judge(measure(np.float32(golden), np.float32(candidate)), grade, Thresholds(**bounds))


def test_direction_magnitude_and_largest_error_each_decide():
    rng = np.random.default_rng(0)
    golden = rng.standard_normal(4096).astype(np.float32)
    assert judged(golden, golden * np.float32(1.0005)).passed
    scaled = judged(golden, 1.7 * golden)
    assert not scaled.passed
    assert "relative L2 0.7" in scaled.reasons[0]
    one_off = golden.copy()
    one_off[7] += 0.05
    spike = judged(golden, one_off)
    assert [r.split()[0] for r in spike.reasons] == ["max"]
    assert not judged(golden, rng.permutation(golden)).passed


@pytest.mark.parametrize(
    ("grade", "tolerance"), [(Grade.FLOAT32, 1e-3), (Grade.FLOAT16, 1e-2), (Grade.INT8, 5e-2)]
)
def test_tolerance_follows_the_grade(grade, tolerance):
    golden = np.ones(100, np.float32)
    assert judged(golden, golden * (1 + 0.9 * tolerance), grade).passed
    beyond = judged(golden, golden * (1 + 1.1 * tolerance), grade)
    assert not beyond.passed
    assert beyond.severity == pytest.approx(1.1, rel=1e-3)


def test_grade_of_dtypes():
    assert Grade.of(ir.DataType.FLOAT) == Grade.of(ir.DataType.DOUBLE) == Grade.FLOAT32
    assert Grade.of(ir.DataType.FLOAT16) == Grade.FLOAT16
    assert Grade.of(ir.DataType.BFLOAT16) == Grade.INT8
    assert Grade.of(ir.DataType.INT8) == Grade.of(None) == Grade.FLOAT32


def test_equal_means_no_severity_and_nan_is_the_worst():
    assert judged([1, 2], [1, 2]).severity == 0.0
    broken = judged([1, 2], [1, np.nan])
    assert broken.severity == math.inf
    assert "NaN" in broken.reasons[0]


def test_integers_must_be_equal_but_one_flip_does_not_outrank_everything():
    golden = np.ones(1000, bool)
    flipped = golden.copy()
    flipped[3] = False
    found = judge(measure(golden, flipped), Grade.FLOAT16)
    assert not found.passed
    assert 1.0 < found.severity < 10.0
    assert judge(measure(golden, golden), Grade.FLOAT16).passed


def test_thresholds_replace_the_rule():
    golden, off = [1.0, 2.0], [1.0, 2.01]
    assert not judged(golden, off).passed
    assert judged(golden, off, rel_l2=0.01).passed
    assert not judged(golden, off, rel_l2=0.01, max_abs=0.005).passed
    assert not judged(golden, off, rel_l2=0.01, snr_db=60.0).passed
    assert judged(golden, off, rel_l2=0.01, snr_db=40.0).passed
    assert not judged(golden, off, rel_l2=0.01, rmse=1e-4).passed
    assert not judged(golden, off, rel_l2=0.01, max_rel=1e-3).passed
    assert not judged(golden, off, rel_l2=0.01, cosine=1.0).passed
    assert judged(golden, golden, cosine=1.0, snr_db=200.0).passed


def test_thresholds_from_texts_and_mappings():
    wanted = Thresholds(cosine=0.99, rel_l2=0.5)
    assert Thresholds.of(["cosine=0.99", "rel_l2=0.5"]) == wanted
    assert Thresholds.of({"cosine": 0.99, "rel_l2": 0.5}) == wanted
    assert Thresholds.of(wanted) is wanted
    assert Thresholds.of(None).set_bounds() == {}


@pytest.mark.parametrize("text", ["cosin=0.9", "cosine", "cosine=x", "cosine=nan"])
def test_bad_thresholds_are_refused(text):
    with pytest.raises(UsageError, match="CMP001"):
        Thresholds.of([text])


def test_near_names_are_suggested():
    with pytest.raises(UsageError, match="did you mean 'cosine'"):
        Thresholds.of({"cosin": 0.9})


def test_bounds_of_some_layers():
    bounds = Thresholds.of(
        ["rel_l2=0.1", "encoder.*:rel_l2=0.2", "encoder.*:cosine=0.9", "*.last:rel_l2=0.3"]
    )
    assert bounds.of_layer("x", "n", "decoder") == Thresholds(rel_l2=0.1)
    assert bounds.of_layer("x", "n", "encoder.0") == Thresholds(rel_l2=0.2, cosine=0.9)
    assert bounds.of_layer("x", "encoder.last", "") == Thresholds(rel_l2=0.3, cosine=0.9)
    assert Thresholds.of(bounds.set_bounds()) == bounds
    assert bounds.tolerance(Grade.INT8) == 0.1
    assert Thresholds().tolerance(Grade.INT8) == 0.05
    with pytest.raises(UsageError, match="CMP001"):
        Thresholds.of(["encoder.*:cosin=1"])
