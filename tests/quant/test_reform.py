"""Cast + Mul becomes the fused kernel once the target and the dtype allow it."""

import numpy as np
import pytest
from tests.support.models import parse
from tests.support.quant import (
    NPU,
    OLD_NPU,
    constants,
    has_kernel,
    matmul,
    no_kernel,
    op_types,
    quantized,
    report_of,
    unknown_fates,
)
from tests.support.runner import run_plain

from cannc.quant.reform import fuse_quantized

RNG = np.random.default_rng(17)


def normal(*shape):
    return RNG.normal(size=shape).astype(np.float16)


def fused(unit, target=NPU):
    return fuse_quantized(unit, target=target, may_use_kernel=has_kernel)


@pytest.mark.parametrize("granularity", ["channel", "group:32"])
@pytest.mark.parametrize("scheme", ["w8a16", "w8a16-asym"])
@pytest.mark.parametrize("attributes", [None, "transB = 1, alpha = 0.5, beta = 2.0", "alpha = 2.0"])
def test_the_same_numbers_in_the_other_form(granularity, scheme, attributes):
    if attributes is None:
        model = matmul(normal(80, 16), "B, S, {k}")
        x = normal(2, 3, 80)
    else:
        model = parse(
            f"m (float16[M, 80] x) => (float16[M, 16] y) {{ y = Gemm <{attributes}> (x, w, b) }}",
            w=normal(16, 80) if "transB" in attributes else normal(80, 16),
            b=normal(16),
        )
        x = normal(6, 80)
    old = quantized(
        model, target=OLD_NPU, kernels=no_kernel, scheme=scheme, granularity=granularity
    )
    new = fused(old)
    assert op_types(old).count("Cast") == 1
    assert "WeightQuantBatchMatmulV2" in op_types(new)
    assert not {"Cast", "MatMul", "Gemm", "Gather"} & {*op_types(new)}
    assert not unknown_fates(new)
    before, after = (run_plain(unit.model, {"x": x})["y"].astype(np.float64) for unit in (old, new))
    # The old form rounds the dequantized weight to float16, the kernel does not.
    assert np.linalg.norm(after - before) < 2e-3 * np.linalg.norm(before)
    integers = [sorted(a[a != 0].tolist()) for u in (old, new) for a in byte_arrays(u)]
    assert integers[0] == integers[1]
    (row,) = report_of(new).rows
    assert row.form == "WeightQuantBatchMatmulV2"
    assert row.stored in constants(new)
    assert report_of(new).soc == NPU.soc


def byte_arrays(unit):
    return [array for array in constants(unit).values() if array.dtype == np.int8]


@pytest.mark.parametrize(("dtype", "target"), [("float", NPU), ("float16", OLD_NPU)])
def test_what_does_not_fit_stays(dtype, target):
    old = quantized(matmul(normal(64, 16), dtype=dtype), target=OLD_NPU, kernels=no_kernel)
    new = fused(old, target)
    assert op_types(new) == op_types(old)
    assert report_of(new).rows == report_of(old).rows


def test_a_weight_that_another_node_reads_stays_beside_it():
    model = parse(
        """m (float16[64, 64] x) => (float16[64, 64] y, float16[64, 64] z) {
            y = MatMul(x, w)
            z = MatMul(w, x)
        }""",
        w=normal(64, 64),
    )
    new = fused(quantized(model, kernels=no_kernel))
    assert sorted(op_types(new)) == ["Cast", "MatMul", "Mul", "WeightQuantBatchMatmulV2"]
    feeds = {"x": normal(64, 64)}
    exact, actual = run_plain(model, feeds), run_plain(new.model, feeds)
    for name, golden in exact.items():
        np.testing.assert_allclose(actual[name], golden, rtol=0.02, atol=0.4)


def test_a_weight_read_twice_is_still_stored_once():
    model = parse(
        """m (float16[M, 64] x) => (float16[M, 64] y) {
            h = MatMul(x, w)
            y = MatMul(h, w)
        }""",
        w=normal(64, 64),
    )
    new = fused(quantized(model, kernels=no_kernel))
    assert op_types(new) == ["WeightQuantBatchMatmulV2"] * 2
    assert len(byte_arrays(new)) == 1
