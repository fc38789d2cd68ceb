"""Known traps: forms that the target refuses or gets wrong, each written so that it does not."""

from __future__ import annotations

import numpy as np
import pytest
from tests.support.fusion import fuse, normal
from tests.support.models import parse
from tests.support.ops import B4
from tests.support.passes import parse as unit_of
from tests.support.passes import run, show

from cannc.op_support.checker import check

IMAGE = normal(1, 2, 7, 6)


def supported(result) -> None:
    """Nothing refused or silently wrong is left."""
    report = check(result.unit, B4)
    assert report.refused == report.wrong == []


class TestExplicitAttributes:
    def test_the_kernel_of_a_convolution(self):
        model = parse(
            """g (float[1, 2, 7, 6] x) => (float[A, B, C, D] y, float[E, F, G, H] z) {
                y = Conv(x, w) z = ConvTranspose(x, w) }""",
            w=normal(2, 2, 3, 2),
        )
        result = fuse(model, "explicit-attributes", feeds={"x": IMAGE})
        assert list(result.node("Conv").attributes["kernel_shape"].as_ints()) == [3, 2]
        supported(result)

    def test_the_order_of_a_transpose(self):
        model = parse("g (float[1, 2, 7, 6] x) => (float[6, 7, 2, 1] y) { y = Transpose(x) }")
        result = fuse(model, "explicit-attributes", feeds={"x": IMAGE})
        assert list(result.node("Transpose").attributes["perm"].as_ints()) == [3, 2, 1, 0]

    def test_the_mode_of_a_grid_sample(self):
        model = parse(
            """g (float[1, 2, 7, 6] x, float[1, 3, 4, 2] i) => (float[A, B, C, D] y) {
                y = GridSample<padding_mode = "border">(x, i) }"""
        )
        result = fuse(model, "explicit-attributes", feeds={"x": IMAGE, "i": normal(1, 3, 4, 2)})
        attributes = result.node("GridSample").attributes
        assert attributes["mode"].as_string() == "bilinear"
        assert attributes["padding_mode"].as_string() == "border"

    def test_the_dtype_of_eye_like(self):
        model = parse("g (int32[3, 3] x) => (int32[3, 3] y) { y = EyeLike(x) }")
        result = fuse(model, "explicit-attributes", feeds={"x": np.ones((3, 3), np.int32)})
        supported(result)

    def test_constants_of_all_kinds(self):
        model = parse(
            """g (float[2] x) => (float[2] y, int64[2] i, string[2] s, string t, int64 k) {
                f = Constant<value_float = 2.5>() h = Constant<value_floats = [1.0, 2.0]>()
                m = Mul(x, f) y = Add(m, h)
                i = Constant<value_ints = [3, 4]>() k = Constant<value_int = 7>()
                s = Constant<value_strings = ["a", "b"]>() t = Constant<value_string = "c">() }"""
        )
        unit = run(unit_of_proto(model), "explicit-attributes")
        report = check(unit, B4)
        assert [f for f in report.findings if f.code == "OP032"] == []
        assert [node.attributes["value"].as_tensor().numpy().tolist() for node in unit.model.graph
                if node.op_type == "Constant"] == [
            2.5, [1.0, 2.0], [3, 4], 7, [b"a", b"b"], b"c",
        ]  # fmt: skip

    def test_an_unknown_rank_is_refused(self):
        model = parse(
            """g (float[1, 2, 7, 6] x, int64[N] s) => (float[A, B] y) {
                r = Reshape(x, s) y = Transpose(r) }"""
        )
        result = fuse(
            model, "explicit-attributes", feeds={"x": IMAGE, "s": np.array([12, 7], np.int64)}
        )
        assert "the rank of its input is unknown" in result.refusals[0]


def unit_of_proto(model):
    """Return a unit for a model in memory."""
    from cannc.compiler.core.unit import load

    return load(model)


