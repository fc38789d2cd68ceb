"""Real models as onnxruntime leaves them: optimized and saved, fused, quantized."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path

import numpy as np
import onnx
import onnxruntime as ort
import pytest
from tests.support.fusion import normal
from tests.support.models import parse

from cannc.compiler.core.runner import Array

HIDDEN, HEADS, WORDS = 32, 4, 100


def export_bert(path: Path, *, dynamo: bool) -> Path:
    """Export a small BERT with dynamic batch and sequence; return its path."""
    torch = pytest.importorskip("torch")
    transformers = pytest.importorskip("transformers")
    torch.manual_seed(0)
    config = transformers.BertConfig(
        hidden_size=HIDDEN,
        num_hidden_layers=2,
        num_attention_heads=HEADS,
        intermediate_size=64,
        vocab_size=WORDS,
        attn_implementation="eager",
    )
    bert = transformers.BertModel(config).eval()

    class Plain(torch.nn.Module):
        """The model with three inputs and two outputs, in whatever signature it has."""

        def __init__(self):
            super().__init__()
            self.bert = bert

        def forward(self, input_ids, attention_mask, token_type_ids):
            result = self.bert(
                input_ids=input_ids, attention_mask=attention_mask, token_type_ids=token_type_ids
            )
            return result.last_hidden_state, result.pooler_output

    model = Plain().eval()
    ids = torch.randint(0, WORDS, (2, 9))
    given = (ids, torch.ones_like(ids), torch.zeros_like(ids))
    names = ["input_ids", "attention_mask", "token_type_ids"]
    if dynamo:
        dims = {0: torch.export.Dim("batch", max=64), 1: torch.export.Dim("seq", max=512)}
        options = {"dynamic_shapes": dict.fromkeys(names, dims), "external_data": False}
    else:
        axes = {0: "batch", 1: "seq"}
        options = {"dynamic_axes": dict.fromkeys(names, axes)}
    torch.onnx.export(
        model, given, path, dynamo=dynamo, opset_version=18 if dynamo else 17, verbose=False,
        input_names=names, output_names=["hidden", "pooled"], **options,
    )  # fmt: skip
    return path


def bert_feeds(batch: int, length: int) -> dict[str, Array]:
    """Return seeded inputs of the BERT, the last tokens of each row but the first masked."""
    rng = np.random.default_rng(batch * 100 + length)
    mask = np.ones((batch, length), np.int64)
    mask[1:, length - 2 :] = 0
    return {
        "input_ids": rng.integers(0, WORDS, (batch, length)),
        "attention_mask": mask,
        "token_type_ids": rng.integers(0, 2, (batch, length)),
    }


def convolutions() -> onnx.ModelProto:
    """Return a small residual network; x (N, 3, 16, 16) -> y (N, 10)."""
    return parse(
        """<ir_version: 10, opset_import: ["" : 17]>
        net (float[N, 3, 16, 16] x) => (float[N, 10] y) {
            c1 = Conv<pads = [1, 1, 1, 1]>(x, w1, b1) r1 = Relu(c1)
            m = MaxPool<kernel_shape = [2, 2], strides = [2, 2]>(r1)
            c2 = Conv<pads = [1, 1, 1, 1]>(m, w2, b2) k = Clip(c2, low, high)
            c3 = Conv<pads = [1, 1, 1, 1], group = 8>(k, w3, b3) a = Add(c3, m) r3 = Relu(a)
            g = GlobalAveragePool(r3) f = Flatten(g) l = Gemm<transB = 1>(f, w4, b4)
            y = Sigmoid(l)
        }""",
        w1=normal(8, 3, 3, 3, scale=0.3), b1=normal(8, seed=1),
        w2=normal(8, 8, 3, 3, scale=0.3), b2=normal(8, seed=2),
        w3=normal(8, 1, 3, 3, scale=0.3), b3=normal(8, seed=4),
        w4=normal(10, 8), b4=normal(10, seed=5),
        low=np.array(0, np.float32), high=np.array(6, np.float32),
    )  # fmt: skip


def saved_by_onnxruntime(model: Path, level: ort.GraphOptimizationLevel, out: Path) -> Path:
    """Let onnxruntime optimize a model and save it."""
    options = ort.SessionOptions()
    options.graph_optimization_level = level
    options.optimized_model_filepath = str(out)
    options.log_severity_level = 4
    ort.InferenceSession(str(model), options, providers=["CPUExecutionProvider"])
    return out


class Batches:
    """Calibration data for onnxruntime's quantizer."""

    def __init__(self, batches: list[Mapping[str, Array]]) -> None:
        self._left: Iterator[Mapping[str, Array]] = iter(batches)

    def get_next(self) -> Mapping[str, Array] | None:
        """Return the next batch, None at the end."""
        return next(self._left, None)


def contrib_ops(path: Path) -> Counter[str]:
    """Return operators that are not in ONNX's own domain, or quantized, and their counts."""
    nodes = onnx.load(path).graph.node
    return Counter(n.op_type for n in nodes if n.domain not in ("", "ai.onnx") or "Q" in n.op_type)
