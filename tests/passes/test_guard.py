"""--verify each: a pass that breaks its tolerance is undone and named."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir
import pytest
from tests.support.models import mlp, parse

import cannc
from cannc.compiler.core.errors import GoldenMismatchError, UsageError
from cannc.compiler.verifying import OutputVerifier, samples_for
from cannc.passes import registry
from cannc.passes.base import Numerics, Pass, PassContext

X = {"x": np.random.default_rng(0).normal(size=(3, 8)).astype(np.float32)}


class _Bad(Pass):
    name = "bad-pass"
    summary = "does what a test wants"
    numerics = Numerics.EXACT

    def run(self, ctx: PassContext) -> None:
        self.damage(ctx)
        ctx.rewriter.applied += 1

    def damage(self, ctx: PassContext) -> None:
        raise NotImplementedError


class Shifts(_Bad):
    """Adds a little to the first float constant."""

    def damage(self, ctx: PassContext) -> None:
        for value in ctx.model.graph.initializers.values():
            if value.dtype == ir.DataType.FLOAT:
                array = value.const_value.numpy()
                value.const_value = ir.tensor(array * np.float32(1.001), name=value.name)
                return


class BreaksGraph(_Bad):
    def damage(self, ctx: PassContext) -> None:
        ctx.model.graph.outputs[0].name = "other"


class Crashes(_Bad):
    def damage(self, ctx: PassContext) -> None:
        ctx.model.graph[0].op_type = "Relu"
        raise ZeroDivisionError("inside")


class CannotRun(_Bad):
    def damage(self, ctx: PassContext) -> None:
        ctx.model.graph[0].op_type = "NoSuchOperator"


def plant(monkeypatch, cls):
    monkeypatch.setitem(registry.PASSES, "bad-pass", f"{__name__}:{cls.__name__}")


def stage(unit, name="bad-pass"):
    (found,) = (s for s in unit.log if s.name == name and s.rolled_back)
    return found


def outputs(model, feeds=None):
    with cannc.Session(model) as session:
        return session.run(feeds or X)


@pytest.mark.parametrize(
    ("cls", "reason"),
    [
        (Shifts, "relative L2"),
        (BreaksGraph, "it broke the graph: outputs changed"),
        (Crashes, "it raised ZeroDivisionError: inside"),
        (CannotRun, "cannot be run any more"),
    ],
)
def test_a_bad_pass_is_undone_and_named(monkeypatch, cls, reason, tmp_path):
    plant(monkeypatch, cls)
    good = cannc.optimize(mlp(), verify="each", inputs=X)
    unit = cannc.optimize(mlp(), verify="each", inputs=X, passes=["+bad-pass"])
    assert reason in stage(unit).rolled_back
    assert stage(unit).applied == 0
    assert [n.op_type for n in unit.model.graph] == [n.op_type for n in good.model.graph]
    assert not [fate for fate in unit.fates() if fate.kind == "unknown"]
    saved = unit.save(tmp_path / "m.onnx")
    assert reason in stage(cannc.load(saved)).rolled_back
    weights = unit.model.graph.initializers
    for name, value in good.model.graph.initializers.items():
        np.testing.assert_array_equal(weights[name].const_value.numpy(), value.const_value.numpy())


def test_without_verification_the_planted_pass_does_harm(monkeypatch):
    plant(monkeypatch, Shifts)
    unit = cannc.optimize(mlp(), passes=["+bad-pass"])
    report = cannc.compare(mlp(), unit, inputs=X)
    assert report.verdict == "fail" or report.outputs[0].accumulated.rel_l2 > 1e-5


def test_strict_fails(monkeypatch):
    plant(monkeypatch, Shifts)
    with pytest.raises(GoldenMismatchError, match="bad-pass") as caught:
        cannc.optimize(mlp(), verify="each", inputs=X, passes=["+bad-pass"], strict=True)
    assert (caught.value.code, caught.value.exit_code) == ("OPT003", 1)
    assert "--passes=-bad-pass" in caught.value.fix


def test_a_pass_that_is_undone_is_not_tried_again(monkeypatch):
    runs = []

    class Counts(Shifts):
        def damage(self, ctx: PassContext) -> None:
            runs.append(1)
            super().damage(ctx)

    monkeypatch.setitem(globals(), "Counts", Counts)
    plant(monkeypatch, Counts)
    monkeypatch.setattr(registry, "CLEANUP", (*registry.CLEANUP, "bad-pass"))
    unit = cannc.optimize(mlp(), verify="each", inputs=X)
    assert len(runs) == 1
    stage(unit)


def test_small_steps_that_add_up_are_found():
    model = cannc.load(mlp()).model
    verifier = OutputVerifier(model, [X])
    weight = model.graph.initializers["w1"]
    array = weight.const_value.numpy()
    problems = []
    for step in range(1, 40):
        scaled = array * np.float32(1 + step * 5e-5)
        weight.const_value = ir.tensor(scaled, name="w1")
        problems.append(verifier.problem(model, Numerics.REASSOCIATED))
    assert problems[0] is None
    assert any(why and "with the passes before it" in why for why in problems)


DYNAMIC = """g (float[batch, length, 8] x, int64[batch, length] ids) => (
    float[batch, length, 8] y, int64[batch, length] z
) <float[8] w = {1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0}> {
    s = Softmax(x) a = Identity(s) y = Mul(a, w) i = Identity(ids) z = Neg(i)
}"""


def test_dynamic_sizes_are_guessed_twice():
    samples = samples_for(cannc.load(parse(DYNAMIC)), None)
    assert [feeds["x"].shape for feeds in samples.feeds] == [(2, 8, 8), (3, 12, 8)]
    unit = cannc.optimize(parse(DYNAMIC), verify="each")
    assert not any(s.rolled_back for s in unit.log)
    assert len(unit.model.graph) == 3


class Freezes(_Bad):
    """Bakes a size in."""

    def damage(self, ctx: PassContext) -> None:
        node = ctx.model.graph[0]
        shape = ctx.rewriter.constant(node.outputs[0], np.array([2, 8, 8]))
        fixed = ctx.rewriter.node("Reshape", [node.outputs[0], shape], like=node.outputs[0])
        users = [use for use in node.outputs[0].uses() if use.node is not fixed]
        ctx.rewriter.add_beside(users[0].node, [fixed])
        users[0].node.replace_input_with(users[0].idx, fixed.outputs[0])


def test_a_frozen_size_is_found(monkeypatch):
    plant(monkeypatch, Freezes)
    unit = cannc.optimize(parse(DYNAMIC), verify="each", passes=["+bad-pass"])
    assert "run any more" in stage(unit).rolled_back or "shape" in stage(unit).rolled_back


def test_nan_and_infinity_compare_by_place():
    text = "g (float[4] x) => (float[4] y, bool[4] n) { i = Identity(x) y = Log(i) n = IsNaN(y) }"
    feeds = {"x": np.array([-1, 0, 1, np.e], np.float32)}
    unit = cannc.optimize(parse(text), verify="each", inputs=feeds)
    assert not any(s.rolled_back for s in unit.log)
    verifier = OutputVerifier(unit.model, [feeds])
    unit.model.graph[-2].op_type = "Sqrt"
    assert "NaN or Inf" in (verifier.problem(unit.model, Numerics.LOSSY) or "")


def test_half_models_have_half_tolerances():
    unit = cannc.optimize(mlp(), precision="fp16", verify="each", inputs=X)
    assert not any(s.rolled_back for s in unit.log)
    assert any(s.name == "float16" and s.applied for s in unit.log)
    again = cannc.optimize(unit, verify="each", inputs=X)
    assert not any(s.rolled_back for s in again.log)


def test_an_unknown_mode_is_a_usage_error():
    with pytest.raises(UsageError, match="did you mean 'each'") as caught:
        cannc.optimize(mlp(), verify="eachh")
    assert caught.value.code == "OPT002"


GELU = """g (float[2, 8] x) => (float[2, 8] y) <
    float r = {1.4142135}, float o = {1.0}, float h = {0.5}
