"""Parts run one after the other give what the whole gives, whatever crosses the cuts."""

import numpy as np
import onnx
import onnx_ir as ir
import pytest
from tests.support import golden_models
from tests.support.chain import assert_equals_whole, held, names, run_half
from tests.support.fusion import has_kernel
from tests.support.models import parse
from tests.support.runner import PlainRunner

from cannc.compiler.core.errors import UsageError
from cannc.compiler.core.target import Target
from cannc.compiler.core.unit import load
from cannc.passes.optimize import optimize
from cannc.passes.split.choose import Request
from cannc.passes.split.line import Line
from cannc.passes.split.split import split_unit
from cannc.quant.quantize import quantize

RNG = np.random.default_rng(0)


def draw(*shape):
    return RNG.standard_normal(shape).astype(np.float32)


def every_cut(unit):
    """Split after each node that can be cut after, all at once."""
    split = split_unit(unit, Request(parts=1))
    model = split.parts[0].unit.model
    return split_unit(unit, Request(parts=len(Line(model).cuts()) + 1))


def parts_of(split):
    return [part.unit for part in split.parts]


@pytest.mark.parametrize("build", [golden_models.transformer, golden_models.cnn])
@pytest.mark.parametrize("strategy", ["memory_balanced", "even"])
@pytest.mark.parametrize("parts", [1, 2, 3, 7])
def test_a_chain_equals_the_whole(build, strategy, parts):
    model = build()
    unit = load(model)
    before = unit.provenance.to_json(), len(unit.model.graph)
    split = split_unit(unit, Request(parts=parts, strategy=strategy))
    assert len(split.parts) == parts
    assert_equals_whole(unit, parts_of(split), golden_models.inputs(model))
    assert (unit.provenance.to_json(), len(unit.model.graph)) == before


@pytest.mark.parametrize("build", [golden_models.transformer, golden_models.cnn])
def test_cutting_everywhere(build):
    model = build()
    unit = load(model)
    split = every_cut(unit)
    assert len(split.parts) > 8
    assert_equals_whole(unit, parts_of(split), golden_models.inputs(model))
    for part in split.parts:
        onnx.checker.check_model(ir.to_proto(part.unit.model))


@pytest.mark.parametrize("scheme", ["float16", "w8a16", "float16 w8a16"])
def test_half_and_quantized_models(scheme):
    model = golden_models.transformer()
    unit = load(model)
    if "float16" in scheme:
        options = {"level": "O2", "precision": "fp16", "target": Target()}
        unit = optimize(unit, runner=PlainRunner(), may_use_kernel=has_kernel, **options)
    if "w8a16" in scheme:
        unit = quantize(unit, target=Target(), may_use_kernel=has_kernel)
        assert any(v.dtype.bitwidth == 8 for v in unit.model.graph.initializers.values())
    split = split_unit(unit, Request(parts=4))
    assert_equals_whole(unit, parts_of(split), golden_models.inputs(model), run_half)
    for part in parts_of(split):
        called = {node.op_identifier() for node in part.model.graph} & set(unit.model.functions)
        assert set(part.model.functions) == called
        sent = [v for v in part.model.graph.inputs if v.name not in ("x", "mask")]
        assert not any(v.dtype.bitwidth == 8 for v in sent)  # weights are widened where they work


def test_a_skip_over_several_parts_goes_straight_to_its_reader():
    unit = load(
        parse(
            """g (float[N, 8] x) => (float[N, 8] y) {
                a = Relu(x)
                b = MatMul(a, w)
                c = MatMul(b, w)
                d = MatMul(c, w)
                y = Add(d, a)
            }""",
            w=draw(8, 8),
        )
    )
    split = split_unit(unit, Request(cuts=("a", "b", "c")))
    parts = parts_of(split)
    assert [names(p.model.graph.inputs) for p in parts] == [["x"], ["a"], ["b"], ["a", "c"]]
    assert [names(p.model.graph.outputs) for p in parts] == [["a"], ["b"], ["c"], ["y"]]
    assert_equals_whole(unit, parts, {"x": draw(3, 8)})
    assert [(s.name, s.bytes, s.parts) for s in split.shared] == [("w", 256, (1, 2, 3))]
    assert parts[0].log[-1].notes == ()  # 256 bytes are not worth a line


