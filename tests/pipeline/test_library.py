"""The library calls: arguments are never changed, targets follow D22, classes are thin."""

import numpy as np
import onnx
import onnx_ir as ir
import pytest
from tests.support.models import mlp, parse, save

import cannc
from cannc.compiler.core.errors import CanncError, UsageError

X = np.random.default_rng(0).normal(size=(3, 8)).astype(np.float32)


@pytest.mark.parametrize("form", ["path", "proto", "ir", "unit"])
def test_models_in_any_form_are_left_alone(form, tmp_path):
    proto = mlp()
    path = save(proto, tmp_path / "m.onnx")
    model = {
        "path": path,
        "proto": proto,
        "ir": ir.from_proto(mlp()),
        "unit": cannc.load(path),
    }[form]

    def bytes_of():
        if form == "unit":
            return ir.to_proto(model.model).SerializeToString(deterministic=True)
        if form == "ir":
            return ir.to_proto(model).SerializeToString(deterministic=True)
        return path.read_bytes() if form == "path" else proto.SerializeToString(deterministic=True)

    before = bytes_of()
    cannc.check(model)
    unit = cannc.quantize(cannc.optimize(model, precision="fp16"))
    cannc.compile(model, tmp_path / "m.om", "host", "Ascend910B4")
    assert bytes_of() == before
    assert cannc.compare(model, unit, inputs={"x": X}).verdict == "pass"


def test_other_arguments_are_refused():
    with pytest.raises(UsageError) as caught:
        cannc.load(5)
    assert caught.value.code == "API001"


def test_stages_stamp_the_target_and_keep_it(tmp_path):
    unit = cannc.optimize(mlp(), soc="Ascend310P3")
    assert unit.target.soc == "Ascend310P3"
    again = cannc.load(unit.save(tmp_path / "o.onnx"))
    assert cannc.quantize(again).target.soc == "Ascend310P3"
    assert cannc.optimize(mlp()).target.soc == "Ascend910B4"


def test_compile_needs_a_target_and_takes_the_stamp(tmp_path):
    with pytest.raises(UsageError) as caught:
        cannc.compile(mlp(), tmp_path / "m.om", "host")
    assert caught.value.code == "SOC010"
    assert cannc.compile(cannc.optimize(mlp()), tmp_path / "m.om", "host").is_file()


def test_fused_models_cannot_change_their_target(tmp_path):
    gelu = parse(
        """g (float[2, 8] x) => (float[2, 8] y) {
            d = Div(x, r) e = Erf(d) a = Add(e, o) m = Mul(x, a) y = Mul(m, h)
        }""",
        r=np.float32(2**0.5),
        o=np.float32(1),
        h=np.float32(0.5),
    )
    unit = cannc.optimize(gelu, soc="Ascend910B4")
    assert any(node.domain == "npu" for node in unit.model.graph)
    with pytest.raises(UsageError) as caught:
        cannc.compile(unit, tmp_path / "m.om", "host", "Ascend310P3")
    assert caught.value.code == "SOC011"
    plain = cannc.optimize(mlp(), soc="Ascend910B4")
    assert cannc.compile(plain, tmp_path / "m.om", "host", "Ascend310P3").is_file()


def test_verification_names_what_went_wrong(monkeypatch):
    def broken(unit, **_options):
        copy = unit.copy()
        weight = copy.model.graph.initializers["b1"]
        weight.const_value = ir.tensor(weight.const_value.numpy() + np.float32(1), name="b1")
        return copy

    monkeypatch.setattr("cannc.compiler.optimizing.run_optimize", broken)
    with pytest.raises(CanncError) as caught:
        cannc.optimize(mlp(), verify="final", inputs={"x": X})
    assert caught.value.code == "OPT001"
    assert caught.value.exit_code == 1


def test_compiler_class(tmp_path):
    compiler = cannc.Compiler().set_target("Ascend910B4").set_options(backend="host")
    assert compiler.compile(mlp(), tmp_path / "m.om").is_file()
    with pytest.raises(UsageError, match="did you mean 'backend'") as caught:
        compiler.set_options(backnd="host")
    assert caught.value.code == "API002"


def test_workspace_as_text_and_number(tmp_path):
    given = {"backend": "host", "soc": "Ascend910B4"}
    static = cannc.load(mlp())
    static.model.graph.inputs[0].shape = ir.Shape([4, 8])
    for size in ("1MB", 10**6):
        assert cannc.compile(static, tmp_path / "m.om", max_workspace=size, **given).is_file()
    with pytest.raises(CanncError) as caught:
        cannc.compile(static, tmp_path / "m.om", max_workspace="100B", **given)
    assert caught.value.code == "MEM001"


def test_quantizer_class():
    unit = cannc.Quantizer(algo="minmax").quantize(mlp())
    kinds = {v.dtype for v in unit.model.graph.initializers.values()}
    assert ir.DataType.INT8 in kinds


def test_units_report_fates_after_all_stages():
    unit = cannc.quantize(cannc.optimize(mlp(), precision="fp16"))
    kinds = {fate.value: fate.kind for fate in unit.fates()}
    assert set(kinds) == {"h", "hb", "a", "o", "y"}
    assert "unknown" not in kinds.values()


def test_saved_models_are_valid_onnx(tmp_path):
    unit = cannc.quantize(cannc.optimize(mlp(), precision="fp16"))
    onnx.checker.check_model(onnx.load(unit.save(tmp_path / "q.onnx")), full_check=True)
