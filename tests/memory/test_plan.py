"""What is planned, shown on graphs small enough to count by hand."""

import json

import numpy as np
import onnx
import onnx_ir as ir
import pytest
from tests.support.memory import Machine
from tests.support.models import mlp, parse

from cannc.compiler.core.errors import CanncError, UsageError
from cannc.compiler.core.unit import load
from cannc.compiler.memory.blame import WorkspaceError
from cannc.compiler.memory.builder import build_program
from cannc.compiler.memory.liveness import peak
from cannc.compiler.memory.plan import MemoryPlan
from cannc.compiler.memory.planner import plan_memory
from cannc.compiler.memory.recompute import recompute
from cannc.compiler.memory.sizing import forms_at
from cannc.compiler.om.memory import OUTSIDE, memory_of
from cannc.compiler.om.reader import OmFile
from cannc.compiler.om.writer import write_om

ROW = np.ones((1, 128), np.float32)


def plan(text, sizes=({},), **weights):
    options = {k: weights.pop(k) for k in ("budget", "optimizer") if k in weights}
    return plan_memory(load(parse(text, **weights)).model, list(sizes), **options)


def offsets(planned):
    return {name: place.offsets for name, place in planned.places.items()}


def test_inputs_outputs_and_weights_are_not_in_the_arena():
    planned = plan(
        """g (float[2, 128] x) => (float[2, 128] y) {
            [one] a = Exp(x)
            [two] y = Mul(a, w)
        }""",
        w=ROW,
    )
    assert offsets(planned) == {"one": (0,), "two": (OUTSIDE,)}
    assert planned.plan.arena_bytes == 1024
    assert (planned.plan.input_bytes, planned.plan.output_bytes) == (1024, 1024)


def test_elementwise_chain_stays_in_one_buffer():
    planned = plan(
        """g (float[2, 128] x) => (float[2, 128] y) {
            [a] a = Exp(x)
            [b] b = Relu(a)
            [c] c = Add(b, w)
            [d] y = Neg(c)
        }""",
        w=ROW,
    )
    assert planned.plan.arena_bytes == 1024
    assert [offsets(planned)[name] for name in "abc"] == [(0,), (0,), (0,)]


@pytest.mark.parametrize(
    ("line", "arena"),
    [
        ("b = Relu(a)", 1024),  # a dies there
        ("b = Softmax(a)", 2048),  # not elementwise
        ("b = Transpose <perm: ints = [0, 1]> (a)", 2048),
        ("b = Cast <to: int = 10> (a)", 1024 + 512),  # another size
        ("b = Cast <to: int = 6> (a)", 1024),  # another type of the same size
        ("b = Reshape(a, shape)", 1024),
        ("b = Add(a, big)", 1024 + 3 * 1024),  # broadcast: a is read again and again
    ],
)
def test_in_place_only_where_it_is_legal(line, arena):
    planned = plan(
        f"""g (float[2, 128] x) => (z) {{
            a = Exp(x)
            {line}
            f = Cast <to: int = 1> (b)
            z = ReduceMax <keepdims: int = 0> (f)
        }}""",
        shape=np.array([256], np.int64),
        big=np.ones((3, 2, 128), np.float32),
    )
    assert planned.plan.arena_bytes == arena


def test_a_value_that_is_read_later_is_not_overwritten():
    planned = plan(
        """g (float[2, 128] x) => (float[2, 128] y) {
            [a] a = Exp(x)
            [b] b = Relu(a)
            [c] c = Softmax(b)
            [d] y = Add(a, c)
        }"""
    )
    assert planned.plan.arena_bytes == 3 * 1024
    assert len({offsets(planned)[name] for name in "abc"}) == 3


def test_views_of_what_belongs_to_the_caller_take_nothing():
    planned = plan(
        """g (float[2, 128] x) => (float[256] y, float[1, 2, 128] z) {
            [view] v = Unsqueeze(x, axis)
            [use] w = Exp(v)
            [show] y = Reshape(w, shape)
            [other] z = Identity(w)
        }""",
        axis=np.array([0], np.int64),
        shape=np.array([256], np.int64),
    )
    # w is written to y at once; z is a copy of it.
    assert planned.plan.arena_bytes == 0
    assert planned.plan.output_bytes == 2048


