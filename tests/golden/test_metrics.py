import math

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import array_shapes, arrays

from cannc.golden import metrics
from cannc.golden.metrics import NonFinite, is_exact, measure

RELAXED = settings(deadline=None, max_examples=60)
SIZE = st.floats(-1e6, 1e6, width=32, allow_subnormal=False).map(
    lambda x: x if abs(x) > 1e-6 else 0.0
)


@st.composite
def pairs(draw):
    shape = draw(array_shapes(min_dims=0, max_dims=3, max_side=5))
    tensor = arrays(np.float32, shape, elements=SIZE)
    return draw(tensor), draw(tensor)


@RELAXED
@given(pairs())
def test_agrees_with_the_formulas(pair):
    golden, candidate = pair
    found = measure(golden, candidate)
    g, c = golden.astype(np.float64).ravel(), candidate.astype(np.float64).ravel()
    d = c - g
    assert found.max_abs == np.abs(d).max()
    assert found.rmse == pytest.approx(np.sqrt((d**2).mean()))
    if g.any():
        assert found.rel_l2 == pytest.approx(np.linalg.norm(d) / np.linalg.norm(g))
        assert found.max_rel == pytest.approx(np.abs(d[g != 0] / g[g != 0]).max())
    if g.any() and c.any():
        expected = g @ c / (np.linalg.norm(g) * np.linalg.norm(c))
        assert found.cosine == pytest.approx(expected, abs=1e-9)


@RELAXED
@given(pairs())
def test_symmetric_figures(pair):
    golden, candidate = pair
    one, other = measure(golden, candidate), measure(candidate, golden)
    assert one.cosine == other.cosine
    assert one.max_abs == other.max_abs
    assert one.rmse == other.rmse
    assert one.mismatches == other.mismatches


@RELAXED
@given(pairs(), st.integers(-20, 20))
def test_scaling_both_sides_keeps_relative_figures(pair, power):
    golden, candidate = pair
    scale = np.float32(2.0**power)
    plain, scaled = measure(golden, candidate), measure(golden * scale, candidate * scale)
    assert scaled.cosine == pytest.approx(plain.cosine)
    assert scaled.rel_l2 == pytest.approx(plain.rel_l2)
    assert scaled.max_abs == pytest.approx(plain.max_abs * float(scale))


@RELAXED
@given(arrays(np.float32, array_shapes(min_dims=0, max_dims=3), elements=st.floats(width=32)))
def test_a_tensor_equals_itself_whatever_it_holds(tensor):
    found = measure(tensor, tensor.copy())
    assert (found.cosine, found.max_abs, found.rel_l2, found.rmse) == (1.0, 0.0, 0.0, 0.0)
    assert found.snr_db == math.inf
    assert found.disagreements == found.mismatches == 0


@RELAXED
@given(pairs(), st.data())
def test_a_nan_is_counted_and_does_not_hide_the_rest(pair, data):
    golden, candidate = pair
    where = tuple(data.draw(st.integers(0, n - 1)) for n in golden.shape)
    broken = candidate.copy()
    broken[where] = np.nan
    found = measure(golden, broken)
    assert found.candidate == NonFinite(nan=1, first=where)
    assert found.disagreements == 1
    rest_g, rest_c = golden.copy(), candidate.copy()
    rest_g[where] = rest_c[where] = 0
    assert found.max_abs == measure(rest_g, rest_c).max_abs
    assert not math.isnan(found.cosine + found.rel_l2 + found.rmse)


def test_zero_against_zero_and_against_something():
    zero, one = np.zeros(3, np.float32), np.full(3, 1e-9, np.float32)
    assert measure(zero, zero).cosine == 1.0
    assert measure(zero, zero).rel_l2 == 0.0
    for found in (measure(zero, one), measure(one, zero)):
        assert found.cosine == 0.0
    assert measure(zero, one).rel_l2 == math.inf
    assert measure(zero, one).snr_db == -math.inf
    assert measure(one, zero).rel_l2 == 1.0


def test_empty_and_scalar():
    empty = measure(np.zeros((0, 4), np.float32), np.zeros((0, 4), np.float16))
    assert (empty.elements, empty.cosine, empty.rel_l2) == (0, 1.0, 0.0)
    scalar = measure(np.float32(2.0), np.float32(3.0))
    assert (scalar.max_abs, scalar.worst_at, scalar.rel_l2) == (1.0, (), 0.5)


def test_opposite_signs_and_constants():
    five = np.full((2, 2), 5.0, np.float32)
    assert measure(five, -five).cosine == -1.0
    assert measure(five, 2 * five).cosine == pytest.approx(1.0)
    assert measure(five, 2 * five).rel_l2 == 1.0


