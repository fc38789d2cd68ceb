"""Feeding by the rules of D4."""

import logging

import ml_dtypes
import numpy as np
import onnx_ir as ir
import pytest

from cannc.compiler.core.errors import UsageError
from cannc.compiler.runtime.feeding import prepare_feeds
from cannc.compiler.runtime.ports import Port


def port(dtype: str, shape=(2,), name: str = "x", kind=ir.TensorType) -> Port:
    return Port(name, kind(ir.DataType[dtype]), shape)


def feed(value, wanted: Port, **options):
    return prepare_feeds([wanted], {wanted.name: value}, **options)[wanted.name]


@pytest.mark.parametrize(
    ("given", "wanted"),
    [
        ("float64", "FLOAT"),
        ("float64", "FLOAT16"),
        ("float32", "FLOAT16"),
        ("float32", "BFLOAT16"),
        ("int64", "INT32"),
        ("int32", "INT64"),
    ],
)
def test_allowed_casts(given, wanted, caplog):
    caplog.set_level(logging.INFO)
    noted: set[str] = set()
    for _ in range(2):
        result = feed(np.array([1, -2], given), port(wanted), noted=noted)
        assert result.dtype == ir.DataType[wanted].numpy()
        assert result.astype(np.float64).tolist() == [1, -2]
    assert [r.getMessage() for r in caplog.records] == [
        f"input x: {given} cast to {np.dtype(ir.DataType[wanted].numpy()).name}"
    ]


@pytest.mark.parametrize(
    ("given", "wanted"),
    [
        ("int64", "FLOAT"),
        ("float32", "INT64"),
        ("bool", "INT64"),
        ("int64", "BOOL"),
        ("float16", "FLOAT"),
        ("float32", "DOUBLE"),
        ("int8", "INT32"),
        ("uint8", "INT8"),
        ("int64", "UINT8"),
        ("complex64", "FLOAT"),
    ],
)
def test_other_casts_are_refused(given, wanted):
    with pytest.raises(UsageError) as error:
        feed(np.array([0, 1], given), port(wanted))
    assert error.value.code == "INP003"
    assert f"given {given}[2]" in str(error.value)
    assert "expected" in str(error.value)


@pytest.mark.parametrize(
    ("value", "wanted"),
    [
        (np.array([1.0, 7e4]), "FLOAT16"),
        (np.array([1.0, 1e39]), "FLOAT"),
        (np.array([1, 2**31]), "INT32"),
        (np.array([1, -(2**31) - 1]), "INT32"),
    ],
)
def test_values_out_of_range_are_refused(value, wanted):
    with pytest.raises(UsageError, match=r"index \[1\]") as error:
        feed(value, port(wanted))
    assert error.value.code == "INP005"


def test_infinity_itself_may_be_fed():
    assert np.isinf(feed(np.array([np.inf, -np.inf]), port("FLOAT16"))).all()


@pytest.mark.parametrize("dtype", [np.float64, np.float32, np.float16, ml_dtypes.bfloat16])
def test_nan(dtype):
    wanted = port("BFLOAT16" if dtype is ml_dtypes.bfloat16 else "FLOAT16")
    if dtype is np.float64:
        wanted = port("FLOAT")
    value = np.array([0, np.nan]).astype(dtype)
    with pytest.raises(UsageError, match=r"NaN at index \[1\]") as error:
        feed(value, wanted)
    assert error.value.code == "INP006"
    assert np.isnan(feed(value, wanted, allow_nan=True).astype(np.float32)[1])


def test_missing_and_unknown_names():
    ports = [port("FLOAT"), port("INT64", name="ids")]
    with pytest.raises(UsageError, match="'ids' is missing") as error:
        prepare_feeds(ports, {"x": np.zeros(2, "f")})
    assert error.value.code == "INP001"
    assert "x float[2], ids int64[2]" in error.value.fix
    with pytest.raises(UsageError, match="no input 'idz', did you mean 'ids'") as error:
        prepare_feeds(ports, {"x": np.zeros(2, "f"), "idz": np.zeros(2, np.int64)})
    assert error.value.code == "INP002"


@pytest.mark.parametrize("shape", [(2, 1), (3,), ()])
def test_wrong_shapes(shape):
    with pytest.raises(UsageError) as error:
        feed(np.zeros(shape, "f"), port("FLOAT"))
    assert error.value.code == "INP004"


def test_dynamic_dims_must_agree_over_all_inputs():
    ports = [port("FLOAT", ("N", 2)), port("FLOAT", ("N", None), name="mask")]
    zeros = np.zeros
    prepare_feeds(ports, {"x": zeros((3, 2), "f"), "mask": zeros((3, 9), "f")})
    with pytest.raises(UsageError, match="contradicts") as error:
        prepare_feeds(ports, {"x": zeros((3, 2), "f"), "mask": zeros((4, 9), "f")})
    assert "'N' is 3 in input 'x' and 4 here" in error.value.why


def test_layout_and_byte_order_are_made_plain():
    value = np.arange(6, dtype=">f4").reshape(2, 3).T
    result = feed(value, port("FLOAT", (3, 2)))
    assert result.flags.c_contiguous
    assert result.dtype == np.dtype("=f4")
    np.testing.assert_array_equal(result, value)


def test_scalars_keep_rank_zero():
    assert feed(np.float32(3), port("FLOAT", ())).shape == ()


def test_sequences_need_lists_and_every_item_is_checked():
    wanted = Port("x", ir.SequenceType(ir.TensorType(ir.DataType.FLOAT)), None)
    assert [a.dtype for a in feed([np.zeros(2), np.zeros(3, "f")], wanted)] == [np.float32] * 2
    with pytest.raises(UsageError, match="a list is expected"):
        feed(np.zeros(2, "f"), wanted)
    with pytest.raises(UsageError, match="wrong dtype"):
        feed([np.zeros(2, np.int64)], wanted)


def test_none_is_only_for_optionals():
    wanted = Port("x", ir.OptionalType(ir.TensorType(ir.DataType.FLOAT)), None)
    assert feed(None, wanted) is None
    assert prepare_feeds([wanted], {}) == {"x": None}
    with pytest.raises(UsageError, match="an array is expected"):
        feed(None, port("FLOAT"))


def test_strings():
    assert feed(["a", "b"], port("STRING")).tolist() == ["a", "b"]
    with pytest.raises(UsageError, match="strings are expected"):
        feed([1, 2], port("STRING"))
    with pytest.raises(UsageError):
        feed(np.array(["1", "2"]), port("FLOAT"))
