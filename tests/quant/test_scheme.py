import pytest

from cannc.compiler.core.errors import UsageError
from cannc.quant.algorithms import load_algorithm
from cannc.quant.scheme import Scheme


@pytest.mark.parametrize(
    ("name", "granularity", "expected", "levels"),
    [
        ("w8a16", "channel", Scheme(8, True, None), (-127, 127)),
        ("W8A16", "channel", Scheme(8, True, None), (-127, 127)),
        ("w4a16", "group:128", Scheme(4, True, 128), (-7, 7)),
        ("w8a16-asym", "group:32", Scheme(8, False, 32), (-128, 127)),
        ("w4a16-asym", "channel", Scheme(4, False, None), (-8, 7)),
    ],
)
def test_parse(name, granularity, expected, levels):
    scheme = Scheme.parse(name, granularity)
    assert scheme == expected
    assert (scheme.low, scheme.high) == levels
    assert Scheme.parse(str(scheme), scheme.granularity) == scheme


@pytest.mark.parametrize(
    ("call", "code", "hint"),
    [
        (lambda: Scheme.parse("w8a61"), "QUANT001", "did you mean 'w8a16'?"),
        (lambda: Scheme.parse("int3"), "QUANT001", "w4a16"),
        (lambda: Scheme.parse("w8a16", "chanel"), "QUANT002", "did you mean 'channel'?"),
        (lambda: Scheme.parse("w8a16", "group:48"), "QUANT002", "group:32"),
        (lambda: Scheme.parse("w8a16", "group:-32"), "QUANT002", "group:32"),
        (lambda: load_algorithm("minmx"), "QUANT003", "did you mean 'minmax'?"),
    ],
)
def test_wrong_names_give_the_nearest_one(call, code, hint):
    with pytest.raises(UsageError) as caught:
        call()
    assert caught.value.code == code
    assert hint in str(caught.value)