def test_a_copied_weight_is_reported():
    unit = load(
        parse(
            "g (float[N, 32] x) => (float[N, 32] y) {a = MatMul(x, w)\n y = MatMul(a, w)}",
            w=draw(32, 32),
        )
    )
    (first, second) = parts_of(split_unit(unit, Request(parts=2)))
    assert held(first) == held(second) == {"w"}
    assert first.log[-1].notes == ("w (4096 bytes) is stored in parts 0, 1",)


def test_captured_values_of_branches_and_loops():
    unit = load(
        parse(
            """g (float[N, 4] x, bool c) => (float[N, 4] y) {
                a = MatMul(x, w)
                b = Relu(a)
                p = Neg(b)
                i = If (c) <
                    then_branch = t () => (float[N, 4] o) { q = MatMul(a, w)  o = Add(q, k) },
                    else_branch = e () => (float[N, 4] o2) { o2 = Sub(b, k) }
                >
                n = Constant<value = int64 {3}>()
                go = Constant<value = bool {1}>()
                l = Loop (n, go, i) <
                    body = body (int64 it, bool cin, float[N, 4] s) => (bool cout, float[N, 4] so)
                    { cout = Identity(cin)  so = Add(s, b) }
                >
                y = Add(l, p)
            }""",
            w=draw(4, 4),
            k=draw(4),
        )
    )
    split = every_cut(unit)
    for chosen in (True, False):
        assert_equals_whole(unit, parts_of(split), {"x": draw(2, 4), "c": np.array(chosen)})
    holder = next(p for p in parts_of(split) if any(n.op_type == "If" for n in p.model.graph))
    assert names(holder.model.graph.inputs) == ["c", "a", "b"]
    assert held(holder) == {"w", "k"}


def test_outputs_on_the_way_inputs_handed_on_and_constants():
    unit = load(
        parse(
            """g (float[N, 4] x, float[2] unread, int64[M] ids)
                 => (float[N, 4] early, float[N, 4] y, int64[M] ids, float[4, 4] w, float[3] k) {
                k = Constant<value = float[3] {1.0, 2.0, 3.0}>()
                early = MatMul(x, w)
                b = Relu(early)
                y = MatMul(b, w)
            }""",
            w=draw(4, 4),
        )
    )
    split = split_unit(unit, Request(parts=3))
    parts = parts_of(split)
    assert names(parts[0].model.graph.inputs) == ["x", "unread", "ids"]
    assert [names(p.model.graph.outputs) for p in parts] == [["early", "w"], ["b"], ["y", "k"]]
    assert names(split.inputs) == ["x", "unread", "ids"]
    assert names(split.outputs) == ["early", "y", "ids", "w", "k"]
    feeds = {"x": draw(2, 4), "unread": draw(2), "ids": np.arange(3)}
    assert_equals_whole(unit, parts, feeds)


def test_caches_are_routed_to_their_layer():
    lines, shapes = [], "float[B, P, 4]"
    for i in range(3):
        lines += [
            f"n{i} = MatMul({'x' if i == 0 else f'h{i - 1}'}, w{i})",
            f"present{i} = Concat<axis = 1>(past{i}, n{i})",
            f"m{i} = ReduceMean<keepdims = 1>(present{i}, axes)",
            f"r{i} = Mul(m{i}, mask)",
            f"h{i} = Add(n{i}, r{i})",
        ]
    pasts = ", ".join(f"{shapes} past{i}" for i in range(3))
    presents = ", ".join(f"float[B, Q, 4] present{i}" for i in range(3))
    body = "mask = Sigmoid(scale)\n" + "\n".join(lines)
    given, made = f"float[B, S, 4] x, float[4] scale, {pasts}", f"float[B, S, 4] h2, {presents}"
    text = f"g ({given}) => ({made}) {{{body}}}"
    weights = {f"w{i}": draw(4, 4) for i in range(3)}
    unit = load(parse(text, axes=np.array([1]), **weights))
    split = split_unit(unit, Request(layers_per_subgraph=1))
    inputs = [names(p.model.graph.inputs) for p in parts_of(split)]
    assert inputs == [["x", "scale", "past0"], ["past1", "mask", "h0"], ["past2", "mask", "h1"]]
    assert names(split.parts[1].unit.model.graph.outputs) == ["present1", "h1"]
    feeds = {f"past{i}": draw(2, 5, 4) for i in range(3)} | {"x": draw(2, 3, 4), "scale": draw(4)}
    assert_equals_whole(unit, parts_of(split), feeds)


