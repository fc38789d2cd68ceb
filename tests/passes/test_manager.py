from __future__ import annotations

import onnx_ir as ir
import pytest
from tests.support.passes import no_gap, parse, run, show
from tests.support.runner import PlainRunner

from cannc.compiler.core.errors import CanncError, PassError, UsageError, notes
from cannc.compiler.core.target import Target
from cannc.passes import registry
from cannc.passes.base import Numerics, Pass, PassContext
from cannc.passes.manager import MAX_ROUNDS, run_passes
from cannc.passes.optimize import optimize

CHAIN = "(float[N] x) => (float[N] y) { a = Relu(x) b = Tanh(a) y = Neg(b) }"


class _Broken(Pass):
    """A pass that does what a test wants."""

    name = "broken"
    summary = "does what no pass may do"
    numerics = Numerics.EXACT

    def run(self, ctx: PassContext) -> None:
        ctx.rewriter.applied += 1
        self.damage(ctx)

    def damage(self, ctx: PassContext) -> None:
        raise NotImplementedError


class RenamesOutput(_Broken):
    def damage(self, ctx: PassContext) -> None:
        ctx.model.graph.outputs[0].name = "other"


class ChangesDtype(_Broken):
    def damage(self, ctx: PassContext) -> None:
        ctx.model.graph.outputs[0].type = ir.TensorType(ir.DataType.FLOAT16)


class ChangesShape(_Broken):
    def damage(self, ctx: PassContext) -> None:
        ctx.model.graph.outputs[0].shape = ir.Shape([3])


class DropsInput(_Broken):
    def damage(self, ctx: PassContext) -> None:
        ctx.model.graph.inputs.append(ir.Value(name="new"))


class RepeatsName(_Broken):
    def damage(self, ctx: PassContext) -> None:
        ctx.model.graph[0].outputs[0].name = "b"


class BreaksOrder(_Broken):
    def damage(self, ctx: PassContext) -> None:
        first = ctx.model.graph[0]
        ctx.model.graph.remove(first)
        ctx.model.graph.append(first)


class LosesNode(_Broken):
    def damage(self, ctx: PassContext) -> None:
        node = ctx.model.graph[1]
        node.outputs[0].replace_all_uses_with(node.inputs[0])
        ctx.model.graph.remove(node, safe=True)


class CallsNothing(_Broken):
    def damage(self, ctx: PassContext) -> None:
        ctx.model.graph[1].domain = "npu"


class Raises(_Broken):
    def damage(self, ctx: PassContext) -> None:
        raise ValueError("inside")


class NeverEnds(_Broken):
    def damage(self, ctx: PassContext) -> None:
        ctx.note("again")


class AppendsAtTheEnd(_Broken):
    """Puts a producer behind its user, and says so."""

    def damage(self, ctx: PassContext) -> None:
        BreaksOrder.damage(self, ctx)  # type: ignore[arg-type]
        ctx.rewriter.unordered = True


def _run(monkeypatch: pytest.MonkeyPatch, cls: type[Pass], *, fixpoint: bool = False):
    unit = parse(CHAIN)
    monkeypatch.setitem(registry.PASSES, "broken", f"{__name__}:{cls.__name__}")
    monkeypatch.setattr("cannc.passes.manager.load_pass", lambda name: cls())
    run_passes(unit, ["broken"], runner=PlainRunner(), may_use_kernel=no_gap, fixpoint=fixpoint)
    return unit


@pytest.mark.parametrize(
    ("cls", "finding"),
    [
        (RenamesOutput, "outputs changed"),
        (ChangesDtype, "outputs changed"),
        (ChangesShape, "outputs changed"),
        (DropsInput, "inputs changed"),
        (RepeatsName, "value 'b' has no name of its own"),
        (BreaksOrder, "reads 'a' before it is produced"),
        (LosesNode, "lost track of 'b'"),
        (CallsNothing, "operator npu::Tanh has no function"),
    ],
)
def test_a_pass_that_breaks_the_graph_is_named(
    monkeypatch: pytest.MonkeyPatch, cls: type[Pass], finding: str
) -> None:
    with pytest.raises(PassError) as caught:
        _run(monkeypatch, cls)
    assert caught.value.code == "PASS010"
    assert "'broken'" in caught.value.what
    assert finding in caught.value.where
    assert "--passes -broken" in caught.value.fix


def test_an_error_says_which_pass_raised_it(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ValueError, match="inside") as caught:
        _run(monkeypatch, Raises)
    assert notes(caught.value) == ["while running pass 'broken'"]


def test_an_unordered_graph_is_sorted(monkeypatch: pytest.MonkeyPatch) -> None:
    unit = _run(monkeypatch, AppendsAtTheEnd)
    assert show(unit.model) == ["a = Relu(x)", "b = Tanh(a)", "y = Neg(b)"]


