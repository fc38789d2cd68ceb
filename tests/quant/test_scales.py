"""Scales are never zero, cover the weights, and are rounded before levels are chosen."""

import ml_dtypes
import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from cannc.quant.algorithms import load_algorithm
from cannc.quant.algorithms.minmax import MinMax
from cannc.quant.algorithms.mse import ClipSearch
from cannc.quant.scales import closeness, decode, encode, squared_error
from cannc.quant.scheme import Scheme

SCHEMES = [Scheme(bits, symmetric) for bits in (8, 4) for symmetric in (True, False)]
DTYPES = [np.float16, np.float32, ml_dtypes.bfloat16]


def matrices(limit):
    return hnp.arrays(
        np.float32,
        st.tuples(st.integers(1, 70), st.integers(1, 6)),
        elements=st.floats(-limit, limit, width=32),
    )


def closeness_of(matrix, params, scheme):
    return closeness(matrix, params, scheme, np.abs(matrix).max(axis=0))


@example(np.array([[-5990], [5828]], np.float32), Scheme(8, False), ml_dtypes.bfloat16, None)
@settings(max_examples=60, deadline=None)
@given(
    matrix=matrices(float(2**13)),
    scheme=st.sampled_from(SCHEMES),
    dtype=st.sampled_from(DTYPES),
    group=st.sampled_from([None, 32]),
)
def test_every_weight_is_within_half_a_step(matrix, scheme, dtype, group):
    scheme = Scheme(scheme.bits, scheme.symmetric, group)
    params = MinMax().solve(matrix, scheme, dtype)
    assert params.scale.dtype == dtype
    assert (params.scale.astype(np.float64) > 0).all()
    levels = encode(matrix, params, scheme)
    assert levels.min() >= scheme.low
    assert levels.max() <= scheme.high
    step = np.repeat(params.scale.astype(np.float64), group or len(matrix), axis=0)[: len(matrix)]
    # Rounding the scale to bfloat16 moves the end of the range by up to half a step more.
    slack = 1.01 if dtype is ml_dtypes.bfloat16 else 0.57
    assert (np.abs(decode(levels, params) - matrix) <= slack * step * 1.0001).all()


@pytest.mark.parametrize("scheme", SCHEMES, ids=str)
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("algo", ["minmax", "mse"])
def test_zero_columns_give_exact_zeros(scheme, dtype, algo):
    matrix = np.random.default_rng(0).normal(size=(16, 4)).astype(np.float32)
    matrix[:, 1] = 0
    params = load_algorithm(algo).solve(matrix, scheme, dtype)
    assert (params.scale != 0).all()
    assert (decode(encode(matrix, params, scheme), params)[:, 1] == 0).all()


@pytest.mark.parametrize("value", [0.3, -0.3, 1e-38, 1e-45, -1e-45, 1e30])
def test_constant_columns_are_kept(value):
    matrix = np.full((8, 2), value, np.float32)
    params = MinMax().solve(matrix, Scheme(), np.float32)
    np.testing.assert_allclose(decode(encode(matrix, params, Scheme()), params), matrix, rtol=1e-4)


def test_weights_below_float16s_steps_are_not_clipped():
    matrix = np.array([[1e-5], [7e-6], [-4e-6]], np.float32)
    params = MinMax().solve(matrix, Scheme(), np.float16)
    step = float(params.scale[0, 0])
    assert 127.5 * step >= 1e-5
    assert np.abs(decode(encode(matrix, params, Scheme()), params) - matrix).max() <= 0.5 * step


@pytest.mark.parametrize(("dtype", "gain"), [(np.float16, 1.0), (ml_dtypes.bfloat16, 0.9)])
def test_levels_are_chosen_against_the_rounded_scale(dtype, gain):
    """Levels for the exact scale, read with the rounded one, are further off."""
    matrix = np.random.default_rng(1).uniform(-1.003, 1.003, (4096, 8)).astype(np.float32)
    held, exact = (MinMax().solve(matrix, Scheme(), kind) for kind in (dtype, np.float32))
    right = decode(encode(matrix, held, Scheme()), held) - matrix
    naive = decode(encode(matrix, exact, Scheme()), held) - matrix
    assert np.square(right).sum() < gain * np.square(naive).sum()


def test_a_single_large_weight_shows_in_its_column():
    matrix = np.random.default_rng(2).normal(size=(64, 8)).astype(np.float32)
    matrix[5, 3] = 200
    error = closeness_of(matrix, MinMax().solve(matrix, Scheme(), np.float32), Scheme())
    assert error.worst_column == 3
    assert error.worst_error > 0.4
    assert error.relative < 0.05


def test_an_exact_weight_has_no_error():
    matrix = np.array([[127, 0], [-64, 0], [3, 0]], np.float32)
    error = closeness_of(matrix, MinMax().solve(matrix, Scheme(), np.float32), Scheme())
    assert (error.relative, error.worst_error) == (0, 0)


@pytest.mark.parametrize("bits", [8, 4])
def test_clip_search_beats_minmax_on_heavy_tails(bits):
    matrix = np.random.default_rng(3).standard_t(4, size=(4096, 8)).astype(np.float32)
    scheme = Scheme(bits)
    plain, best = (
        squared_error(matrix, algorithm.solve(matrix, scheme, np.float16), scheme)
        for algorithm in (MinMax(), ClipSearch())
    )
    assert (best <= plain).all()
    assert best.sum() < (0.99 if bits == 8 else 0.6) * plain.sum()


@settings(max_examples=20, deadline=None)
@given(matrix=matrices(1e3), scheme=st.sampled_from(SCHEMES))
def test_clip_search_is_never_worse(matrix, scheme):
    plain, best = (
        squared_error(matrix, algorithm.solve(matrix, scheme, np.float16), scheme)
        for algorithm in (MinMax(), ClipSearch())
    )
    assert (best <= plain).all()


def test_reported_error_is_that_of_the_decoded_weight():
    matrix = np.random.default_rng(4).normal(size=(300, 5)).astype(np.float32)
    scheme = Scheme(4, False, 64)
    params = MinMax().solve(matrix, scheme, np.float16)
    difference = decode(encode(matrix, params, scheme), params) - matrix
    expected = np.linalg.norm(difference) / np.linalg.norm(matrix)
    assert closeness_of(matrix, params, scheme).relative == pytest.approx(expected, rel=1e-6)
    assert squared_error(matrix, params, scheme).sum() == pytest.approx(
        np.square(difference, dtype=np.float64).sum()
    )
