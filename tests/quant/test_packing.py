import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from cannc.quant.packing import pack_int4, unpack_int4


@given(
    hnp.arrays(
        np.int8,
        st.tuples(st.integers(0, 5), st.integers(1, 4).map(lambda n: 8 * n)),
        elements=st.integers(-8, 7),
    )
)
def test_round_trip(levels):
    words = pack_int4(levels)
    assert words.dtype == np.int32
    assert words.shape == (levels.shape[0], levels.shape[1] // 8)
    np.testing.assert_array_equal(unpack_int4(words), levels)


def test_the_first_level_is_in_the_lowest_bits():
    levels = np.array([[1, 2, 3, 4, 5, 6, 7, -8]], np.int8)
    assert pack_int4(levels).view(np.uint32).tolist() == [[0x87654321]]


def test_columns_that_do_not_fill_a_word_are_refused():
    with pytest.raises(ValueError, match="multiple of 8"):
        pack_int4(np.zeros((2, 12), np.int8))
