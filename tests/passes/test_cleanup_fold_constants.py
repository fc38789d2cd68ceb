from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import onnx_ir as ir
import pytest
from tests.support.passes import fates, parse, random_feeds, run, show
from tests.support.runner import PlainRunner, assert_same_results

from cannc.compiler.core.runner import Array
from cannc.compiler.core.tensors import DerivedTensor
from cannc.passes.cleanup.lazy_layout import LARGE_BYTES


class CountingRunner(PlainRunner):
    """Counts runs; refuses models with a certain operator."""

    def __init__(self, refused: str = "") -> None:
        self.runs = 0
        self._refused = refused

    def run(
        self, model: ir.Model, feeds: Mapping[str, Array], fetches: Sequence[str]
    ) -> dict[str, Array]:
        self.runs += 1
        if any(node.op_type == self._refused for node in model.graph):
            raise RuntimeError(f"no kernel for {self._refused}")
        return super().run(model, feeds, fetches)


def test_a_constant_subgraph_becomes_one_constant() -> None:
    before = parse(
        """(float[2] x) => (float[2] y) <float[2] w = {1.0, 2.0}> {
            a = Neg(w) b = Exp(a) c = Add(a, b) y = Mul(x, c)
        }"""
    )
    after = run(before, "fold-constants", "dead-code")
    assert show(after.model) == ["y = Mul(x, c)"]
    assert list(after.model.graph.initializers) == ["c"]
    value = after.model.graph.initializers["c"].const_value
    assert value is not None
    np.testing.assert_allclose(value.numpy(), [np.exp(-1) - 1, np.exp(-2) - 2], rtol=1e-6)
    assert fates(after) == {"a": "folded", "b": "folded", "c": "folded", "y": "same"}


def test_everything_is_evaluated_in_one_run() -> None:
    body = " ".join(f"a{i} = Exp(w) b{i} = Add(x, a{i})" for i in range(20))
    total = ", ".join(f"b{i}" for i in range(20))
    before = parse(f"(float x) => (float y) <float w = {{1.0}}> {{ {body} y = Sum({total}) }}")
    runner = CountingRunner()
    after = run(before, "fold-constants", runner=runner)
    assert runner.runs == 1
    assert len(after.model.graph) == 21
    assert_same_results(before.model, after.model, random_feeds(before.model))


def test_constant_nodes_become_initializers_of_the_same_name() -> None:
    before = parse(
        """(float[2] x) => (float[2] y) {
            a = Constant<value_floats = [1.0, 2.0]>() y = Add(x, a)
        }"""
    )
    after = run(before, "fold-constants")
    assert show(after.model) == ["y = Add(x, a)"]
    assert fates(after)["a"] == "folded"
    assert_same_results(before.model, after.model, random_feeds(before.model))


def test_a_constant_output_keeps_its_name() -> None:
    before = parse("(float x) => (float y, float z) <float w = {1.0}> { y = Exp(w) z = Neg(x) }")
    after = run(before, "fold-constants", "fold-constants")
    assert show(after.model)[0] == "y = Identity(y__fold-constants)"
    assert fates(after)["y"] == "same"
    assert_same_results(before.model, after.model, random_feeds(before.model))


def test_all_outputs_of_a_split_are_folded() -> None:
    before = parse(
        """(float x) => (float[2] y) <float[4] w = {1.0, 2.0, 3.0, 4.0}> {
            a, b = Split<num_outputs = 2>(w) y = Add(x, b)
        }"""
    )
    after = run(before, "fold-constants", "dead-code")
    assert show(after.model) == ["y = Add(x, b)"]
    assert fates(after)["a"] == "folded"


def test_an_initializer_that_is_also_an_input_is_a_constant() -> None:
    before = parse("(float x, float w) => (float y) <float w = {1.0}> { a = Exp(w) y = Add(x, a) }")
    after = run(before, "fold-constants", "dead-code")
    assert show(after.model) == ["y = Add(x, a)"]
    assert [value.name for value in after.model.graph.inputs] == ["x", "w"]
    assert "w" in after.model.graph.initializers  # or the caller would have to feed it


@pytest.mark.parametrize(
    "body",
    [
        "a = RandomNormalLike(w)",
        "a = Bernoulli(w)",
        "t = Constant<value = bool {1}>() r = Constant<value = float {0.5}>() a = Dropout(w, r, t)",
        "a = RandomUniform<shape = [2]>()",
    ],
)
def test_random_numbers_stay_random(body: str) -> None:
    before = parse(f"(float[2] x) => (y) <float[2] w = {{0.5, 0.5}}> {{ {body} y = Add(x, a) }}")
    after = run(before, "fold-constants")
    assert show(after.model)[-2:] == show(before.model)[-2:]


def test_an_operator_that_nobody_defines_stays() -> None:
    before = parse(
        "(float x) => (y) <float w = {1.0}> { a = my.Op(w) y = Add(x, a) }", imports=', "my" : 1'
    )
    assert "a = my.Op(w)" in show(run(before, "fold-constants").model)


@pytest.mark.parametrize(
    "body",
    [
        "s = Constant<value = int64[2] {400, 400}>() a = ConstantOfShape(s)",
        "s = Constant<value = int64[2] {400, 400}>() a = Expand(w, s)",
        "s = Constant<value = int64[2] {400, 400}>() b = Unsqueeze(w, o) a = Tile(b, s)",
        """l = Constant<value = float {90000.0}>() z = Constant<value = float {0.0}>()
           a = Range(z, l, w)""",
    ],
)
def test_a_result_that_would_blow_up_the_model_is_not_kept(body: str) -> None:
    before = parse(
        f"""(int64 i) => (y) <float w = {{1.0}}, int64[2] o = {{0, 1}}> {{
            {body} y = Gather(a, i)
        }}"""
    )
    after = run(before, "fold-constants", "dead-code")
    assert any(line.startswith("a = ") for line in show(after.model))
    assert ir.to_proto(after.model).ByteSize() < 4096
    assert_same_results(before.model, after.model, random_feeds(before.model))


