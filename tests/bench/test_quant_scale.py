"""Quantization of a model in external data: right, and in memory that does not grow with it."""

from bench.llama_shape import SHAPES, write_llama
from bench.quant_scale import measure

_MOST_BYTES = 420 << 20
"""Python with its libraries and one weight; the model's 500 MB would not fit on top of them."""


def test_memory_is_that_of_one_weight_not_of_the_model(tmp_path):
    path = tmp_path / "llama.onnx"
    size = write_llama(path, SHAPES["quarter"])
    assert size > 450e6
    found = measure(path, external_above=0)
    assert (found.weights, found.off) == (8 * 7 + 1, 0)
    assert found.result_bytes < 0.6 * found.source_bytes
    assert found.peak_bytes < _MOST_BYTES
