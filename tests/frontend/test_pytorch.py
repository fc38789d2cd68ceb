"""Export from PyTorch: names, dynamic axes, and the check of the exported graph."""

import numpy as np
import onnx_ir as ir
import pytest

import cannc
from cannc.compiler.core.errors import CanncError, GoldenMismatchError, ModelError, UsageError
from cannc.compiler.frontend.pytorch import Sample, as_example, export, verify
from cannc.compiler.runtime.host_runner import HostRunner

torch = pytest.importorskip("torch", reason="needs the torch extra")
pytestmark = pytest.mark.torch

SOURCE = """
import torch
from torch import nn

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.inner = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 4))

    def forward(self, x, scale):
        return {"logits": self.inner(x) * scale, "sum": x.sum(1)}

class Frozen(nn.Module):
    def forward(self, x):
        return x * torch.arange(16.0).reshape(2, 8)

class Branch(nn.Module):
    def forward(self, x):
        return x * 2 if x.sum() > 0 else x - 1

def make():
    inputs = {"x": torch.ones(1, 8), "scale": torch.tensor(2.0)}
    return Net(), inputs, {"x": {0: "batch"}}

def frozen():
    return Frozen(), {"x": torch.ones(2, 8)}

def branch():
    return Branch(), (torch.ones(2, 2),)

def wrong():
    return 5
"""


@pytest.fixture(scope="module")
def source(tmp_path_factory):
    path = tmp_path_factory.mktemp("nets") / "nets.py"
    path.write_text(SOURCE)
    return path


@pytest.fixture(scope="module")
def unit(source):
    return cannc.convert(f"{source}:make", soc="Ascend310P3")


def test_names_and_dynamic_axes_are_kept(unit):
    graph = unit.model.graph
    assert [v.name for v in graph.inputs] == ["x", "scale"]
    assert [v.name for v in graph.outputs] == ["logits", "sum"]
    assert str(graph.inputs[0].shape) == "[batch,8]"
    assert str(graph.outputs[0].shape) == "[batch,4]"
    assert unit.model.opset_imports[""] == 18
    assert unit.target.soc == "Ascend310P3"


def test_examples_are_the_given_ones(unit):
    assert unit.examples["x"].shape == (1, 8)


def test_every_node_has_a_unique_name_and_knows_its_module(unit):
    names = [node.name for node in unit.model.graph]
    assert all(names)
    assert len(names) == len(set(names))
    modules = {node.module for node in unit.provenance.nodes.values()}
    assert "inner.0" in modules


def test_nothing_of_this_machine_travels(unit, tmp_path):
    path = unit.save(tmp_path / "m.onnx")
    assert str(tmp_path.parent).encode() not in path.read_bytes()
    assert b"nets.py" not in path.read_bytes()


def test_a_unit_saves_and_loads_with_its_provenance(unit, tmp_path):
    again = cannc.load(unit.save(tmp_path / "m.onnx"))
    assert again.provenance == unit.provenance
    assert {fate.kind for fate in again.fates()} == {"same"}
    assert again.examples["x"].tolist() == unit.examples["x"].tolist()
    assert again.target == unit.target


def test_frozen_dimension_is_found(source):
    dynamic = {"x": {0: "batch"}}
    with pytest.raises(CanncError) as caught:
        cannc.convert(f"{source}:frozen", dynamic=dynamic)
    assert caught.value.code == "EXP003"
    assert "static shape of 2" in caught.value.why


def test_branch_on_a_value_is_explained(source):
    with pytest.raises(ModelError, match="could not export") as caught:
        cannc.convert(f"{source}:branch")
    assert "branches on the value of a tensor" in caught.value.why
    assert "torch.where" in caught.value.fix


def test_other_results_of_the_callable_are_refused(source):
    with pytest.raises(UsageError) as caught:
        cannc.convert(f"{source}:wrong")
    assert caught.value.code == "SRC005"


def test_unknown_dynamic_input_is_refused(source):
    with pytest.raises(UsageError) as caught:
        cannc.convert(f"{source}:make", dynamic={"z": {0: "batch"}})
    assert caught.value.code == "SRC006"
    with pytest.raises(UsageError) as caught:
        cannc.convert(f"{source}:make", dynamic={"x": {2: "batch"}})
    assert caught.value.code == "SRC007"


def test_verification_catches_a_wrong_graph():
    example = as_example((torch.nn.Linear(4, 4), {"input": torch.ones(2, 4)}), "here")
    unit, samples = export(example)
    assert verify(unit, samples, HostRunner()) < 1e-5
    weight = next(v for v in unit.model.graph.initializers.values() if len(v.shape) == 2)
    weight.const_value = ir.tensor(weight.const_value.numpy() * np.float32(1.01), name=weight.name)
    with pytest.raises(GoldenMismatchError) as caught:
        verify(unit, samples, HostRunner())
    assert caught.value.code == "EXP002"


def test_verification_reports_a_graph_that_fails_at_another_size():
    example = as_example((torch.nn.Linear(4, 4), {"input": torch.ones(2, 4)}), "here")
    unit, _ = export(example)
    other = np.ones((3, 5), np.float32)
    with pytest.raises(CanncError):
        verify(unit, [Sample({"input": other}, {"output": other})], HostRunner())


@pytest.mark.parametrize(
    ("arrays", "code"),
    [
        ({"x": np.full((2, 8), np.nan, np.float32), "scale": np.float32(1)}, "INP006"),
        ({"x": np.ones((2, 9), np.float32), "scale": np.float32(1)}, "EXP004"),
        ({"x": np.ones((2, 8), np.int64), "scale": np.float32(1)}, "EXP004"),
        ({"x": np.ones((2, 8), np.float32)}, "EXP004"),
        ({"x": np.ones((2, 8), np.float32), "scale": np.float32(1), "y": np.ones(1)}, "EXP004"),
    ],
)
def test_inputs_that_do_not_fit(arrays, code, source):
    with pytest.raises(CanncError) as caught:
        cannc.convert(f"{source}:make", inputs=arrays, dynamic={})
    assert caught.value.code == code
    assert caught.value.exit_code == 2