class TestExplicitInputs:
    @pytest.mark.parametrize(("parts", "sizes"), [(3, [3, 3, 1]), (2, [4, 3]), (7, [1] * 7)])
    def test_the_sizes_of_a_split(self, parts, sizes):
        names = ", ".join(f"float[A{i}, 6] y{i}" for i in range(parts))
        outputs = ", ".join(f"y{i}" for i in range(parts))
        model = parse(
            f"g (float[7, 6] x) => ({names}) {{ {outputs} = Split<num_outputs = {parts}>(x) }}"
        )
        result = fuse(model, "explicit-inputs", feeds={"x": normal(7, 6)})
        split = result.node("Split")
        assert split.inputs[1].const_value.numpy().tolist() == sizes
        supported(result)

    def test_a_dimension_that_is_not_known_is_refused(self):
        model = parse(
            "g (float[N, 6] x) => (float[A, 6] y, float[B, 6] z) { y, z = Split<num_outputs=2>(x) }"
        )
        result = fuse(model, "explicit-inputs", feeds={"x": normal(7, 6)})
        assert "the dimension that it splits is not known" in result.refusals[0]

    @pytest.mark.parametrize("given", ["", ", most", ", most, overlap", ", most, , score"])
    def test_the_limits_of_a_suppression(self, given):
        rng = np.random.default_rng(3)
        corners = np.sort(rng.random((1, 12, 2, 2)), axis=2).reshape(1, 12, 4)
        model = parse(
            f"""g (float[1, 12, 4] b, float[1, 2, 12] s) => (int64[N, 3] y) {{
                y = NonMaxSuppression(b, s{given}) }}""",
            most=np.array([5], np.int64),
            overlap=np.array([0.5], np.float32),
            score=np.array([0.2], np.float32),
        )
        feeds = {
            "b": corners.astype(np.float32),
            "s": rng.normal(size=(1, 2, 12)).astype(np.float32),
        }
        result = fuse(model, "explicit-inputs", feeds=feeds)
        assert all(value is not None for value in result.node("NonMaxSuppression").inputs)
        assert len(result.node("NonMaxSuppression").inputs) == 5


class TestNoOps:
    @pytest.mark.parametrize(
        "text", ["Clip(a)", "ReduceMean<noop_with_empty_axes = 1>(a)", "Dropout(a, ratio)"]
    )
    def test_nodes_that_do_nothing_go(self, text):
        model = parse(
            f"g (float[2, 3] x) => (float[2, 3] y) {{ a = Relu(x) b = {text} y = Relu(b) }}",
            ratio=np.array(0.5, np.float32),
        )
        result = fuse(model, "remove-no-ops", feeds={"x": normal(2, 3)})
        assert set(result.ops) <= {"Relu", "Identity"}

    def test_a_graph_output_keeps_its_name(self):
        model = parse("g (float[2] x) => (float[2] y) { y = Clip(x) }")
        assert fuse(model, "remove-no-ops", feeds={"x": normal(2)}).ops == {"Identity": 1}

    @pytest.mark.parametrize("shape", ["2, 3", "N, 3"])
    def test_the_mask_of_an_idle_dropout_is_true(self, shape):
        model = parse(
            f"g (float[{shape}] x) => (float[{shape}] y, bool[{shape}] m) {{ y, m = Dropout(x) }}"
        )
        data = normal(2, 3)
        data[0, 0] = np.nan
        assert fuse(model, "remove-no-ops", feeds={"x": data}).ops["Dropout"] == 0

    def test_a_dropout_that_draws_is_refused(self):
        model = parse(
            "g (float[2] x) => (float[2] y) { y = Dropout<seed = 1>(x, r, t) }",
            r=np.array(0.5, np.float32),
            t=np.array(True),
        )
        unit = run(unit_of_proto(model), "remove-no-ops")
        assert "at random" in unit.log[-1].refusals[0]

    def test_indices_that_nobody_reads_go(self):
        model = parse(
            """g (float[1, 2, 7, 6] x) => (float[A, B, C, D] y) {
                y, i = MaxPool<kernel_shape = [2, 2], storage_order = 1>(x) }"""
        )
        supported(fuse(model, "remove-no-ops", feeds={"x": IMAGE}))

    def test_bounds_and_axes_are_kept(self):
        model = parse(
            """g (float[2, 3] x) => (float[A, B] y) {
                a = Clip(x, low) y = ReduceMean<noop_with_empty_axes = 1>(a, axes) }""",
            low=np.array(0, np.float32),
            axes=np.array([1], np.int64),
        )
        result = fuse(model, "remove-no-ops", feeds={"x": normal(2, 3)})
        assert result.ops == {"Clip": 1, "ReduceMean": 1}


