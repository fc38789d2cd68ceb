"""Properties of plans of random graphs, checked by a machine that runs them at their offsets."""

import itertools

import numpy as np
import onnx
import onnx_ir as ir
import onnxruntime as ort
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.support.memory import Machine, graphs
from tests.support.models import parse

from cannc.compiler.core.unit import load
from cannc.compiler.memory import placement
from cannc.compiler.memory.blame import WorkspaceError
from cannc.compiler.memory.builder import build_program
from cannc.compiler.memory.liveness import Buffer, live_bytes, peak
from cannc.compiler.memory.ordering import _beam, _candidates, _Costs
from cannc.compiler.memory.placement import _in_time, place
from cannc.compiler.memory.planner import in_order, plan_memory
from cannc.compiler.memory.recompute import recompute
from cannc.compiler.memory.sizing import forms_at

FEEDS = {"x": np.random.default_rng(0).uniform(-1, 0.5, (16, 24)).astype(np.float32)}
quick = settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])


def run(model):
    proto = model if isinstance(model, onnx.ModelProto) else ir.to_proto(model)
    options = ort.SessionOptions()
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.intra_op_num_threads = 1
    options.log_severity_level = 3
    session = ort.InferenceSession(proto.SerializeToString(), options)
    names = [output.name for output in session.get_outputs()]
    return dict(zip(names, session.run(names, FEEDS), strict=True))


def same(left, right):
    assert left.keys() == right.keys()
    for name, array in left.items():
        np.testing.assert_allclose(array, right[name], rtol=2e-3, atol=1e-6)


@quick
@given(graphs())
def test_a_run_at_the_planned_offsets_gives_the_right_outputs(proto):
    planned = plan_memory(load(proto).model, [{}])
    machine = Machine(planned)
    same(machine.run(FEEDS), run(proto))
    assert machine.most == planned.plan.lower_bound_bytes
    assert planned.plan.arena_bytes >= planned.plan.lower_bound_bytes
    assert planned.plan.given_order_bytes >= planned.plan.lower_bound_bytes


@quick
@given(graphs())
def test_every_order_that_is_tried_is_an_order_and_changes_no_number(proto):
    model = load(proto).model
    program = build_program(model.graph, [forms_at(model, {})])
    for order in _candidates(program):
        assert sorted(order) == [*range(len(program.steps))]
        moved = in_order(model, order)
        onnx.checker.check_model(ir.to_proto(moved), full_check=True)
        names = [node.name for node in model.graph]
        assert [node.name for node in moved.graph] == [names[index] for index in order]
    same(run(moved), run(proto))


@quick
@given(graphs(most_nodes=20), st.floats(0, 1))
def test_recomputing_lowers_the_peak_and_changes_no_number(proto, share):
    model = load(proto).model
    forms = [forms_at(model, {})]
    before = peak(build_program(model.graph, forms))
    changed, known, added = recompute(model, forms, int(before * share))
    after = peak(build_program(changed.graph, known))
    assert after <= before
    assert len(changed.graph) == len(model.graph) + len(added)
    assert {node.name for node in model.graph} | {*added} == {node.name for node in changed.graph}
    onnx.checker.check_model(ir.to_proto(changed), full_check=True)
    same(run(changed), run(proto))
    # The forms that it gives for the new values are those that inference finds.
    assert peak(build_program(changed.graph, [forms_at(changed, {})])) == after


@quick
@given(graphs(most_nodes=20), st.floats(0.3, 1))
def test_a_budget_is_kept_or_refused(proto, share):
    model = load(proto).model
    free = plan_memory(model, [{}]).plan.arena_bytes
    budget = int(free * share)
    try:
        planned = plan_memory(model, [{}], budget=budget, optimizer="recompute")
    except WorkspaceError:
        return
    assert planned.plan.arena_bytes <= budget
    same(Machine(planned).run(FEEDS), run(proto))


spans = st.tuples(st.integers(0, 30), st.integers(0, 12), st.integers(1, 40))
buffer_lists = st.lists(spans.map(lambda s: Buffer(s[0], s[0] + s[1], s[2] * 512)), max_size=40)


@settings(max_examples=150, deadline=None)
@given(buffer_lists)
def test_buffers_that_are_live_together_never_overlap(found):
    bound = max(live_bytes(found, 50))
    for placed in (place(found, bound), _in_time(found)):
        ends = [offset + b.size for offset, b in zip(placed.offsets, found, strict=True)]
        assert placed.arena == max(ends, default=0)
        assert placed.arena >= bound
        for step in range(50):
            live = sorted(
                (offset, end)
                for offset, end, b in zip(placed.offsets, ends, found, strict=True)
                if b.first <= step <= b.last
            )
            assert all(a[1] <= b[0] for a, b in itertools.pairwise(live))


def test_the_search_packs_tighter_than_the_lists_it_starts_from(monkeypatch):
    def mean_ratio():
        ratios = []
        for seed in range(10):
            rng = np.random.default_rng(seed)
            found = [
                Buffer(first, first + int(rng.integers(0, 6)), int(rng.integers(1, 64)) * 512)
                for first in range(60)
            ]
            bound = max(live_bytes(found, 80))
            ratios.append(place(found, bound).arena / bound)
        return np.mean(ratios)

    assert mean_ratio() <= 1.01
    monkeypatch.setattr(placement, "_MOST_ROUNDS", 0)
    assert mean_ratio() > 1.02


def test_beam_search_beats_the_given_order_where_branches_should_be_finished_one_by_one():
    proto = parse(
        """g (float[8, 64] x) => (float[8, 1] y) {
            a = Exp(x)
            b = Sin(x)
            c = Cos(x)
            d = Tan(x)
            sa = ReduceMean <keepdims: int = 1> (a, axes)
            sb = ReduceMean <keepdims: int = 1> (b, axes)
            sc = ReduceMean <keepdims: int = 1> (c, axes)
            sd = ReduceMean <keepdims: int = 1> (d, axes)
            y = Sum(sa, sb, sc, sd)
        }""",
        axes=np.array([1], np.int64),
    )
    model = load(proto).model
    program = build_program(model.graph, [forms_at(model, {})])
    assert peak(program) == 4 * 2048 + 512
    assert peak(program, _beam(program, _Costs.of(program))) == 2048 + 4 * 512
    planned = plan_memory(model, [{}])
    assert planned.plan.reordered
    assert planned.plan.lower_bound_bytes <= 2048 + 4 * 512