BRANCHES = """g (float[2, 128] x, bool c) => (float[2, 128] y) {
    [a] a = Exp(x)
    [if] b = If (c) <
        then_branch = t () => (float[2, 128] p) {
            p1 = Softmax(a)
            p2 = Softmax(p1)
            p = Neg(p2)
        },
        else_branch = e () => (float[2, 128] q) { q = Neg(a) }
    >
    [y] y = Softmax(b)
}"""


def test_graphs_inside_a_node_are_its_scratch_space():
    model = parse(BRANCHES)
    planned = plan_memory(load(model).model, [{}])
    # p1 and p2 at the peak, and the result p: the branch's interface.
    assert planned.places["if"].scratch[1] == 2 * 1024 + 1024
    assert planned.plan.arena_bytes == 1024 + 3072 + 1024
    machine = Machine(planned)
    feeds = {"x": np.ones((2, 128), np.float32), "c": np.array(True)}
    softened = np.full((2, 128), 1 / 128, np.float32)
    np.testing.assert_allclose(machine.run(feeds)["y"], softened, rtol=1e-5)
    assert machine.most == planned.plan.lower_bound_bytes


def test_random_operators_keep_their_order():
    text = """g (float[1] x) => (float[1] y) {
        [r1] a = RandomNormalLike(x0)
        [r2] b = RandomNormalLike(x0)
        [s2] sb = ReduceMax <keepdims: int = 1> (b)
        [add] c = Add(a, sb)
        [s1] sc = ReduceMax <keepdims: int = 1> (c)
        y = Reshape(sc, one)
    }"""
    weights = {"x0": np.ones((64, 128), np.float32), "one": np.array([1], np.int64)}
    assert not plan(text, **weights).plan.reordered
    # The same with operators that draw nothing: one is used up before the other is made.
    free = plan(text.replace("RandomNormalLike", "Softmax"), **weights)
    assert [node.name for node in free.model.graph][:3] == ["r2", "s2", "r1"]


DYNAMIC = """g (float[N, 128] x) => (float[N, 128] y) {
    [wide] a = Gemm(x, w)
    [soft] b = Softmax(a)
    [narrow] y = MatMul(b, v)
}"""
WEIGHTS = {"w": np.ones((128, 512), np.float32), "v": np.ones((512, 128), np.float32)}


def test_open_sizes_are_said_not_guessed():
    planned = plan(DYNAMIC, **WEIGHTS)
    assert planned.plan.arena_bytes is None
    assert planned.plan.open_dims == ("N",)
    assert "N" in planned.plan.notes()[0]
    assert planned.places == {}
    with pytest.raises(UsageError) as caught:
        plan(DYNAMIC, budget=10**9, **WEIGHTS)
    assert caught.value.code == "MEM002"


def test_the_largest_gear_is_planned():
    gears = [{"x": (n, 128)} for n in (1, 16, 4)]
    planned = plan(DYNAMIC, gears, **WEIGHTS)
    assert planned.plan.arena_bytes == 2 * 16 * 512 * 4
    assert planned.plan.sizes == ({"x": (16, 128)},)


def test_gears_that_do_not_cover_each_other_share_one_plan():
    text = """g (float[N, M] x) => (float[N, 1] y) {
        a = Softmax <axis: int = 0> (x)
        b = Softmax(x)
        c = ReduceSum(a, axis)
        d = ReduceSum(b, axis)
        y = Add(c, d)
    }"""
    gears = [{"x": (2, 256)}, {"x": (64, 256)}, {"x": (128, 8)}]
    planned = plan(text, gears, axis=np.array([1], np.int64))
    assert planned.plan.sizes == tuple(gears[1:])
    for gear in gears:
        feeds = {"x": np.ones(gear["x"], np.float32)}
        rows, columns = gear["x"]
        expected = np.full((rows, 1), columns / rows + 1, np.float32)
        np.testing.assert_allclose(Machine(planned).run(feeds)["y"], expected, rtol=1e-5)


def test_sizes_that_contradict_the_model_are_refused():
    for sizes in ({"x": (4, 5)}, {"x": (4,)}):
        with pytest.raises(UsageError) as caught:
            plan(DYNAMIC, [sizes], **WEIGHTS)
        assert caught.value.code == "MEM003"


