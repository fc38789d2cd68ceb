"""Layers of real PyTorch exports: by module path and by structure alone, before and after O2."""

import numpy as np
import pytest
from tests.support.chain import assert_equals_whole
from tests.support.fusion import has_kernel
from tests.support.runner import PlainRunner

from cannc.compiler.core.provenance import OriginalNode
from cannc.compiler.core.target import Target
from cannc.compiler.core.unit import load
from cannc.compiler.splitting import split_model
from cannc.passes.optimize import optimize
from cannc.passes.split.choose import Request

torch = pytest.importorskip("torch", reason="needs the torch extra")
transformers = pytest.importorskip("transformers", reason="needs the hf extra")
pytestmark = [pytest.mark.torch, pytest.mark.slow, pytest.mark.filterwarnings("ignore")]

LAYERS = 3
COMMON = {"vocab_size": 50, "use_cache": False}


class First(torch.nn.Module):
    """Gives the first output of a language model."""

    def __init__(self, model):
        super().__init__()
        self.inner = model

    def forward(self, input_ids, attention_mask):
        return self.inner(input_ids=input_ids, attention_mask=attention_mask)[0]


def bert():
    config = transformers.BertConfig(
        hidden_size=32, num_hidden_layers=LAYERS, num_attention_heads=4, intermediate_size=64
    )
    return transformers.BertModel(config), "inner.encoder.layer"


def llama():
    config = transformers.LlamaConfig(
        hidden_size=32,
        num_hidden_layers=LAYERS,
        num_attention_heads=4,
        num_key_value_heads=2,
        intermediate_size=64,
        tie_word_embeddings=True,
        **COMMON,
    )
    return transformers.LlamaForCausalLM(config), "inner.model.layers"


@pytest.mark.parametrize("build", [bert, llama])
def test_layers_are_found_either_way(build):
    torch.manual_seed(0)
    model, stem = build()
    ids = torch.randint(0, 50, (2, 6))
    feeds = {"input_ids": ids, "attention_mask": torch.ones_like(ids)}
    sizes = {0: torch.export.Dim("batch"), 1: torch.export.Dim("tokens")}
    program = torch.onnx.export(
        First(model).eval(),
        kwargs=feeds,
        dynamo=True,
        opset_version=18,
        verbose=False,
        dynamic_shapes=dict.fromkeys(feeds, sizes),
    )
    unit = load(program.model_proto)
    unit.examples = {name: tensor.numpy() for name, tensor in feeds.items()}
    other = {name: np.ones((3, 9), np.int64) for name in feeds}
    options = {"level": "O2", "precision": "keep", "target": Target()}
    fused = optimize(unit, runner=PlainRunner(), may_use_kernel=has_kernel, **options)
    for whole in (unit, fused):
        split = split_model(whole, Request(layers_per_subgraph=1))
        assert [part.layers for part in split.parts] == [(f"{stem}.{i}",) for i in range(LAYERS)]
        plain = whole.copy()
        for name, node in whole.provenance.nodes.items():
            plain.provenance.nodes[name] = OriginalNode(name, node.op_type, node.outputs)
        alone = split_model(plain, Request(layers_per_subgraph=1))
        assert [part.layers for part in alone.parts] == [(f"layer.{i}",) for i in range(LAYERS)]
        for parts in (split.parts, alone.parts):
            middle = parts[1].unit.model.graph
            assert len(middle) < len(parts[0].unit.model.graph)
            for inputs in (unit.examples, other):
                assert_equals_whole(whole, [part.unit for part in parts], inputs)
