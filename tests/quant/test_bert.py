"""A transformer as PyTorch exports it: every projection is found, in both precisions."""

from functools import partial

import numpy as np
import pytest
from tests.support.quant import NPU, op_types, quantized, report_of

from cannc.compiler.core.unit import load
from cannc.compiler.runtime.host_runner import HostRunner
from cannc.compiler.runtime.host_session import HostSession
from cannc.op_support.kernels import kernel_gap
from cannc.passes.optimize import optimize

pytestmark = [
    pytest.mark.torch,
    pytest.mark.slow,
    pytest.mark.filterwarnings("ignore"),
]

LAYERS = 1
PROJECTIONS = 6 * LAYERS + 1
"""Query, key, value, output and two of the feed-forward per layer, and the pooler."""

KERNELS = partial(kernel_gap, target=NPU)


@pytest.fixture(scope="module")
def bert(tmp_path_factory):
    torch = pytest.importorskip("torch")
    transformers = pytest.importorskip("transformers")
    torch.manual_seed(0)
    config = transformers.BertConfig(
        hidden_size=64,
        num_hidden_layers=LAYERS,
        num_attention_heads=4,
        intermediate_size=256,
        vocab_size=500,
        attn_implementation="eager",
    )
    model = transformers.BertModel(config).eval()
    ids = torch.randint(0, 500, (2, 9))
    dims = {0: torch.export.Dim("batch", max=64), 1: torch.export.Dim("seq", max=512)}
    path = tmp_path_factory.mktemp("bert") / "bert.onnx"
    torch.onnx.export(
        model,
        (ids, torch.ones_like(ids)),
        path,
        dynamo=True,
        opset_version=18,
        verbose=False,
        optimize=False,
        external_data=False,
        input_names=["input_ids", "attention_mask"],
        dynamic_shapes={"input_ids": dims, "attention_mask": dims},
    )
    return load(path)


def feeds(batch, length):
    ids = np.random.default_rng(length).integers(0, 500, (batch, length))
    return {"input_ids": ids, "attention_mask": np.ones_like(ids)}


def assert_close(unit, original):
    """Cosine of the hidden states over several shapes, on simulated hardware."""
    exact, session = HostSession(original.model, fuse=False), HostSession(unit.model, fuse=False)
    for batch, length in [(2, 9), (1, 3), (4, 17)]:
        golden = next(iter(exact.run(feeds(batch, length)).values())).astype(np.float64)
        actual = next(iter(session.run(feeds(batch, length)).values())).astype(np.float64)
        assert actual.shape == golden.shape
        cosine = np.vdot(actual, golden) / np.linalg.norm(actual) / np.linalg.norm(golden)
        assert cosine > 0.9995


def test_raw_export_in_float32(bert):
    unit = quantized(bert, kernels=KERNELS)
    report = report_of(unit)
    assert len(report.quantized) == PROJECTIONS
    assert {row.form for row in report.quantized} == {"Cast+Mul"}
    assert_close(unit, bert)
    assert report.bytes_after < 0.3 * report.bytes_before


def test_optimized_in_float16(bert):
    half = optimize(
        bert,
        level="O2",
        precision="fp16",
        target=NPU,
        runner=HostRunner(),
        may_use_kernel=KERNELS,
    )
    unit = quantized(half, kernels=KERNELS)
    report = report_of(unit)
    assert op_types(unit).count("WeightQuantBatchMatmulV2") == PROJECTIONS
    assert {row.form for row in report.quantized} == {"WeightQuantBatchMatmulV2"}
    assert {row.reason for row in report.skipped} == {
        "no operand is a constant",
        "an embedding table; embeddings are quantized only when asked for",
    }
    assert_close(unit, bert)
    assert report.bytes_after < 0.6 * report.bytes_before
