"""Loops, scans, sequences, optional values and recurrent layers laid flat."""

from __future__ import annotations

import numpy as np
import pytest
from tests.support.fusion import fuse, normal
from tests.support.models import parse
from tests.support.ops import B4
from tests.support.passes import fates, optimized
from tests.support.runner import assert_same_results

from cannc.compiler.core.errors import UsageError
from cannc.compiler.core.provenance import origins
from cannc.compiler.core.target import Target
from cannc.compiler.core.unit import load
from cannc.op_support.checker import check
from cannc.passes.optimize import optimize

X = normal(2)


def loop(trips="n", condition="t", body="d = Identity(c) r = Mul(s, s) o = Add(r, x)", **weights):
    """Return a model of a Loop over state s with scan output o."""
    return parse(
        f"""g (float[2] x) => (float[2] y, float[K, 2] z) {{
            y, z = Loop ({trips}, {condition}, x) <
                body = b (int64 i, bool c, float[2] s) => (bool d, float[2] r, float[2] o) {{
                    {body} }}
            > }}""",
        **{"n": np.array(3, np.int64), "t": np.array(True), **weights},
    )


class TestLoop:
    def test_rounds_are_written_out(self):
        result = fuse(loop(), "unroll-loop", feeds={"x": X})
        assert result.ops["Mul"] == result.ops["Add"] == 3
        assert result.ops["Loop"] == 0

    def test_each_copy_knows_its_original_node(self):
        result = fuse(loop(), "unroll-loop", feeds={"x": X})
        found = [origins(node) for node in result.unit.model.graph if node.op_type == "Mul"]
        assert found == [["Loop_0.body/Mul_2"]] * 3
        assert fates(result.unit)["Loop_0.body/r"] == "inside"
        assert fates(result.unit)["y"] == "same"

    def test_the_round_number(self):
        body = "d = Identity(c) f = Cast<to = 1>(i) r = Add(s, f) o = Identity(r)"
        result = fuse(loop(body=body), "unroll-loop", feeds={"x": X})
        assert result.ops["Loop"] == 0

    def test_a_counter_ends_it(self):
        body = "d = Less(i, last) r = Mul(s, s) o = Add(r, x)"
        model = loop(trips="", body=body, last=np.array(3, np.int64))
        result = fuse(model, "unroll-loop", feeds={"x": X})
        assert result.ops["Mul"] == 4

    def test_a_counter_among_the_states_ends_it(self):
        model = parse(
            """g (float[2] x) => (float[2] y, int64 k) {
                y, k = Loop (, t, x, zero) <
                    body = b (int64 i, bool c, float[2] s, int64 j) =>
                        (bool d, float[2] r, int64 q) {
                        q = Add(j, two) d = Less(q, seven) r = Tanh(s) }
                > }""",
            t=np.array(True),
            zero=np.array(0, np.int64),
            two=np.array(2, np.int64),
            seven=np.array(7, np.int64),
        )
        assert fuse(model, "unroll-loop", feeds={"x": X}).ops["Tanh"] == 4

    def test_no_round_at_all(self):
        model = parse(
            """g (float[2] x) => (float[2] y) {
                a = Relu(x) b = Loop (n, , a) < body = b (int64 i, bool c, float[2] s) =>
                    (bool d, float[2] r) { d = Identity(c) r = Tanh(s) } > y = Neg(b) }""",
            n=np.array(0, np.int64),
        )
        assert fuse(model, "unroll-loop", feeds={"x": X}).ops == {"Relu": 1, "Neg": 1}

    def test_nested_loops(self):
        body = """d = Identity(c) r = Loop (n, t, s) <
            body = e (int64 j, bool p, float[2] u) => (bool q, float[2] v) {
                q = Identity(p) w = Mul(u, x) v = Add(w, s) }
        > o = Identity(r)"""
        result = fuse(loop(body=body), "unroll-loop", feeds={"x": X})
        assert result.ops["Mul"] == 9

    def test_an_inner_loop_whose_count_the_outer_one_knows(self):
        body = """d = Identity(c) r = Loop (i, t, s) <
            body = e (int64 j, bool p, float[2] u) => (bool q, float[2] v) {
                q = Identity(p) v = Mul(u, x) }
        > o = Identity(r)"""
        before = load(loop(body=body))
        after = optimized(before)
        assert_same_results(before.model, after.model, {"x": X}, rtol=1e-6)
        assert "Loop" not in {node.op_type for node in after.model.graph}

    @pytest.mark.parametrize(
        ("model", "reason"),
        [
            (
                "y, z = Loop (m, t, x)",
                "its trip count depends on data",
            ),
            (
                "y, z = Loop (n, f, x)",
                "whether it starts at all depends on data",
            ),
        ],
    )
    def test_what_depends_on_data_is_refused(self, model, reason):
        text = f"""g (float[2] x, int64 m, bool f) => (float[2] y, float[K, 2] z) {{ {model} <
            body = b (int64 i, bool c, float[2] s) => (bool d, float[2] r, float[2] o) {{
                d = Identity(c) r = Tanh(s) o = Neg(r) }} > }}"""
        proto = parse(text, n=np.array(3, np.int64), t=np.array(True))
        feeds = {"x": X, "m": np.array(2, np.int64), "f": np.array(True)}
        result = fuse(proto, "unroll-loop", feeds=feeds)
        assert reason in result.refusals[0]
        assert result.ops["Loop"] == 1

    def test_a_condition_on_the_state_is_refused(self):
        body = "m = ReduceSum<keepdims = 0>(s) d = Less(m, big) r = Add(s, s) o = Neg(r)"
        model = loop(body=body, big=np.array(5, np.float32))
        result = fuse(model, "unroll-loop", feeds={"x": np.abs(X)})
        assert "whether it goes on depends on data" in result.refusals[0]

    def test_too_many_rounds_are_refused(self):
        model = loop(n=np.array(100_000, np.int64))
        result = fuse(model, "unroll-loop", feeds={"x": np.zeros(2, np.float32)})
        assert "more than 20000 nodes" in result.refusals[0]


