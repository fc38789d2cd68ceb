"""The model of the benchmarks is a sound language model that runs."""

from dataclasses import replace

import numpy as np
import onnx
import onnxruntime as ort
import pytest
from bench.llama_shape import SHAPES, write_llama


@pytest.mark.parametrize("kv_heads", [4, 2])
def test_it_runs_and_is_causal(tmp_path, kv_heads):
    path = tmp_path / "llama.onnx"
    write_llama(path, replace(SHAPES["tiny"], kv_heads=kv_heads))
    onnx.checker.check_model(path, full_check=True)
    session = ort.InferenceSession(path)
    tokens = np.arange(20).reshape(2, 10)
    (logits,) = session.run(None, {"input_ids": tokens})
    assert logits.shape == (2, 10, 512)
    assert np.isfinite(logits).all()
    later = tokens.copy()
    later[:, 6:] += 7
    (changed,) = session.run(None, {"input_ids": later})
    np.testing.assert_allclose(changed[:, :6], logits[:, :6], atol=1e-2)
    assert np.abs(changed[:, 6:].astype(np.float32) - logits[:, 6:]).max() > 0.1
