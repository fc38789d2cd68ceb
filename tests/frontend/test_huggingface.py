"""Hugging Face folders: what they need, and what is refused."""

import numpy as np
import pytest

import cannc
from cannc.compiler.core.errors import ModelError, UsageError
from cannc.compiler.runtime.host_runner import HostRunner

torch = pytest.importorskip("torch", reason="needs the torch extra")
transformers = pytest.importorskip("transformers", reason="needs the hf extra")
pytestmark = pytest.mark.torch


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    path = tmp_path_factory.mktemp("llama")
    torch.manual_seed(0)
    config = transformers.LlamaConfig(
        vocab_size=64,
        hidden_size=32,
        intermediate_size=48,
        num_hidden_layers=1,
        num_attention_heads=4,
        num_key_value_heads=2,
    )
    transformers.LlamaForCausalLM(config).save_pretrained(path, safe_serialization=True)
    return path


def test_the_class_of_the_config_is_exported_and_verified(folder):
    ids = np.arange(10).reshape(2, 5)
    unit = cannc.convert(f"hf:{folder}", inputs={"input_ids": ids})
    graph = unit.model.graph
    assert [str(v.shape) for v in graph.inputs] == ["[batch,sequence]"]
    assert [v.name for v in graph.outputs] == ["logits"]
    assert str(graph.outputs[0].shape) == "[batch,sequence,64]"
    model = transformers.LlamaForCausalLM.from_pretrained(folder)
    with torch.no_grad():
        want = model(input_ids=torch.from_numpy(ids)).logits.numpy()
    found = HostRunner().run(unit.model, {"input_ids": ids}, ["logits"])["logits"]
    np.testing.assert_allclose(found, want, atol=1e-5)
    assert unit.examples["input_ids"].tolist() == ids.tolist()


def test_without_tokenizer_inputs_are_asked_for(folder):
    with pytest.raises(UsageError) as caught:
        cannc.convert(f"hf:{folder}")
    assert caught.value.code == "HF003"
    assert "--inputs" in caught.value.fix


def test_pickled_weights_are_refused(tmp_path):
    (tmp_path / "config.json").write_text('{"model_type": "bert"}')
    (tmp_path / "pytorch_model.bin").write_bytes(b"pickle")
    with pytest.raises(ModelError) as caught:
        cannc.convert(f"hf:{tmp_path}")
    assert caught.value.code == "HF002"


def test_another_folder_is_refused(tmp_path):
    with pytest.raises(ModelError) as caught:
        cannc.convert(f"hf:{tmp_path}")
    assert caught.value.code == "HF001"