@pytest.mark.parametrize(
    ("golden", "candidate", "mismatches", "max_abs"),
    [
        (np.uint8([250]), np.uint8([5]), 1, 245),
        (np.int8([-128]), np.int8([127]), 1, 255),
        (np.int64([1, 2**31 - 1]), np.int32([1, 2**31 - 1]), 0, 0),
        (np.int64([-1]), np.uint64([2**64 - 1]), 1, 2.0**64),
        (np.bool_([True, False]), np.bool_([True, True]), 1, 1),
        (np.int64([2**60 + 1]), np.int64([2**60]), 1, 0),
    ],
)
def test_integers_are_widened_and_compared_exactly(golden, candidate, mismatches, max_abs):
    found = measure(golden, candidate)
    assert found.exact
    assert (found.mismatches, found.max_abs) == (mismatches, max_abs)


def test_strings():
    found = measure(np.array(["a", "b"], object), np.array(["a", "c"], object))
    assert (found.exact, found.mismatches, found.worst_at) == (True, 1, (1,))


@pytest.mark.parametrize("dtype", [np.float16, ml_dtypes.bfloat16, np.float64])
def test_any_float_dtype(dtype):
    golden = np.float32([1.0, 2.0, 4.0])
    found = measure(golden, golden.astype(dtype))
    assert (found.exact, found.max_abs) == (False, 0.0)


def test_exactness_by_dtype():
    exact = (np.bool_, np.int64, np.uint8, ml_dtypes.int4)
    assert all(is_exact(np.dtype(d)) for d in exact)
    floats = (np.float16, np.float32, ml_dtypes.bfloat16, ml_dtypes.float8_e4m3fn)
    assert not any(is_exact(np.dtype(d)) for d in floats)


def test_infinities_agree_only_with_the_same_sign():
    both = measure(np.float32([np.inf, 1]), np.float32([np.inf, 1]))
    assert (both.disagreements, both.golden, both.candidate.inf) == (0, NonFinite(0, 1, (0,)), 1)
    assert measure(np.float32([np.inf]), np.float32([-np.inf])).disagreements == 1
    over = measure(np.float32([81985.0, 1]), np.float32([np.inf, 1]))
    assert (over.overflows, over.disagreements, over.max_abs) == (1, 1, 0.0)


def test_underflow_counts():
    found = measure(np.float32([1e-9, 1.0, 0.0]), np.float32([0.0, 1.0, 0.0]))
    assert found.underflows == 1


@pytest.mark.parametrize("held", [-65504.0, -1e4, -np.inf])
@pytest.mark.parametrize("constant", [-3.4028235e38, -1e9])
def test_clipped_mask_constants_are_equal_in_half_precision_only(constant, held):
    golden, clipped = np.float32([constant, 1.0, 2.0]), np.float32([held, 1.0, 2.5])
    half = measure(golden, clipped, half=True)
    assert (half.masked, half.max_abs, half.golden_max) == (1, 0.5, 2.0)
    assert half.disagreements == half.overflows == 0
    assert measure(golden, clipped).masked == 0
    assert measure(golden, -clipped, half=True).masked == 0


@pytest.mark.parametrize(
    ("golden", "candidate"), [(81985.0, 65504.0), (-81985.0, -np.inf), (1e9, np.inf)]
)
def test_a_real_overflow_is_not_a_mask(golden, candidate):
    found = measure(np.float32([golden]), np.float32([candidate]), half=True)
    assert found.masked == 0
    assert found.max_abs > 0 or found.disagreements == 1


def test_equal_mask_constants_do_not_drown_the_rest():
    golden = np.float32([-3.4028235e38, 1.0])
    assert measure(golden, np.float32([-3.4028235e38, 2.0])).rel_l2 == 1.0


def test_squares_beyond_float64():
    huge, tiny = np.float64([1e200, 0]), np.float64([1e-200, 0])
    assert measure(huge, 2 * huge).rel_l2 == pytest.approx(1.0)
    assert measure(tiny, 2 * tiny).cosine == pytest.approx(1.0)
    assert measure(tiny, 0 * tiny).cosine == 0.0


def test_blocks_do_not_show(monkeypatch):
    rng = np.random.default_rng(0)
    golden = rng.standard_normal((7, 11)).astype(np.float32)
    candidate = golden + np.float32(0.01) * rng.standard_normal((7, 11)).astype(np.float32)
    candidate[3, 4] = np.nan
    candidate[5, 1] += 9
    whole = measure(golden, candidate)
    monkeypatch.setattr(metrics, "_BLOCK_ELEMENTS", 5)
    blocks = measure(golden, candidate)
    assert blocks.worst_at == whole.worst_at == (5, 1)
    assert blocks.candidate.first == (3, 4)
    for name in ("cosine", "rmse", "rel_l2", "max_rel", "snr_db"):
        assert getattr(blocks, name) == pytest.approx(getattr(whole, name))


def test_transposed_views_are_fine():
    golden = np.arange(12, dtype=np.float32).reshape(3, 4)
    found = measure(golden.T, np.ascontiguousarray(golden.T))
    assert found.max_abs == 0.0


def test_shapes_must_agree():
    with pytest.raises(ValueError, match="shapes differ"):
        measure(np.zeros(3), np.zeros((3, 1)))