class TestScan:
    @pytest.mark.parametrize("directions", [(0, 0), (1, 0), (0, 1)])
    def test_directions(self, directions):
        model = parse(
            f"""g (float[2] s, float[3, 2] xs) => (float[2] y, float[3, 2] z) {{
                y, z = Scan<num_scan_inputs = 1, scan_input_directions = [{directions[0]}],
                    scan_output_directions = [{directions[1]}],
                    body = b (float[2] u, float[2] x) => (float[2] v, float[2] o) {{
                        v = Add(u, x) o = Mul(v, x) }}>(s, xs) }}"""
        )
        result = fuse(model, "unroll-scan", feeds={"s": X, "xs": normal(3, 2)})
        assert result.ops["Mul"] == 3

    def test_axes(self):
        model = parse(
            """g (float[2] s, float[2, 3] xs) => (float[2] y, float[2, 3] z) {
                y, z = Scan<num_scan_inputs = 1, scan_input_axes = [1], scan_output_axes = [-1],
                    body = b (float[2] u, float[2] x) => (float[2] v, float[2] o) {
                        v = Add(u, x) o = Mul(v, x) }>(s, xs) }"""
        )
        result = fuse(model, "unroll-scan", feeds={"s": X, "xs": normal(2, 3)})
        assert result.ops["Scan"] == 0

    def test_an_open_length_is_refused(self):
        model = parse(
            """g (float[2] s, float[N, 2] xs) => (float[2] y) {
                y = Scan<num_scan_inputs = 1, body = b (float[2] u, float[2] x) => (float[2] v) {
                    v = Add(u, x) }>(s, xs) }"""
        )
        result = fuse(model, "unroll-scan", feeds={"s": X, "xs": normal(3, 2)})
        assert "the number of its steps is not known" in result.refusals[0]


class TestSequences:
    @pytest.mark.parametrize("keep", [0, 1])
    def test_a_split_is_taken_apart(self, keep):
        shape = "A, B" if keep else "A"
        model = parse(
            f"""g (float[3, 2] x) => (float[{shape}] y) {{
                s = SplitToSequence<axis = 0, keepdims = {keep}>(x) y = SequenceAt(s, k) }}""",
            k=np.array(-1, np.int64),
        )
        result = fuse(model, "resolve-sequences", feeds={"x": normal(3, 2)})
        assert result.ops["Split"] == 1
        assert not {"SplitToSequence", "SequenceAt"} & set(result.ops)

    def test_sizes(self):
        model = parse(
            """g (float[5, 2] x) => (float[A, 2] y, float[B, 2] z) {
                s = SplitToSequence(x, sizes) y = SequenceAt(s, k)
                q = SplitToSequence(x, two) z = SequenceAt(q, k) }""",
            k=np.array(1, np.int64),
            sizes=np.array([1, 4], np.int64),
            two=np.array(2, np.int64),
        )
        result = fuse(model, "resolve-sequences", feeds={"x": normal(5, 2)})
        assert result.ops["Split"] == 2

    @pytest.mark.parametrize("new", [0, 1])
    def test_inserting_erasing_joining(self, new):
        model = parse(
            f"""g (float[2, 2] x) => (float[{"A, B, C" if new else "A, B"}] y, int64 n) {{
                r = Relu(x) t = Tanh(x) e = SequenceEmpty() a = SequenceInsert(e, x)
                b = SequenceInsert(a, r) c = SequenceInsert(b, t, zero) d = SequenceErase(c, one)
                y = ConcatFromSequence<axis = 0, new_axis = {new}>(d) n = SequenceLength(c) }}""",
            zero=np.array(0, np.int64),
            one=np.array(1, np.int64),
        )
        result = fuse(model, "resolve-sequences", feeds={"x": normal(2, 2)})
        assert not any("Sequence" in op for op in result.ops)

    def test_a_place_that_depends_on_data_is_refused(self):
        model = parse(
            """g (float[2] x, int64 k) => (float[2] y) {
                r = Relu(x) s = SequenceConstruct(x, r) y = SequenceAt(s, k) }"""
        )
        feeds = {"x": X, "k": np.array(1, np.int64)}
        assert "depends on data" in fuse(model, "resolve-sequences", feeds=feeds).refusals[0]