class TestFloorMod:
    @pytest.mark.parametrize("dtype", [np.int8, np.int16, np.int32, np.int64])
    def test_integers_of_any_sign(self, dtype):
        name = np.dtype(dtype).name
        model = parse(f"g ({name}[N] a, {name}[N] b) => ({name}[N] y) {{ y = Mod(a, b) }}")
        limits = np.iinfo(dtype)
        left = np.array([*range(-8, 9), limits.min, limits.max, limits.max, limits.min], dtype)
        right = np.array([*[3, -3, 5, -7] * 4, 2, -5, limits.min, limits.max, limits.max], dtype)
        result = fuse(model, "floor-mod", feeds={"a": left, "b": right}, rtol=0, atol=0)
        assert result.node("Mod").attributes["fmod"].as_int() == 1
        supported(result)

    def test_what_is_never_negative_stays(self):
        model = parse(
            "g (float[N, M] x) => (int64[2] y) { s = Shape(x) y = Mod(s, k) }",
            k=np.array([2], np.int64),
        )
        assert fuse(model, "floor-mod", feeds={"x": normal(5, 4)}).ops == {"Shape": 1, "Mod": 1}

    def test_the_truncating_form_stays(self):
        model = parse("g (int32[N] a, int32[N] b) => (int32[N] y) { y = Mod<fmod = 1>(a, b) }")
        feeds = {"a": np.array([-5, 5], np.int32), "b": np.array([3, -3], np.int32)}
        assert fuse(model, "floor-mod", feeds=feeds).ops == {"Mod": 1}


@pytest.mark.parametrize("negative", [0, 1])
@pytest.mark.parametrize("positive", [0, 1])
def test_infinities_of_one_sign(negative, positive):
    model = parse(
        f"""g (float[4] x) => (bool[4] y) {{
            y = IsInf<detect_negative = {negative}, detect_positive = {positive}>(x) }}"""
    )
    feeds = {"x": np.array([np.inf, -np.inf, np.nan, 1], np.float32)}
    result = fuse(model, "one-sided-isinf", feeds=feeds)
    assert result.ops["IsInf"] == (negative and positive)
    supported(result)


@pytest.mark.parametrize("op_type", ["ArgMax", "ArgMin"])
@pytest.mark.parametrize("axis", [0, 1, -1])
@pytest.mark.parametrize("keep", [0, 1])
def test_the_last_of_equal_elements(op_type, axis, keep):
    model = parse(
        f"""g (float[3, 4] x) => (int64[A{", B" * keep}] y) {{
            y = {op_type}<axis = {axis}, keepdims = {keep}, select_last_index = 1>(x) }}"""
    )
    data = np.array([[1, 2, 2, 1], [2, 2, 1, 1], [0, 0, 0, 0]], np.float32)
    result = fuse(model, "arg-last-index", feeds={"x": data}, rtol=0, atol=0)
    supported(result)


class TestPadAxes:
    def test_constant_pads(self):
        model = parse(
            "g (float[1, 2, 7, 6] x) => (float[A, B, C, D] y) { y = Pad(x, p, v, a) }",
            p=np.array([1, 2, 3, 0], np.int64),
            v=np.array(2.5, np.float32),
            a=np.array([-1, 2], np.int64),
        )
        result = fuse(model, "pad-all-axes", feeds={"x": IMAGE}, rtol=0, atol=0)
        assert result.ops == {"Pad": 1}
        supported(result)

    def test_computed_pads(self):
        model = parse(
            """g (float[1, 2, 7, 6] x, int64[4] p) => (float[A, B, C, D] y) {
                y = Pad<mode = "reflect">(x, p, , a) }""",
            a=np.array([3, 1], np.int64),
        )
        feeds = {"x": IMAGE, "p": np.array([1, 0, 2, 1], np.int64)}
        assert fuse(model, "pad-all-axes", feeds=feeds).ops == {"Concat": 1, "Gather": 1, "Pad": 1}

    def test_computed_axes_are_refused(self):
        model = parse(
            "g (float[2, 3] x, int64[1] a) => (float[A, B] y) { y = Pad(x, p, , a) }",
            p=np.array([1, 1], np.int64),
        )
        feeds = {"x": normal(2, 3), "a": np.array([1], np.int64)}
        assert "axes are computed" in fuse(model, "pad-all-axes", feeds=feeds).refusals[0]