def test_a_fixpoint_that_is_not_reached_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    unit = _run(monkeypatch, NeverEnds, fixpoint=True)
    assert len(unit.log) == MAX_ROUNDS
    assert f"after {MAX_ROUNDS} rounds" in unit.log[-1].notes[-1]


def test_a_fixpoint_ends_when_a_round_changes_nothing() -> None:
    unit = parse("(float[2] x) => (y) { a = Identity(x) b = Identity(a) y = Relu(b) }")
    names = ["eliminate-identity", "dead-code"]
    run_passes(unit, names, runner=PlainRunner(), may_use_kernel=no_gap, fixpoint=True)
    assert [(stage.name, stage.applied) for stage in unit.log] == [
        ("eliminate-identity", 2),
        ("dead-code", 0),
    ]


def test_the_history_counts_nodes() -> None:
    after = run(parse("(float[2] x) => (y) { a = Relu(x) b = Tanh(x) y = Neg(a) }"), "dead-code")
    (stage,) = after.log
    assert (stage.name, stage.applied, stage.nodes_before, stage.nodes_after) == (
        "dead-code", 1, 3, 2
    )  # fmt: skip
    assert stage.seconds > 0


def test_refusals_are_in_the_history(monkeypatch: pytest.MonkeyPatch) -> None:
    class Refuses(_Broken):
        def damage(self, ctx: PassContext) -> None:
            ctx.refuse(ctx.model.graph[0], "not today")
            ctx.refuse(ctx.model.graph[0], "not today")

    assert _run(monkeypatch, Refuses).log[0].refusals == ("Relu_0: not today",)


def _optimize(text: str, *select: str, level: registry.Level = "O1"):
    return optimize(
        parse(text),
        level=level,
        precision="keep",
        target=Target("Ascend310P3"),
        runner=PlainRunner(),
        may_use_kernel=no_gap,
        select=select,
    )


def test_the_argument_is_not_changed_and_the_result_is_stamped() -> None:
    before = parse("(float[2] x) => (y) { a = Identity(x) y = Relu(a) }")
    after = optimize(
        before,
        level="O1",
        precision="keep",
        target=Target("Ascend310P3"),
        runner=PlainRunner(),
        may_use_kernel=no_gap,
    )
    assert show(before.model) == ["a = Identity(x)", "y = Relu(a)"]
    assert (before.target, before.log) == (None, [])
    assert show(after.model) == ["y = Relu(x)"]
    assert after.target == Target("Ascend310P3")


def test_o0_keeps_the_graph() -> None:
    text = "(float[2] x) => (y) { a = Identity(x) b = Tanh(x) y = Relu(a) }"
    assert show(_optimize(text, level="O0").model) == show(parse(text).model)


def test_a_pass_can_be_left_out_and_added() -> None:
    text = "(float[2] x) => (y) { a = Identity(x) b = Tanh(x) y = Relu(a) }"
    without = _optimize(text, "-dead-code")
    assert show(without.model) == ["b = Tanh(x)", "y = Relu(x)"]
    added = _optimize(text, "+dead-code", level="O0")
    assert show(added.model) == ["a = Identity(x)", "y = Relu(a)"]


def test_adding_a_pass_that_runs_anyway_changes_nothing() -> None:
    text = "(float[2] x) => (y) { a = Identity(x) y = Relu(a) }"
    names = [stage.name for stage in _optimize(text, "+dead-code").log]
    assert names == [stage.name for stage in _optimize(text).log]


@pytest.mark.parametrize(
    ("entry", "code", "hint"),
    [
        ("+dead-cod", "PASS001", "did you mean 'dead-code'?"),
        ("-nothing-like-it", "PASS001", "no pass is called"),
        ("dead-code", "PASS003", "+dead-code"),
    ],
)
def test_a_wrong_selection_is_a_usage_error(entry: str, code: str, hint: str) -> None:
    with pytest.raises(UsageError) as caught:
        _optimize(CHAIN, entry)
    assert caught.value.code == code
    assert hint in str(caught.value)


def test_an_unknown_level_is_a_usage_error() -> None:
    with pytest.raises(CanncError, match="PASS002"):
        registry.check_level("O3")
    assert registry.check_level("O2") == "O2"


def test_shapes_found_on_the_way_let_more_passes_apply() -> None:
    # The target is constant only after folding, and only then is the shape of b known.
    after = _optimize(
        """(float[4] x) => (y) <int64[1] k = {2}> {
            t = Concat<axis = 0>(k, k) a = Reshape(x, t) s = Shape(a)
            b = Reshape(a, s) c = Reshape(b, t) y = Relu(c)
        }"""
    )
    assert [line.split("(")[0] for line in show(after.model)] == ["a = Reshape", "y = Relu"]
