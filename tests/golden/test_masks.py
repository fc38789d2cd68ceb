import ml_dtypes
import numpy as np
import pytest

from cannc.golden.masks import agreeing_masks, narrowed

LOWEST = np.finfo(np.float32).min


def test_masks_are_clipped_and_overflows_are_not():
    golden = np.float32([LOWEST, -1e9, 81985.0, -81985.0, 1e9, 1.0])
    half = narrowed(golden, np.dtype(np.float16))
    assert half.dtype == np.float16
    assert half.tolist() == [-65504.0, -65504.0, np.inf, -np.inf, np.inf, 1.0]
    brain = narrowed(golden, np.dtype(ml_dtypes.bfloat16))
    assert brain.dtype == ml_dtypes.bfloat16
    assert np.isfinite(brain.astype(np.float32)).all()


@pytest.mark.parametrize("dtype", [np.float32, np.int64, np.bool_])
def test_other_casts_are_plain(dtype):
    array = np.float32([0.0, 1.0])
    assert narrowed(array, np.dtype(dtype)).tolist() == [0, 1]


def test_infinities_of_golden_stay():
    half = narrowed(np.float32([-np.inf, np.nan]), np.dtype(np.float16))
    assert np.isneginf(half[0])
    assert np.isnan(half[1])


def test_nothing_is_masked_among_ordinary_numbers():
    numbers = np.linspace(-1e5, 1e5, 11)
    assert agreeing_masks(numbers, numbers, half=True) is None
    assert agreeing_masks(numbers, numbers, half=False) is None


def test_where_masks_agree():
    golden = np.float64([LOWEST, LOWEST, 1.0, np.nan])
    candidate = np.float64([-65504.0, 5.0, 1.0, np.nan])
    found = agreeing_masks(golden, candidate, half=True)
    assert found is not None
    assert found.tolist() == [True, False, False, False]
    assert agreeing_masks(golden, candidate, half=False) is None
