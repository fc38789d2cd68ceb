"""What today's PyTorch exporter writes for norms and activations is fused, and gives the same."""

import warnings

import numpy as np
import pytest
from tests.support.fusion import has_kernel
from tests.support.runner import PlainRunner, run_plain

from cannc.compiler.core.target import Target
from cannc.compiler.core.unit import load
from cannc.passes.optimize import optimize

torch = pytest.importorskip("torch", reason="needs the torch extra")
transformers = pytest.importorskip("transformers", reason="needs the hf extra")
pytestmark = [pytest.mark.torch, pytest.mark.slow]

WIDTH = 32


class Each(torch.nn.Module):
    """Applies every part to an input of its own."""

    def __init__(self, parts):
        super().__init__()
        self.parts = torch.nn.ModuleList(parts)

    def forward(self, xs):
        return tuple(part(x) for part, x in zip(self.parts, xs, strict=True))


class First(torch.nn.Module):
    """Gives the first output of a model without a cache."""

    def __init__(self, model):
        super().__init__()
        self.model = model

    def forward(self, x):
        return self.model(x, use_cache=False)[0]


def _inputs(parts, dtype=None):
    torch.manual_seed(1)
    return [torch.randn(2, 3, WIDTH, dtype=dtype) for _ in parts]


def _optimized(module, x, optimizer):
    """Export, optimize at O2, compare with PyTorch's graph on onnxruntime; return operators."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        program = torch.onnx.export(
            module.eval(), (x,), dynamo=True, opset_version=18, optimize=optimizer, verbose=False
        )
    unit = load(program.model_proto)
    result = optimize(
        unit,
        level="O2",
        precision="keep",
        target=Target(),
        runner=PlainRunner(),
        may_use_kernel=has_kernel,
    )
    assert not [fate for fate in result.fates() if fate.kind == "unknown"]
    tensors = x if isinstance(x, list) else [x]
    feeds = {v.name: t.numpy() for v, t in zip(unit.model.graph.inputs, tensors, strict=True)}
    tolerance = 1e-2 if tensors[0].dtype == torch.float16 else 2e-5
    expected, actual = run_plain(unit.model, feeds), run_plain(result.model, feeds)
    for name, array in expected.items():
        np.testing.assert_allclose(actual[name], array, rtol=tolerance, atol=tolerance)
    return [node.op_type for node in result.model.graph]


@pytest.mark.parametrize("optimizer", [False, True])
def test_activations(optimizer):
    names = ["gelu", "gelu_new", "gelu_fast", "gelu_pytorch_tanh", "quick_gelu", "mish"]
    parts = [transformers.activations.ACT2FN[name] for name in names]
    parts += [torch.nn.GELU(), torch.nn.GELU(approximate="tanh"), torch.nn.Hardswish()]
    ops = _optimized(Each(parts), _inputs(parts), optimizer)
    assert set(ops) == {"HardSwish", "Mish", "NPUFastGelu", "NPUGeluV2"}
    assert len(ops) - ops.count("NPUGeluV2") == 3


@pytest.mark.parametrize("dtype", ["float32", "float16"])
def test_norms(dtype):
    from transformers.models.gemma.modeling_gemma import GemmaRMSNorm
    from transformers.models.llama.modeling_llama import LlamaRMSNorm
    from transformers.models.t5.modeling_t5 import T5LayerNorm

    torch.manual_seed(0)
    parts = [norm(WIDTH, eps=1e-6) for norm in (LlamaRMSNorm, GemmaRMSNorm, T5LayerNorm)]
    parts += [LlamaRMSNorm(WIDTH, eps=1e-5), torch.nn.RMSNorm(WIDTH, eps=1e-5)]
    parts += [torch.nn.RMSNorm(WIDTH, eps=1e-6, elementwise_affine=False)]
    parts += [torch.nn.LayerNorm(WIDTH), torch.nn.LayerNorm(WIDTH, elementwise_affine=False)]
    for weight in torch.nn.ModuleList(parts).parameters():
        torch.nn.init.normal_(weight)
    kind = getattr(torch, dtype)
    ops = _optimized(Each(parts).to(kind), _inputs(parts, kind), False)
    assert ops.count("NPURmsNorm") == 6
    assert ops.count("LayerNormalization") == 2
    assert set(ops) == {"NPURmsNorm", "LayerNormalization", "Mul"}


@pytest.mark.parametrize("optimizer", [False, True])
def test_bert(optimizer):
    config = transformers.BertConfig(
        hidden_size=WIDTH,
        num_hidden_layers=2,
        num_attention_heads=4,
        intermediate_size=64,
        vocab_size=50,
        max_position_embeddings=16,
    )
    torch.manual_seed(0)
    model = First(transformers.BertModel(config))
    ops = _optimized(model, torch.randint(0, 50, (1, 6)), optimizer)
    assert ops.count("NPUGeluV2") == 2
    assert ops.count("LayerNormalization") == 5
    assert not {"Erf", "ReduceMean"} & set(ops)


@pytest.mark.parametrize(
    ("epsilon", "expected"),
    [
        (1e-6, {"NPURmsNorm": 1, "NPUAddRmsNorm": 4}),
        (1e-5, {"NPURmsNorm": 5, "NPUAddRmsNorm": 0}),
    ],
)
def test_llama(epsilon, expected):
    config = transformers.LlamaConfig(
        hidden_size=WIDTH,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        intermediate_size=64,
        vocab_size=50,
        max_position_embeddings=16,
        rms_norm_eps=epsilon,
    )
    torch.manual_seed(0)
    model = First(transformers.LlamaForCausalLM(config))
    ops = _optimized(model, torch.randint(0, 50, (1, 6)), False)
    assert {name: ops.count(name) for name in expected} == expected
    assert not {"Pow", "ReduceMean", "Sqrt"} & set(ops)
