"""Small models for tests, written as ONNX text."""

from pathlib import Path

import numpy as np
import onnx
import onnx.parser

HEAD = '<ir_version: 10, opset_import: ["" : 18]>'


def parse(text: str, **weights: np.ndarray) -> onnx.ModelProto:
    """Return the model of an ONNX text (graph only, or a whole model), with weights added."""
    model = onnx.parser.parse_model(text if text.lstrip().startswith("<") else f"{HEAD}\n{text}")
    model.graph.initializer.extend(
        onnx.numpy_helper.from_array(array, name) for name, array in weights.items()
    )
    return model


def mlp(seed: int = 0) -> onnx.ModelProto:
    """Two MatMul layers with bias and Relu; x (N, 8) -> y (N, 4)."""
    rng = np.random.default_rng(seed)
    return parse(
        """mlp (float[N, 8] x) => (float[N, 4] y) {
            h = MatMul(x, w1)
            hb = Add(h, b1)
            a = Relu(hb)
            o = MatMul(a, w2)
            y = Add(o, b2)
        }""",
        w1=rng.normal(size=(8, 16)).astype(np.float32),
        b1=rng.normal(size=16).astype(np.float32),
        w2=rng.normal(size=(16, 4)).astype(np.float32),
        b2=rng.normal(size=4).astype(np.float32),
    )


def save(model: onnx.ModelProto, path: Path) -> Path:
    """Write a model and return its path."""
    onnx.save(model, path)
    return path
