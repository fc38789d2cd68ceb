"""The whole: sharing, what stays, report, idempotence, provenance, bytes on disk."""

import json

import numpy as np
import onnx
import onnx_ir as ir
import pytest
from tests.support.models import mlp, parse
from tests.support.quant import (
    NPU,
    constants,
    has_kernel,
    matmul,
    no_kernel,
    op_types,
    plain_levels,
    quantized,
    report_of,
)
from tests.support.runner import run_plain

from cannc.compiler.core.errors import ModelError, UsageError
from cannc.compiler.core.tensors import cast_to
from cannc.compiler.core.unit import load
from cannc.quant.report import HEADER, QuantReport

RNG = np.random.default_rng(13)


def normal(*shape, dtype=np.float32):
    return RNG.normal(size=shape).astype(dtype)


def stored_integers(unit):
    return {n: a for n, a in constants(unit).items() if a.dtype in (np.int8, np.int32)}


def test_a_chain_is_folded_into_the_weight_and_accounted_for():
    weight = normal(16, 32, dtype=np.float16)
    model = parse(
        """m (float16[M, 32] x) => (float16[M, 16] y) {
            t = Transpose <perm = [1, 0]> (w)
            y = MatMul(x, t)
        }""",
        w=weight,
    )
    unit = quantized(model)
    assert op_types(unit) == ["WeightQuantBatchMatmulV2"]
    assert {fate.value: fate.kind for fate in unit.fates()} == {"t": "folded", "y": "same"}
    assert "w" not in constants(unit)
    x = normal(3, 32, dtype=np.float16)
    expected = x.astype(np.float64) @ plain_levels(weight, 0, "float16").T
    np.testing.assert_allclose(run_plain(unit.model, {"x": x})["y"], expected, rtol=2e-3, atol=2e-3)


def test_one_weight_read_twice_is_stored_once():
    model = parse(
        """m (float16[M, 32] x) => (float16[M, 32] y) {
            h = MatMul(x, w)
            y = MatMul(h, w)
        }""",
        w=normal(32, 32),
    )
    model.graph.initializer[0].CopyFrom(
        onnx.numpy_helper.from_array(normal(32, 32, dtype=np.float16), "w")
    )
    unit = quantized(model)
    assert len(stored_integers(unit)) == 1
    _, second = report_of(unit).rows
    assert second.bytes_before == second.bytes_after == 0
    assert "shares the integers of" in second.reason
    assert report_of(unit).bytes_before == 32 * 32 * 2


@pytest.mark.parametrize("embeddings", [False, True])
def test_a_tied_head_quantizes_its_own_copy(embeddings):
    table = normal(50, 32)
    model = parse(
        """m (int64[B, S] ids) => (float[B, S, 50] y) {
            h = Gather(table, ids)
            head = Transpose <perm = [1, 0]> (table)
            y = MatMul(h, head)
        }""",
        table=table,
    )
    unit = quantized(model, embeddings=embeddings)
    ids = RNG.integers(0, 50, (2, 3))
    deq = plain_levels(table, 0, "float32")
    expected = (deq if embeddings else table)[ids] @ deq.T
    np.testing.assert_allclose(
        run_plain(unit.model, {"ids": ids})["y"], expected, rtol=1e-4, atol=1e-4
    )
    assert ("table" in constants(unit)) is not embeddings
    head = report_of(unit).quantized[-1]
    assert ("the float weight stays" in head.reason) is not embeddings
    assert len(stored_integers(unit)) == (2 if embeddings else 1)


def test_a_weight_that_something_else_reads_stays_too():
    model = parse(
        """m (float[32, 32] x) => (float[32, 32] y, float[32, 32] z) {
            y = MatMul(x, w)
            z = Add(x, w)
        }""",
        w=normal(32, 32),
    )
    unit = quantized(model)
    assert "w" in constants(unit)
    (row,) = report_of(unit).rows
    assert row.bytes_after > row.bytes_before
    assert "others need it" in row.reason


def test_left_and_right_use_have_their_own_scales():
    weight = (normal(32, 32) * np.logspace(-2, 2, 32)).astype(np.float32)
    model = parse(
        """m (float[32, 32] x) => (float[32, 32] y, float[32, 32] z) {
            y = MatMul(x, w)
            z = MatMul(w, x)
        }""",
        w=weight,
    )
    unit = quantized(model)
    assert len(stored_integers(unit)) == 2
    x = normal(32, 32)
    actual = run_plain(unit.model, {"x": x})
    by_column, by_row = plain_levels(weight, 1, "float32"), plain_levels(weight, 0, "float32")
    np.testing.assert_allclose(actual["y"], x @ by_column, rtol=1e-4, atol=1e-3)
    np.testing.assert_allclose(actual["z"], by_row @ x, rtol=1e-4, atol=1e-3)


def test_scales_come_from_the_weights_before_rounding():
    weight = normal(64, 16)
    unit = load(matmul(weight, dtype="float16"))
    unit.model.graph.initializers["w"].const_value = cast_to(ir.tensor(weight), ir.DataType.FLOAT16)
    levels, from_half = (
        next(iter(stored_integers(quantized(model)).values()))
        for model in (unit, matmul(weight, dtype="float16"))
    )
    scale = (np.abs(weight).max(axis=0) / 127).astype(np.float16).astype(np.float32)
    np.testing.assert_array_equal(levels, np.rint(weight / scale))
    assert (levels != from_half).any()