def test_cheap_constants_are_computed_again_and_costly_or_random_ones_cross():
    unit = load(
        parse(
            """g (float[N, 8] x) => (float[N, 8] y) {
                t0 = Cast<to = 1>(table)
                t = Mul(t0, s)
                big = MatMul(w, w)
                r = RandomNormal<shape = [8]>()
                a = Mul(x, t)
                a2 = MatMul(a, big)
                b = Add(a2, r)
                c = Mul(b, t)
                d = MatMul(c, big)
                y = Add(d, r)
            }""",
            table=np.arange(-4, 4, dtype=np.int8),
            s=np.float32(0.5),
            w=draw(8, 8),
        )
    )
    first, second = parts_of(split_unit(unit, Request(cuts=("b",))))
    assert names(second.model.graph.inputs) == ["big", "r", "b"]
    assert [n.op_type for n in second.model.graph][:2] == ["Cast", "Mul"]
    assert "t" in {f.value for f in first.fates()} & {f.value for f in second.fates()}
    assert {f.value for f in second.fates()}.isdisjoint({"big", "r", "b"})


def test_only_tensors_cross():
    unit = load(
        parse(
            """g (float[4] x) => (float[8] y) {
                a = Relu(x)
                s = SequenceConstruct(a, a)
                n = Neg(a)
                e = ConcatFromSequence<axis = 0>(s)
                m = Concat<axis = 0>(n, n)
                y = Add(e, m)
            }"""
        )
    )
    split = every_cut(unit)
    assert [len(p.model.graph) for p in parts_of(split)] == [1, 3, 1, 1]
    assert_equals_whole(unit, parts_of(split), {"x": draw(4)})
    with pytest.raises(UsageError) as refused:
        split_unit(unit, Request(cuts=("s",)))
    assert refused.value.code == "SPL007"


def test_initializers_that_are_inputs_too_stay_constants():
    model = parse(
        "g (float[4] x, float[4, 4] w) => (float[4] y) { a = MatMul(x, w)  y = MatMul(a, w) }",
        w=draw(4, 4),
    )
    unit = load(model)
    split = split_unit(unit, Request(parts=2))
    assert names(split.inputs) == ["x"]
    assert_equals_whole(unit, parts_of(split), {"x": draw(4)})


def test_dead_nodes_stay_and_never_make_a_part():
    unit = load(
        parse(
            """g (float[4] x) => (float[4] y) {
                d0 = Exp(x)
                a = Relu(x)
                d1 = Exp(a)
                y = Neg(a)
                d2 = Exp(y)
            }"""
        )
    )
    split = every_cut(unit)
    assert [[n.op_type for n in p.model.graph] for p in parts_of(split)] == [
        ["Exp", "Relu"],
        ["Exp", "Neg", "Exp"],
    ]
    assert_equals_whole(unit, parts_of(split), {"x": draw(4)})


def test_fates_after_optimization_are_told_once_each():
    model = golden_models.transformer()
    whole = optimize(
        load(model),
        level="O2",
        precision="keep",
        target=Target(),
        runner=PlainRunner(),
        may_use_kernel=has_kernel,
    )
    kinds = {fate.kind for fate in whole.fates()}
    assert {"same", "inside", "folded"} <= kinds
    assert_equals_whole(
        whole, parts_of(split_unit(whole, Request(parts=4))), golden_models.inputs(model)
    )


def test_examples_go_with_parts_that_need_no_others():
    unit = load(golden_models.transformer())
    unit.examples = golden_models.inputs(golden_models.transformer())
    first, second = parts_of(split_unit(unit, Request(parts=2)))
    assert list(first.examples) == ["x", "mask"]
    assert second.examples == {}
    assert first.log[-1].name == second.log[-1].name == "split"