> { d = Div(x, r) e = Erf(d) a = Add(e, o) m = Mul(x, a) y = Mul(m, h) }"""


@pytest.mark.parametrize("call", [cannc.optimize, cannc.quantize, cannc.split])
def test_another_target_than_the_stamp_is_an_error_once_kernels_are_chosen(call):
    fused = cannc.optimize(parse(GELU), soc="Ascend910B4")
    with pytest.raises(UsageError) as caught:
        call(fused, soc="Ascend310P3")
    assert caught.value.code == "SOC011"
    plain = cannc.optimize(mlp(), soc="Ascend910B4")
    assert cannc.optimize(plain, soc="Ascend310P3").target.soc == "Ascend310P3"


BARE = """<ir_version: 10, opset_import: ["" : 18, "npu" : 1]>
g (float[2, 8] x) => (float[2, 8] y) { y = npu.NPUGeluV2 <approximate = "none"> (x) }"""


def test_a_fused_node_without_a_body_gets_ours(tmp_path):
    import onnx

    model = onnx.parser.parse_model(BARE)
    unit = cannc.optimize(model)
    assert ("npu", "NPUGeluV2", "") in unit.model.functions
    feeds = {"x": np.linspace(-3, 3, 16, dtype=np.float32).reshape(2, 8)}
    om = cannc.compile(model, tmp_path / "m.om", "host", "Ascend910B4")
    np.testing.assert_allclose(
        outputs(om, feeds)["y"], outputs(cannc.compile(parse(GELU), tmp_path / "n.om", "host",
        "Ascend910B4"), feeds)["y"], atol=1e-6,
    )  # fmt: skip
