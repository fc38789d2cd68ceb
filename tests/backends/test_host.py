"""The host backend: what it writes, what it checks, and what it leaves behind."""

from pathlib import Path

import numpy as np
import onnx_ir as ir
import pytest
from tests.support.models import mlp, parse, save

from cannc.compiler.backends import host
from cannc.compiler.backends.base import CompileOptions
from cannc.compiler.backends.readback import check_same
from cannc.compiler.backends.select import select_backend
from cannc.compiler.core.errors import (
    CanncError,
    MissingToolError,
    ModelError,
    UnsupportedOpError,
    UsageError,
)
from cannc.compiler.core.target import Target
from cannc.compiler.core.unit import CompileUnit, load
from cannc.compiler.om.reader import OmFile
from cannc.compiler.runtime.artifact import load_artifact
from cannc.compiler.runtime.session import Session

TARGET = Target("Ascend910B4", "8.0.0")


def unit_of(proto) -> CompileUnit:
    unit = load(proto)
    unit.target = TARGET
    return unit


def compile_(unit: CompileUnit, out: Path, **options):
    return select_backend("host").compile(unit, out, CompileOptions(**options))


def test_the_artifact_runs_and_carries_target_and_provenance(tmp_path):
    unit = unit_of(mlp())
    result = compile_(unit, tmp_path / "m.om", name="mlp")
    assert result.path == tmp_path / "m.om"
    assert result.size_bytes == result.path.stat().st_size > result.weight_bytes > 0
    assert result.device == "host (simulated float16)"
    om = OmFile.open(result.path)
    assert om.model_attributes["cannc_target_soc"] == "Ascend910B4"
    assert om.model_attributes["cannc_target_cann"] == "8.0.0"
    assert "soc_version" not in om.model_attributes
    again = load_artifact(result.path)
    assert again.target == TARGET
    assert again.provenance.to_json() == unit.provenance.to_json()
    with Session(result.path) as session:
        assert session.run({"x": np.zeros((1, 8), np.float32)})["y"].shape == (1, 4)


def test_the_unit_is_not_changed(tmp_path):
    unit = unit_of(mlp())
    before = ir.to_proto(unit.model)
    compile_(unit, tmp_path / "m.om")
    assert ir.to_proto(unit.model) == before


def test_the_same_model_gives_the_same_bytes(tmp_path):
    (tmp_path / "other").mkdir()
    for folder in (tmp_path, tmp_path / "other"):
        compile_(unit_of(mlp()), folder / "m.om")
    assert (tmp_path / "m.om").read_bytes() == (tmp_path / "other" / "m.om").read_bytes()


def test_an_artifact_can_be_compiled_again(tmp_path):
    compile_(unit_of(mlp()), tmp_path / "a.om", name="m")
    unit = load_artifact(tmp_path / "a.om")
    compile_(unit, tmp_path / "b.om", name="m")
    assert (tmp_path / "a.om").read_bytes() == (tmp_path / "b.om").read_bytes()


def test_findings_are_counted_or_refused(tmp_path):
    header = '<ir_version: 10, opset_import: ["": 20]>'
    unit = unit_of(parse(f"{header} g (float[2] x) => (float[2] y) {{ y = Gelu (x) }}"))
    result = compile_(unit, tmp_path / "m.om")
    assert any("would refuse" in note for note in result.notes)
    out = tmp_path / "n.om"
    with pytest.raises(UnsupportedOpError, match="Ascend910B4 refuses 1 node") as error:
        compile_(unit, out, require_support=True)
    assert error.value.code == "BCK004"
    assert not out.exists()


def test_what_onnxruntime_cannot_run_is_refused_and_nothing_is_left(tmp_path):
    proto = parse("g (float[2] x) => (float[2] y) { y = local.Nothing (x) }")
    proto.opset_import.add(domain="local", version=1)
    (tmp_path / "m.om").write_text("an older artifact")
    unit = CompileUnit.of(ir.from_proto(proto))
    unit.target = TARGET
    with pytest.raises(ModelError):
        compile_(unit, tmp_path / "m.om")
    assert [p.name for p in tmp_path.iterdir()] == ["m.om"]
    assert (tmp_path / "m.om").read_text() == "an older artifact"


def test_a_loss_on_the_way_is_found_before_the_artifact_gets_its_name(tmp_path, monkeypatch):
    write = host.write_om

    def lossy(model, out, **rest):
        copy = model.clone()
        next(n for n in copy.graph if n.op_type == "Relu").op_type = "Tanh"
        write(copy, out, **rest)

    monkeypatch.setattr(host, "write_om", lossy)
    with pytest.raises(CanncError, match="does not hold the model") as error:
        compile_(unit_of(mlp()), tmp_path / "m.om")
    assert error.value.code == "BCK005"
    assert error.value.exit_code == 70
    assert list(tmp_path.iterdir()) == []


def edges(model):
    add = [n for n in model.graph if n.op_type == "Add"][-1]
    add.replace_input_with(1, add.inputs[0])


def attributes(model):
    gemm = next(n for n in model.graph if n.op_type == "Concat")
    gemm.attributes["axis"] = ir.AttrInt64("axis", 0)


def weights(model):
    model.graph.initializers["w"].const_value = ir.Tensor(np.zeros((2, 2), np.float16))


def interfaces(model):
    model.graph.outputs[0].type = ir.TensorType(ir.DataType.FLOAT16)


def metadata(model):
    model.metadata_props["more"] = "x"


def opsets(model):
    model.opset_imports[""] = 17


@pytest.mark.parametrize("change", [edges, attributes, weights, interfaces, metadata, opsets])
def test_every_difference_is_seen(change):
    text = (
        "g (float[2,2] x) => (float[4,2] z) { a = Neg (x) y = Add (a, w)"
        " z = Concat <axis = 1> (y, y) }"
    )
    model = ir.from_proto(parse(text, w=np.ones((2, 2), np.float32)))
    check_same(model, model.clone())
    other = model.clone()
    change(other)
    with pytest.raises(CanncError):
        check_same(model, other)


def test_a_target_is_needed(tmp_path):
    with pytest.raises(UsageError) as error:
        compile_(load(mlp()), tmp_path / "m.om")
    assert error.value.code == "BCK003"


def test_the_source_is_never_overwritten(tmp_path):
    path = save(mlp(), tmp_path / "m.onnx")
    unit = unit_of(path)
    with pytest.raises(UsageError) as error:
        compile_(unit, path)
    assert error.value.code == "IO001"


def test_choosing_a_backend():
    assert select_backend("auto").name == select_backend("host").name == "host"
    with pytest.raises(MissingToolError) as missing:
        select_backend("atc")
    assert missing.value.code == "BCK002"
    with pytest.raises(UsageError, match="did you mean 'host'") as error:
        select_backend("hots")
    assert error.value.code == "BCK001"
