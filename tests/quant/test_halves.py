"""Blocks of every half-precision number become the same float32 that numpy makes of them."""

import ml_dtypes
import numpy as np
import pytest

from cannc.quant.halves import to_float32

EVERY = np.arange(1 << 16, dtype=np.uint16)
FINITE = EVERY[(EVERY & 0x7C00) != 0x7C00]


@pytest.mark.parametrize("bits", [EVERY, FINITE, FINITE[::3], FINITE.reshape(2, -1).T])
def test_float16(bits):
    block = bits.view(np.float16)
    found = to_float32(block)
    assert found.dtype == np.float32
    np.testing.assert_array_equal(found, block.astype(np.float32))
    np.testing.assert_array_equal(np.signbit(found), np.signbit(block))


def test_bfloat16():
    block = EVERY.view(ml_dtypes.bfloat16)
    np.testing.assert_array_equal(to_float32(block).view(np.uint32), EVERY.astype(np.uint32) << 16)


def test_float32_is_not_copied():
    block = np.ones((3, 4), np.float32)
    assert np.shares_memory(to_float32(block), block)