def test_values_that_depend_on_data_are_named():
    text = """g (float[4, 128] x) => (float[1] y) {
        a = Exp(x)
        [nz] n = NonZero(a)
        f = Cast <to: int = 1> (n)
        s = ReduceSum(f)
        y = Reshape(s, one)
    }"""
    planned = plan(text, one=np.array([1], np.int64))
    assert planned.plan.unsized == ("n", "f")
    assert planned.plan.arena_bytes == 2048
    with pytest.raises(UsageError) as caught:
        plan(text, one=np.array([1], np.int64), budget=10**9)
    assert caught.value.code == "MEM002"


def test_a_value_of_known_size_that_shows_one_of_unknown_size_is_planned():
    text = """g (float[4, 128] x) => (float y) {
        n = NonZero(x)
        [known] r = Reshape(n, shape)
        f = Cast <to: int = 1> (r)
        y = ReduceMax <keepdims: int = 0> (f)
    }"""
    planned = plan(text, shape=np.array([2, 64], np.int64))
    assert planned.plan.unsized == ("n",)
    assert planned.places["known"].offsets != (OUTSIDE,)


def refused(budget, **options):
    with pytest.raises(WorkspaceError) as caught:
        plan(DYNAMIC, [{"x": (64, 128)}], budget=budget, **options, **WEIGHTS)
    return caught.value


def test_a_missed_budget_names_tensors_and_what_would_fit():
    error = refused(100_000)
    assert error.code == "MEM001"
    assert error.exit_code == 1
    assert "'a' [64, 512] by node 'wide' (Gemm), 131,072 bytes" in error.why
    assert "'b' [64, 512] by node 'soft' (Softmax), 131,072 bytes" in error.why
    assert "N=16 would need 65,536 bytes" in error.fix
    assert plan(DYNAMIC, [{"x": (16, 128)}], budget=65_536, **WEIGHTS).plan.arena_bytes == 65_536
    assert "recompute" in error.fix
    assert "recompute" not in refused(100_000, optimizer="recompute").fix


def test_the_split_that_is_named_fits(tmp_path):
    text = """g (float[64, 128] x) => (float[64, 128] y) {
        [n0] a = MatMul(x, w)
        [n1] b = Softmax(a)
        [n2] c = MatMul(b, v)
        [n3] d = MatMul(c, w)
        [n4] y = MatMul(d, v)
    }"""
    with pytest.raises(WorkspaceError) as caught:
        plan(text, budget=200_000, **WEIGHTS)
    assert "a split before node 'n1' would need 163,840 bytes in each part" in caught.value.fix
    whole = onnx.shape_inference.infer_shapes(parse(text, **WEIGHTS))
    onnx.save(whole, tmp_path / "whole.onnx")
    needs = []
    for inputs, outputs in ((["x"], ["a"]), (["a"], ["y"])):
        onnx.utils.extract_model(tmp_path / "whole.onnx", tmp_path / "part.onnx", inputs, outputs)
        needs.append(plan_memory(load(tmp_path / "part.onnx").model, [{}]).plan.arena_bytes)
    assert max(needs) == 163_840


def test_recomputing_keeps_a_budget_that_the_order_cannot():
    text = """g (float[4, 1] x) => (float[4, 1] y) {
        [wide] a = Expand(x, shape)
        [s1] sa = Softmax(a)
        [r1] ra = ReduceSum(sa, axis)
        [mm] m = MatMul(ra, up)
        [s2] sm = Softmax(m)
        [r2] rm = ReduceSum(sm, axis)
        [mul] p = Mul(a, rm)
        [r3] y = ReduceSum(p, axis)
    }"""
    weights = {
        "shape": np.array([4, 1024], np.int64),
        "axis": np.array([1], np.int64),
        "up": np.ones((1, 1024), np.float32),
    }
    budget = 2 * 16384 + 512
    with pytest.raises(WorkspaceError):
        plan(text, budget=budget, **weights)
    planned = plan(text, budget=budget, optimizer="recompute", **weights)
    assert planned.plan.recomputed == ("wide__recompute",)
    assert planned.plan.arena_bytes <= budget
    feeds = {"x": np.array([[1], [2], [3], [4]], np.float32)}
    np.testing.assert_allclose(Machine(planned).run(feeds)["y"], 1024 * feeds["x"], rtol=1e-5)


def recomputed(text, budget, **weights):
    model = load(parse(text, **weights)).model
    forms = [forms_at(model, {})]
    changed, known, added = recompute(model, forms, budget)
    before, after = (peak(build_program(m.graph, f)) for m, f in ((model, forms), (changed, known)))
    return before, after, added