def test_quantizing_again_changes_nothing_and_says_why():
    unit = quantized(matmul(normal(64, 16), "B, S, {k}"))
    again = quantized(unit)
    assert op_types(again) == op_types(unit)
    assert report_of(again).rows == report_of(unit).rows
    assert again.log[-1].applied == 0
    assert again.log[-1].refusals == ("y__quantize: already quantized",)


@pytest.mark.parametrize("kernels", [has_kernel, no_kernel])
@pytest.mark.parametrize("granularity", ["channel", "group:32"])
def test_a_foreign_quantized_model_is_recognized(kernels, granularity):
    unit = quantized(matmul(normal(64, 16)), kernels=kernels, granularity=granularity)
    del unit.model.metadata_props["cannc.quant"]
    again = quantized(unit, embeddings=True)
    assert op_types(again) == op_types(unit)
    (row,) = report_of(again).rows
    assert (row.status, row.reason) == ("skipped", "already quantized")


def test_a_dequantizelinear_model_is_recognized():
    model = parse(
        """m (float[N, 4] x) => (float[N, 6] y) {
            w = DequantizeLinear(q, s)
            y = MatMul(x, w)
        }""",
        q=np.ones((4, 6), np.int8),
        s=np.float32(0.1).reshape(()),
    )
    (row,) = report_of(quantized(model)).rows
    assert row.reason == "already quantized"


def test_a_second_run_quantizes_what_was_kept():
    unit = quantized(mlp(), keep="first")
    assert [row.status for row in report_of(unit).rows] == ["quantized", "skipped"]
    again = quantized(unit)
    assert [row.weight for row in report_of(again).quantized] == ["w2", "w1"]


@pytest.mark.parametrize(
    ("keep", "kept"),
    [
        ("first", ["w1"]),
        ("last", ["w2"]),
        (["last"], ["w2"]),
        ("w1", ["w1"]),
        ("MatMul_0", ["w1"]),
        ("^w[2-9]$", ["w2"]),
        (" w1 , ", ["w1"]),
    ],
)
def test_keep(keep, kept):
    report = report_of(quantized(mlp(), keep=keep))
    assert [row.weight for row in report.skipped] == kept
    assert "kept in float by" in report.skipped[0].reason


@pytest.mark.parametrize(
    ("keep", "hint"),
    [("MatMul_9", "did you mean 'MatMul_"), ("zzz", "no weight"), ("(", "regular expression")],
)
def test_keep_that_matches_nothing(keep, hint):
    with pytest.raises(UsageError, match="cannot keep") as caught:
        quantized(mlp(), keep=keep)
    assert caught.value.code == "QUANT004"
    assert hint in caught.value.why


@pytest.mark.parametrize(
    ("model", "why"),
    [
        (parse("m (float[A, A] x) => (float[A, A] y) { y = MatMul(x, x) }"), "no operand is a"),
        (parse("m (float[A] x) => (float[A] y) { y = Relu(x) }"), "no MatMul, Gemm or Conv"),
        (matmul(np.ones((1, 4))), "integers and scales need"),
    ],
)
def test_nothing_to_quantize_is_an_error(model, why):
    with pytest.raises(ModelError) as caught:
        quantized(model)
    assert caught.value.code == "QUANT011"
    assert why in caught.value.why


def test_a_bad_weight_that_is_kept_is_no_error():
    model = mlp()
    bad = normal(8, 16)
    bad[2, 3] = np.inf
    model.graph.initializer[0].CopyFrom(onnx.numpy_helper.from_array(bad, "w1"))
    with pytest.raises(ModelError, match="1 NaN or infinite values of 128"):
        quantized(model)
    assert [row.weight for row in report_of(quantized(model, keep="w1")).quantized] == ["w2"]


def test_integers_are_a_byte_each_on_disk(tmp_path):
    weight = normal(256, 256)
    path = quantized(matmul(weight, dtype="float")).save(tmp_path / "q.onnx")
    stored = {t.name: t for t in onnx.load(path).graph.initializer}
    (levels,) = [t for t in stored.values() if t.data_type == onnx.TensorProto.INT8]
    assert len(levels.raw_data) == 256 * 256
    assert path.stat().st_size < 0.3 * weight.nbytes


def test_report_travels_with_the_file(tmp_path):
    unit = quantized(mlp(), algo="mse")
    again = load(unit.save(tmp_path / "q.onnx"))
    report = report_of(unit)
    assert QuantReport.of(again) == report
    assert (report.scheme, report.algo, report.soc) == ("w8a16", "mse", NPU.soc)
    assert again.target == NPU
    assert again.log[-1].name == "quantize"
    assert report.bytes_before == (8 * 16 + 16 * 4) * 4
    assert report.bytes_after == 8 * 16 + 16 * 4 + (16 + 4) * 4
    assert all(len(cells) == len(HEADER) for cells in report.table())
    json.loads(report.to_json())
    assert QuantReport.of(load(mlp())) is None


def test_reported_error_is_that_of_the_weight():
    weight = normal(128, 16)
    (row,) = report_of(quantized(matmul(weight, dtype="float"))).rows
    difference = plain_levels(weight, 1, "float32") - weight
    assert row.error == pytest.approx(np.linalg.norm(difference) / np.linalg.norm(weight), rel=1e-4)
    columns = np.linalg.norm(difference, axis=0) / np.linalg.norm(weight, axis=0)
    assert row.worst_error >= columns.max() * 0.999


def test_the_result_is_the_same_every_time():
    model = mlp()
    first, second = (
        ir.to_proto(quantized(model).model).SerializeToString(deterministic=True) for _ in range(2)
    )
    assert first == second
