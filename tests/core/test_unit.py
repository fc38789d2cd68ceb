from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx_ir as ir
import pytest
from tests.support.models import mlp, parse
from tests.support.passes import optimized

from cannc.compiler.core.errors import UsageError
from cannc.compiler.core.target import Target, soc_table
from cannc.compiler.core.tensors import DerivedTensor, cast_to, read, released, source_of
from cannc.compiler.core.unit import CompileUnit, Stage, load


def test_every_kind_of_model_loads_and_is_left_alone(tmp_path: Path) -> None:
    proto = mlp()
    path = load(proto).save(tmp_path / "m.onnx")
    kinds = [proto, path, str(path), ir.from_proto(mlp()), load(proto)]
    for model in kinds:
        unit = load(model)
        assert [node.op_type for node in unit.model.graph][:2] == ["MatMul", "Add"]
        unit.model.graph.outputs[0].name = "changed"
    assert [load(model).model.graph.outputs[0].name for model in kinds] == ["y"] * 5
    assert proto == mlp()


def test_optimizing_a_proto_in_memory_leaves_its_bytes() -> None:
    proto = parse(
        """g (float[2] x) => (y) <float[2] w = {1.0, 2.0}> {
            k = Constant<value_float = 1.0>() a = Exp(w) b = Mul(a, k) y = Mul(x, b)
        }"""
    )
    before = proto.SerializeToString()
    optimized(load(proto))
    assert proto.SerializeToString() == before


def test_other_things_are_no_models() -> None:
    with pytest.raises(UsageError, match="API001"):
        load(42)  # type: ignore[arg-type]


def test_target_history_and_examples_travel_with_the_file(tmp_path: Path) -> None:
    unit = load(mlp())
    unit.target = Target("Ascend310P3", "8.0.0")
    unit.log.append(Stage("a-pass", 2, 5, 3, 0.5, ("n: why",), ("note",)))
    unit.examples = {"x": np.ones((1, 8), np.float32)}
    again = load(unit.save(tmp_path / "m.onnx"))
    assert again.target == unit.target
    assert again.log == [Stage("a-pass", 2, 5, 3, 0.0, ("n: why",), ("note",))]
    np.testing.assert_array_equal(again.examples["x"], unit.examples["x"])


def test_a_copy_shares_weights_and_nothing_else() -> None:
    unit = load(mlp())
    copy = unit.copy()
    copy.model.graph.remove(copy.model.graph[-1])
    copy.provenance.dead.add("h")
    assert len(unit.model.graph) == 5
    assert not unit.provenance.dead
    mine, theirs = (u.model.graph.initializers["w1"].const_value for u in (unit, copy))
    assert mine is theirs


def test_every_soc_of_the_table_parses_and_has_a_family() -> None:
    for name in soc_table():
        assert Target.parse(name).family.startswith("ascend")


@pytest.mark.parametrize(
    ("soc", "cann", "code", "hint"),
    [
        ("ascend910b4", None, "SOC001", "Ascend910B4"),
        ("Ascend310P", None, "SOC001", "Ascend310P3"),
        ("TPU", None, "SOC001", "targets"),
        ("Ascend910B4", "latest", "SOC002", "8.0.0"),
    ],
)
def test_wrong_targets_are_usage_errors(soc: str, cann: str | None, code: str, hint: str) -> None:
    with pytest.raises(UsageError) as caught:
        Target.parse(soc, cann)
    assert caught.value.code == code
    assert hint in str(caught.value)


def test_derived_tensors_compute_when_read_and_remember_their_source() -> None:
    source = ir.Tensor(np.array([[1.0, 2.0], [3.0, 70000.0]], np.float32))
    calls = []

    def turn(array: np.ndarray) -> np.ndarray:
        calls.append(1)
        return array.T

    turned = DerivedTensor(source, turn, ir.DataType.FLOAT, ir.Shape([2, 2]))
    half = cast_to(turned, ir.DataType.FLOAT16)
    assert not calls
    assert source_of(half) is source
    np.testing.assert_array_equal(half.numpy(), np.array([[1, 3], [2, np.inf]], np.float16))
    assert calls
    assert cast_to(source, ir.DataType.FLOAT) is source


def test_reading_an_external_weight_gives_its_pages_back(tmp_path: Path) -> None:
    (tmp_path / "w").write_bytes(np.arange(4, dtype=np.float32).tobytes())
    tensor = ir.ExternalTensor(
        "w", 0, 16, ir.DataType.FLOAT, shape=ir.Shape([4]), name="w", base_dir=tmp_path
    )
    with released(tensor) as array:
        assert array.sum() == 6
        assert tensor.raw is not None
        del array
    assert tensor.raw is None
    numbers = read(tensor)
    assert tensor.raw is None
    np.testing.assert_array_equal(numbers, np.arange(4))


def test_a_unit_of_a_model_names_everything() -> None:
    unit = CompileUnit.of(ir.from_proto(mlp()))
    assert all(node.name for node in unit.model.graph)
