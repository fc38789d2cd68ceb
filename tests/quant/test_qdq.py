"""``--form qdq``: DequantizeLinear in front of the node as it was."""

import numpy as np
import pytest
from tests.support.models import parse
from tests.support.quant import matmul, op_types, quantized, report_of
from tests.support.runner import run_plain

from cannc.compiler.core.errors import UsageError

RNG = np.random.default_rng(8)


def normal(*shape):
    return RNG.normal(size=shape).astype(np.float32)


@pytest.mark.parametrize("scheme", ["w8a16", "w8a16-asym", "w4a16", "w4a16-asym"])
@pytest.mark.parametrize(
    ("node", "x", "weight"),
    [
        ("y = MatMul (x, w)", (5, 12), (12, 8)),
        ("y = Gemm <transB = 1, alpha = 2.0> (x, w)", (5, 12), (8, 12)),
        ("y = Conv (x, w)", (1, 4, 6, 6), (8, 4, 3, 3)),
    ],
)
def test_same_numbers_as_the_other_forms(node, x, weight, scheme):
    dims = ", ".join(map(str, x))
    model = parse(f"m (float[{dims}] x) => (float[Q] y) {{ {node} }}", w=normal(*weight))
    unit = quantized(model, scheme=scheme, form="qdq")
    assert "DequantizeLinear" in op_types(unit)
    assert "Mul" not in op_types(unit)
    feeds = {"x": normal(*x)}
    expected = run_plain(quantized(model, scheme=scheme).model, feeds)["y"]
    np.testing.assert_allclose(run_plain(unit.model, feeds)["y"], expected, rtol=1e-5, atol=1e-5)


def test_float16_gets_a_cast():
    unit = quantized(matmul(normal(64, 32)), form="qdq")
    assert op_types(unit) == ["DequantizeLinear", "Cast", "MatMul"]
    assert {row.form for row in report_of(unit).quantized} == {"DequantizeLinear"}


def test_what_it_cannot_hold_takes_another_form_and_says_so():
    stacked = parse(
        "m (float[3, N, 8] x) => (float[3, N, 6] y) { y = MatMul (x, w) }", w=normal(3, 8, 6)
    )
    (row,) = report_of(quantized(stacked, form="qdq")).quantized
    assert (row.form, row.reason) == ("Cast+Mul", "DequantizeLinear cannot hold its scales")
    (row,) = report_of(
        quantized(matmul(normal(64, 32)), form="qdq", granularity="group:32")
    ).quantized
    assert row.granularity == "channel"
    assert "no groups" in row.reason


def test_unknown_forms():
    with pytest.raises(UsageError) as caught:
        quantized(matmul(normal(64, 32)), form="qqd")
    assert caught.value.code == "QUANT006"