WAITING = """g (float[4, 1] x) => (float[4, 1] y) {
    [wide] a = Expand(x, shape)
    [neg] n = SOURCE
    [s1] sa = Softmax(a)
    [r1] ra = ReduceSum(sa, axis)
    [mm] m = MatMul(ra, up)
    [s2] sm = Softmax(m)
    [r2] rm = ReduceSum(sm, axis)
    [mul] p = Mul(n, rm)
    [r3] y = ReduceSum(p, axis)
}"""
EXPANDED = {
    "shape": np.array([4, 1024], np.int64),
    "axis": np.array([1], np.int64),
    "up": np.ones((1, 1024), np.float32),
}


def test_what_a_value_is_computed_from_is_computed_again_too():
    # Keeping the Expand's result instead of the Neg's would save nothing.
    text = WAITING.replace("SOURCE", "Neg(a)").replace("Softmax(a)", "Softmax(n)")
    before, after, added = recomputed(text, 0, **EXPANDED)
    assert before == 3 * 16384
    assert after <= 2 * 16384 + 512
    assert added == ("wide__recompute", "neg__recompute")


def test_a_value_that_is_only_read_later_moves_and_keeps_its_name():
    text = WAITING.replace("SOURCE", "Neg(a)")
    model = load(parse(text, **EXPANDED)).model
    changed, _, added = recompute(model, [forms_at(model, {})], 0)
    assert added == ("wide__recompute",)
    nodes = {node.name: node for node in changed.graph}
    names = list(nodes)
    assert names.index("r2") < names.index("neg") < names.index("mul")
    assert nodes["neg"].outputs[0].name == "n"
    assert nodes["neg"].metadata_props == {"cannc.origin": '["neg"]'}
    assert nodes["wide__recompute"].metadata_props == {}


def test_nothing_is_computed_twice_where_it_does_not_help():
    # The Relu is cheap, but the Softmax under it would have to wait instead of it.
    text = WAITING.replace("SOURCE", "Softmax <axis: int = 0> (a)").replace(
        "Mul(n, rm)", "Mul(q, rm)"
    )
    text = text.replace("[s1]", "[relu] q = Relu(n)\n    [s1]")
    before, after, added = recomputed(text, 0, **EXPANDED)
    assert (after, added) == (before, ())


def test_the_plan_travels_in_the_artifact(tmp_path):
    planned = plan_memory(load(mlp()).model, [{"x": (300, 8)}])
    out = tmp_path / "m.om"
    write_om(planned.model, out, name="m", attributes=planned.attributes(), memory=planned.places)
    file = OmFile.open(out)
    stored = MemoryPlan.of_om(file)
    assert stored.weight_bytes > 0
    assert stored.arena_bytes == planned.plan.arena_bytes > 0
    assert stored.holdings == planned.plan.holdings
    assert MemoryPlan.from_data(json.loads(json.dumps(stored.as_data()))) == stored
    ops = {op.name: op for op in file.definition.graph[0].op}
    for node in planned.model.graph:
        assert memory_of(ops[node.name]) == planned.places[node.name]
    # What a device would reserve is not claimed.
    assert file.model_attributes["memory_size"] == 0
    assert not any(op.input_i or op.output_i or op.workspace for op in ops.values())
    assert [node.name for node in file.to_model().graph] == [n.name for n in planned.model.graph]


def test_offsets_outside_the_arena_are_not_written(tmp_path):
    planned = plan_memory(load(mlp()).model, [{"x": (300, 8)}])
    attributes = {**planned.attributes(), "cannc_memory_arena": 100}
    with pytest.raises(CanncError, match="readable everywhere") as caught:
        write_om(
            planned.model, tmp_path / "m.om", name="m", attributes=attributes, memory=planned.places
        )
    assert "of an arena of 100" in caught.value.why


@pytest.mark.parametrize(
    "text", ["", "{", "[]", "{}", '{"holdings": 3, "sizes": []}', '{"holdings": [], "sizes": [3]}']
)
def test_a_damaged_plan_is_no_plan(tmp_path, text):
    out = tmp_path / "m.om"
    write_om(ir.from_proto(mlp()), out, name="m", attributes={"cannc_memory_plan": text})
    assert MemoryPlan.of_om(OmFile.open(out)) is None