def test_a_large_intermediate_of_a_small_result_is_no_obstacle() -> None:
    before = parse(
        """(float x) => (y) <int64[1] s = {100000}> {
            a = ConstantOfShape(s) b = ReduceSum<keepdims = 0>(a) y = Add(x, b)
        }"""
    )
    assert show(run(before, "fold-constants", "dead-code").model) == ["y = Add(x, b)"]


def test_a_large_weight_that_stays_anyway_is_not_stored_twice() -> None:
    rows = LARGE_BYTES // 4 // 64 // 2
    weights = ", ".join("0.5" for _ in range(64))
    text = f"""(float[1, {rows}] x, float[1, 64] z) => (y, v) <float[64] b = {{{weights}}}> {{
        y = MatMul(x, w) t = Transpose(w) v = MatMul(z, t)
    }}"""
    before = parse(text.replace("(float[1,", f"(float[{rows}, 64] w, float[1,", 1))
    weight = before.model.graph.inputs.pop(0)
    weight.const_value = ir.Tensor(np.random.default_rng(0).random((rows, 64), np.float32))
    before.model.graph.initializers.add(weight)
    assert "t = Transpose(w)" in show(run(before, "fold-constants").model)


def test_a_large_weight_is_transposed_when_it_is_written() -> None:
    rows = LARGE_BYTES // 4 // 64
    before = parse(
        f"(float[1, 64] x, float[{rows}, 64] w) => (y) {{ t = Transpose(w) y = MatMul(x, t) }}"
    )
    weight = before.model.graph.inputs.pop(1)
    numbers = np.random.default_rng(0).random((rows, 64), np.float32)
    weight.const_value = ir.Tensor(numbers)
    before.model.graph.initializers.add(weight)
    runner = CountingRunner()
    after = run(before, "fold-constants", "dead-code", runner=runner)
    assert show(after.model) == ["y = MatMul(x, t)"]
    assert runner.runs == 0
    tensor = after.model.graph.initializers["t"].const_value
    assert isinstance(tensor, DerivedTensor)
    np.testing.assert_array_equal(tensor.numpy(), numbers.T)
    assert_same_results(before.model, after.model, random_feeds(before.model), atol=1e-5)


def test_what_cannot_be_evaluated_is_named_and_the_rest_is_folded() -> None:
    before = parse(
        """(float x) => (float y) <float w = {1.0}> {
            a = Exp(w) b = Erf(a) c = Neg(b) d = Log(a) y = Sum(x, c, d)
        }"""
    )
    after = run(before, "fold-constants", runner=CountingRunner(refused="Erf"))
    assert show(after.model) == ["b = Erf(a)", "c = Neg(b)", "y = Sum(x, c, d)"]
    (note,) = after.log[-1].notes
    assert "(Erf)" in note
    assert "no kernel for Erf" in note
    assert_same_results(before.model, after.model, random_feeds(before.model), rtol=1e-6)


def test_constants_of_an_outer_graph_are_folded_inside_a_branch() -> None:
    before = parse(
        """(float x, bool c) => (float y) <float w = {1.0}> {
            a = Exp(w)
            y = If (c) <
                then_branch = t () => (float p) { b = Exp(a) p = Add(x, b) },
                else_branch = e () => (float r) { r = Add(x, a) }
            >
        }"""
    )
    after = run(before, "fold-constants", "dead-code")
    assert show(after.model) == [
        "y = If(c)",
        "  then_branch: p = Add(x, b)",
        "  else_branch: r = Add(x, a)",
    ]
    assert "unknown" not in fates(after).values()
    assert_same_results(before.model, after.model, random_feeds(before.model))


def test_half_precision_constants_keep_their_dtype() -> None:
    before = parse(
        """(float16[2] x) => (float16[2] y) <float[2] w = {1.1, 2.2}> {
            a = Cast<to = 10>(w) y = Add(x, a)
        }"""
    )
    after = run(before, "fold-constants", "dead-code")
    assert after.model.graph.initializers["a"].dtype == ir.DataType.FLOAT16
    # onnxruntime keeps float32 between float16 nodes; the folded constant is really rounded.
    assert_same_results(before.model, after.model, random_feeds(before.model), rtol=1e-3)


def test_quantized_weights_stay_integers() -> None:
    """What quantization made of a weight must not be folded back to floats."""
    before = parse(
        """(float[1, 2] x) => (float[1, 2] y) <
            int8[2, 2] w = {1, 2, 3, 4}, float[2] scale = {0.5, 1.0}
        > {
            f = Cast <to = 1> (w) s = Mul(f, scale) y = MatMul(x, s)
        }"""
    )
    after = run(before, "fold-constants")
    assert [node.op_type for node in after.model.graph] == ["Cast", "Mul", "MatMul"]
    assert after.model.graph.initializers["w"].dtype == ir.DataType.INT8


def test_a_folded_scalar_stays_a_scalar() -> None:
    before = parse("(float[2] x) => (float[2] y) <float a = {2.0}> { c = Neg(a) y = Mul(x, c) }")
    after = run(before, "fold-constants", "dead-code")
    constant = after.model.graph.initializers["c"].const_value
    assert constant is not None
    assert constant.shape == ()
