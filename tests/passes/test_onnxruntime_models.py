"""Models that onnxruntime optimized, fused or quantized come back to what the target takes."""

from __future__ import annotations

import numpy as np
import onnx
import onnxruntime as ort
import pytest
from onnxruntime.quantization import QuantFormat, QuantType, quantize_dynamic, quantize_static
from onnxruntime.quantization.matmul_nbits_quantizer import MatMulNBitsQuantizer
from tests.support.contrib import legal, op_types, refusals
from tests.support.optimized import (
    HEADS,
    HIDDEN,
    Batches,
    bert_feeds,
    contrib_ops,
    convolutions,
    export_bert,
    saved_by_onnxruntime,
)
from tests.support.runner import run_plain

pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore")]

EXTENDED = ort.GraphOptimizationLevel.ORT_ENABLE_EXTENDED
ALL = ort.GraphOptimizationLevel.ORT_ENABLE_ALL
SHAPES = [(2, 9), (1, 5), (3, 12)]
IMAGES = [
    {"x": np.random.default_rng(size).normal(size=(size, 3, 16, 16)).astype(np.float32)}
    for size in (1, 3)
]
FLIPPED = 5e-3
"""What one level more or less, where rounding decides between two, makes of a hidden state."""


def assert_legal_and_equal(path, feeds, atol=2e-6):
    model = onnx.load(path)
    unit = legal(model, "O2")
    for given in feeds:
        expected, actual = run_plain(model, given), run_plain(unit.model, given)
        for name, array in expected.items():
            np.testing.assert_allclose(actual[name], array, rtol=1e-5, atol=atol)
    return unit


def bert_inputs():
    return [bert_feeds(*shape) for shape in SHAPES]


@pytest.fixture(scope="module", params=["dynamo", "torchscript"])
def bert(request, tmp_path_factory):
    path = tmp_path_factory.mktemp("bert") / "bert.onnx"
    return export_bert(path, dynamo=request.param == "dynamo")


@pytest.fixture(scope="module")
def fused_bert(bert):
    optimizer = pytest.importorskip("onnxruntime.transformers.optimizer")
    fused = optimizer.optimize_model(
        str(bert), model_type="bert", num_heads=HEADS, hidden_size=HIDDEN, opt_level=0
    )
    path = bert.with_name("fused.onnx")
    fused.save_model_to_file(str(path))
    return path


@pytest.mark.torch
@pytest.mark.parametrize("level", [EXTENDED, ALL])
def test_bert_saved_by_a_session(bert, level):
    path = saved_by_onnxruntime(bert, level, bert.with_name("saved.onnx"))
    assert contrib_ops(path)["FusedMatMul"] == 2
    unit = assert_legal_and_equal(path, bert_inputs())
    assert op_types(unit).count("NPUGeluV2") == 2
    assert set(unit.model.opset_imports) == {"", "npu"}


@pytest.mark.torch
def test_bert_fused_by_the_transformers_tool(fused_bert):
    assert contrib_ops(fused_bert)["SkipLayerNormalization"] == 4
    unit = assert_legal_and_equal(fused_bert, bert_inputs())
    assert op_types(unit).count("NPUGeluV2") == 2
    assert op_types(unit).count("LayerNormalization") == 5


@pytest.mark.torch
def test_the_attention_of_a_traced_bert_is_found(fused_bert, bert):
    if contrib_ops(fused_bert)["Attention"] == 0:
        pytest.skip("the tool knows the attention of traced models only")
    assert contrib_ops(fused_bert)["EmbedLayerNormalization"] == 1
    assert op_types(legal(onnx.load(fused_bert), "O2")).count("Softmax") == 2


@pytest.mark.torch
@pytest.mark.parametrize("saved", [False, True])
def test_bert_quantized_dynamically(bert, saved):
    path = bert.with_name("dynamic.onnx")
    quantize_dynamic(bert, path)
    if saved:
        path = saved_by_onnxruntime(path, EXTENDED, bert.with_name("dynamic_saved.onnx"))
        assert contrib_ops(path)["DynamicQuantizeMatMul"] > 0
    assert_legal_and_equal(path, bert_inputs(), FLIPPED)


@pytest.mark.torch
@pytest.mark.parametrize(("bits", "symmetric"), [(4, True), (8, False)])
def test_bert_with_weights_of_few_bits(bert, bits, symmetric):
    quantizer = MatMulNBitsQuantizer(
        onnx.load(bert), bits=bits, block_size=16, is_symmetric=symmetric
    )
    quantizer.process()
    path = bert.with_name("few_bits.onnx")
    quantizer.model.save_model_to_file(str(path))
    assert contrib_ops(path)["MatMulNBits"] == 12
    assert_legal_and_equal(path, bert_inputs())


@pytest.fixture(scope="module")
def network(tmp_path_factory):
    path = tmp_path_factory.mktemp("network") / "network.onnx"
    onnx.save(convolutions(), path)
    return path


def test_network_saved_by_a_session(network):
    path = saved_by_onnxruntime(network, EXTENDED, network.with_name("saved.onnx"))
    assert contrib_ops(path) == {"FusedConv": 2, "FusedGemm": 1}
    assert_legal_and_equal(path, IMAGES)


def test_a_layout_of_one_machine_is_refused(network):
    path = saved_by_onnxruntime(network, ALL, network.with_name("saved.onnx"))
    if not any(node.domain == "com.microsoft.nchwc" for node in onnx.load(path).graph.node):
        pytest.skip("this machine has no layout of its own")
    assert any("ORT_ENABLE_EXTENDED" in text for text in refusals(onnx.load(path)))


@pytest.mark.parametrize("form", [QuantFormat.QDQ, QuantFormat.QOperator])
@pytest.mark.parametrize(
    ("activations", "weights"),
    [
        (QuantType.QUInt8, QuantType.QInt8),
        (QuantType.QInt8, QuantType.QInt8),
        (QuantType.QUInt8, QuantType.QUInt8),
    ],
)
@pytest.mark.parametrize("saved", [False, True])
def test_network_quantized_statically(network, form, activations, weights, saved):
    path = network.with_name("static.onnx")
    quantize_static(
        network,
        path,
        Batches(IMAGES),
        quant_format=form,
        per_channel=weights == QuantType.QInt8,
        reduce_range=weights == QuantType.QInt8,  # some processors saturate sums of larger weights
        activation_type=activations,
        weight_type=weights,
    )
    if saved:
        path = saved_by_onnxruntime(path, EXTENDED, network.with_name("static_saved.onnx"))
    assert_legal_and_equal(path, IMAGES, atol=0)