def test_optional_values():
    model = parse(
        """g (float[2] x) => (float[2] y, bool h, bool e) {
            r = Relu(x) o = Optional(r) g1 = OptionalGetElement(o) y = Neg(g1)
            h = OptionalHasElement(o) e = OptionalHasElement() }"""
    )
    result = fuse(model, "resolve-optionals", feeds={"x": X})
    assert not any("Optional" in op for op in result.ops)


class TestDefinitions:
    @pytest.mark.parametrize(
        ("text", "weights"),
        [
            ("NegativeLogLikelihoodLoss<reduction = 'none'>(x, t)", {"t": np.array([0, 2])}),
            ("CenterCropPad<axes = [1]>(x, t)", {"t": np.array([2])}),
        ],
    )
    def test_operators_without_a_plugin(self, text, weights):
        text = text.replace("'", '"')
        dims = "A" if "Loss" in text else "A, B"
        model = parse(f"g (float[2, 3] x) => (float[{dims}] y) {{ y = {text} }}", **weights)
        before = load(model)
        after = optimized(before)
        assert_same_results(before.model, after.model, {"x": normal(2, 3)})
        assert check(after, B4).refused == []


def recurrent(kind, sizes, attributes="", **weights):
    """Return a model of one recurrent layer with all its outputs."""
    steps, batch, width, hidden, directions, gates = sizes
    rng = np.random.default_rng(7)
    made = {
        "w": rng.normal(size=(directions, gates * hidden, width)),
        "r": rng.normal(size=(directions, gates * hidden, hidden)),
        "b": rng.normal(size=(directions, 2 * gates * hidden)),
        "h": rng.normal(size=(directions, batch, hidden)),
        "c": rng.normal(size=(directions, batch, hidden)),
        "p": rng.normal(size=(directions, 3 * hidden)),
    }
    used = {k: v.astype(np.float32) for k, v in made.items() if weights.get(k, True)}
    lengths = weights.get("lengths")
    if lengths is not None:
        used["l"] = np.array(lengths, np.int32)
    lstm = kind == "LSTM"
    names = ["x", "w", "r", "b", "l", "h", *(["c", "p"] if lstm else [])]
    given = ", ".join(name if name == "x" or name in used else "" for name in names)
    outputs = ["float[A, B, C, D] y", "float[E, F, G] yh"] + ["float[H, I, J] yc"] * lstm
    results = ", ".join(text.split()[-1] for text in outputs)
    direction = weights.get("direction") or ("forward", "bidirectional")[directions - 1]
    shape = (batch, steps, width) if "layout = 1" in attributes else (steps, batch, width)
    return parse(
        f"""g (float[{", ".join(map(str, shape))}] x) => ({", ".join(outputs)}) {{
            {results} = {kind}<hidden_size = {hidden}, direction = "{direction}"
                {attributes}>({given}) }}""",
        **{k: v for k, v in used.items() if k in names},
    ), normal(*shape)