class TestGatherND:
    @pytest.mark.parametrize(
        ("data", "indices", "batch"),
        [((2, 4, 3), (2, 2, 1), 1), ((2, 3, 4, 5), (2, 3, 2), 2), ((2, 3, 4), (2, 3, 1), 2)],
    )
    def test_batches_are_numbered(self, data, indices, batch):
        shape, places = (", ".join(map(str, dims)) for dims in (data, indices))
        rest = len(indices) - 1 + len(data) - batch - indices[-1]
        dims = ", ".join("ABCDE"[:rest])
        model = parse(
            f"""g (float[{shape}] x, int64[{places}] i) => (float[{dims}] y) {{
                y = GatherND<batch_dims = {batch}>(x, i) }}"""
        )
        rng = np.random.default_rng(0)
        feeds = {"x": normal(*data), "i": rng.integers(-2, 2, indices)}
        result = fuse(model, "batch-gather-nd", feeds=feeds, rtol=0, atol=0)
        supported(result)

    def test_open_shapes_are_refused(self):
        model = parse(
            """g (float[N, 4, 3] x, int64[N, 2, 1] i) => (float[A, B, C] y) {
                y = GatherND<batch_dims = 1>(x, i) }"""
        )
        feeds = {"x": normal(2, 4, 3), "i": np.zeros((2, 2, 1), np.int64)}
        result = fuse(model, "batch-gather-nd", feeds=feeds)
        assert "batch_dims with shapes that are not static" in result.refusals[0]


class TestScatterND:
    @pytest.mark.parametrize("reduction", ["add", "mul", "max", "min"])
    def test_repeated_indices_take_rounds(self, reduction):
        model = parse(
            f"""g (float[5, 2] x, float[4, 2] u) => (float[5, 2] y) {{
                y = ScatterND<reduction = "{reduction}">(x, i, u) }}""",
            i=np.array([[1], [1], [3], [-4]], np.int64),
        )
        feeds = {"x": normal(5, 2), "u": normal(4, 2, seed=4)}
        result = fuse(model, "scatter-nd-reduction", feeds=feeds)
        assert result.ops["ScatterND"] == 3
        supported(result)

    def test_indices_of_higher_rank(self):
        model = parse(
            """g (float[3, 4] x, float[2, 2] u) => (float[3, 4] y) {
                y = ScatterND<reduction = "mul">(x, i, u) }""",
            i=np.array([[[0, 1], [2, 3]], [[0, 1], [1, 1]]], np.int64),
        )
        feeds = {"x": normal(3, 4), "u": normal(2, 2, seed=4)}
        assert fuse(model, "scatter-nd-reduction", feeds=feeds).ops["ScatterND"] == 2

    def test_few_computed_indices_take_a_round_each(self):
        model = parse(
            """g (float[5] x, int64[3, 1] i, float[3] u) => (float[5] y) {
                y = ScatterND<reduction = "mul">(x, i, u) }"""
        )
        feeds = {"x": normal(5), "i": np.array([[1], [2], [-4]], np.int64), "u": normal(3)}
        result = fuse(model, "scatter-nd-reduction", feeds=feeds)
        assert result.ops["ScatterND"] == 3
        supported(result)

    def test_many_computed_indices_are_refused(self):
        model = parse(
            """g (float[5] x, int64[17, 1] i, float[17] u) => (float[5] y) {
                y = ScatterND<reduction = "mul">(x, i, u) }"""
        )
        feeds = {"x": normal(5), "i": np.zeros((17, 1), np.int64), "u": normal(17)}
        result = fuse(model, "scatter-nd-reduction", feeds=feeds)
        assert "reduction=mul: its indices are computed" in result.refusals[0]


@pytest.mark.parametrize(
    ("text", "name", "op"),
    [
        ("Gemm<alpha = 0.5, transB = 1>(x, x)", "gemm-alpha", "Gemm"),
        ("Selu<alpha = 2.0, gamma = 3.0>(x)", "general-selu", "Elu"),
    ],
)
def test_factors_that_the_device_drops(text, name, op):
    model = parse(f"g (float[3, 3] x) => (float[3, 3] y) {{ y = {text} }}")
    result = fuse(model, name, feeds={"x": normal(3, 3)})
    assert result.ops == {op: 1, "Mul": 1}
    supported(result)


def test_default_factors_stay():
    model = parse("g (float[3, 3] x) => (float[3, 3] y) { a = Gemm(x, x) y = Selu(a) }")
    result = fuse(model, "gemm-alpha", "general-selu", feeds={"x": normal(3, 3)})
    assert result.ops == {"Gemm": 1, "Selu": 1}


def test_weights_are_no_inputs():
    unit = unit_of(
        "(float[2] x, float[2] w) => (float[2] y) <float[2] w = {1, 2}> { y = Mul(x, w) }"
    )
    after = run(unit, "constant-inputs")
    assert [value.name for value in after.model.graph.inputs] == ["x"]
    assert show(after.model) == ["y = Mul(x, w)"]
    assert run(after, "constant-inputs").log[-1].applied == 0