class TestRecurrent:
    @pytest.mark.parametrize("directions", [1, 2])
    @pytest.mark.parametrize("lengths", [None, [4, 2, 1], [4, 4, 4]])
    @pytest.mark.parametrize(
        ("kind", "gates", "attributes"),
        [
            ("RNN", 1, ""),
            ("RNN", 1, ", clip = 0.5"),
            ("LSTM", 4, ", clip = 0.5"),
            ("LSTM", 4, ", input_forget = 1"),
            ("GRU", 3, ", clip = 0.5"),
            ("GRU", 3, ", clip = 0.5, linear_before_reset = 1"),
        ],
    )
    def test_step_by_step(self, kind, gates, attributes, lengths, directions):
        model, x = recurrent(kind, (4, 3, 5, 2, directions, gates), attributes, lengths=lengths)
        result = fuse(model, "unroll-recurrent", feeds={"x": x}, rtol=1e-4, atol=1e-5)
        assert result.ops[kind] == 0
        assert check(result.unit, B4).exit_code == 0

    @pytest.mark.parametrize(
        ("kind", "gates", "activations"),
        [
            ("RNN", 1, '["Affine"], activation_alpha = [0.5], activation_beta = [0.1]'),
            ("RNN", 1, '["LeakyRelu"], activation_alpha = [0.3]'),
            ("RNN", 1, '["ScaledTanh"], activation_alpha = [0.3], activation_beta = [0.7]'),
            ("RNN", 1, '["Softsign"]'),
            ("LSTM", 4, '["HardSigmoid", "Relu", "Elu"], activation_alpha = [0.3, 0.9]'),
            ("GRU", 3, '["Sigmoid", "Softplus"]'),
        ],
    )  # fmt: skip
    def test_activations(self, kind, gates, activations):
        model, x = recurrent(kind, (3, 2, 3, 2, 1, gates), f", activations = {activations}")
        result = fuse(model, "unroll-recurrent", feeds={"x": x}, rtol=1e-4, atol=1e-5)
        assert result.ops[kind] == 0

    @pytest.mark.parametrize("kind", ["RNN", "LSTM"])
    def test_without_optional_inputs(self, kind):
        gates = {"RNN": 1, "LSTM": 4}[kind]
        model, x = recurrent(
            kind, (3, 2, 3, 2, 1, gates), ", clip = 0.7", b=False, h=False, c=False, p=False,
            direction="reverse",
        )  # fmt: skip
        result = fuse(model, "unroll-recurrent", feeds={"x": x}, rtol=1e-4, atol=1e-5)
        assert result.ops[kind] == 0

    def test_batch_first_is_turned(self):
        import onnx.reference

        model, x = recurrent("GRU", (4, 3, 5, 2, 1, 3), ", layout = 1", h=False)
        unit = load(model)
        expected = onnx.reference.ReferenceEvaluator(model).run(None, {"x": x})
        after = optimized(unit, "O0")
        from tests.support.runner import run_plain

        actual = run_plain(after.model, {"x": x})
        for have, want in zip(actual.values(), expected, strict=True):
            np.testing.assert_allclose(have, want, rtol=1e-4, atol=1e-5)

    def test_what_the_device_has_stays(self):
        model, x = recurrent("LSTM", (3, 2, 3, 2, 1, 4), p=False)
        assert fuse(model, "unroll-recurrent", feeds={"x": x}).ops == {"LSTM": 1}

    def test_open_steps_are_refused(self):
        model, x = recurrent("RNN", (4, 3, 5, 2, 1, 1))
        model.graph.input[0].type.tensor_type.shape.dim[0].dim_param = "T"
        result = fuse(model, "unroll-recurrent", feeds={"x": x})
        assert "the number of steps" in result.refusals[0]


class TestFixedInputs:
    def test_a_fixed_value_decides_a_branch(self):
        before = load(RATE)
        after = _fixed({"sr": 16000})
        assert [value.name for value in after.model.graph.inputs] == ["x"]
        assert [node.op_type for node in after.model.graph] == ["Neg"]
        assert after.log[0].name == "fix-inputs"
        assert [value.name for value in before.model.graph.inputs] == ["x", "sr"]

    @pytest.mark.parametrize(
        ("fixed", "code"),
        [({"rate": 1}, "PASS004"), ({"sr": 1.5}, "PASS005"), ({"x": [1, 2, 3]}, "PASS005")],
    )
    def test_what_does_not_fit_is_an_error(self, fixed, code):
        with pytest.raises(UsageError, match=code):
            _fixed(fixed)


RATE = parse(
    """g (float[2] x, int64 sr) => (float[2] y) {
        c = Equal(sr, k) y = If (c) < then_branch = a () => (float[2] u) { u = Neg(x) },
            else_branch = b () => (float[2] v) { v = Relu(x) } > }""",
    k=np.array(16000, np.int64),
)


def _fixed(fixed):
    from tests.support.runner import PlainRunner

    return optimize(
        load(RATE),
        level="O1",
        precision="keep",
        target=Target(),
        runner=PlainRunner(),
        may_use_kernel=lambda op_type, dtype: None,
        fixed=fixed,
    )
