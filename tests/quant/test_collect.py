"""Which constants are weights, through which chains, and why the others are not."""

import numpy as np
import onnx_ir as ir
import pytest
from tests.support.models import parse

from cannc.compiler.core.unit import load
from cannc.quant.collect import collect

RNG = np.random.default_rng(11)


def normal(*shape):
    return RNG.normal(size=shape).astype(np.float32)


def found(text, embeddings=False, **weights):
    return collect(load(parse(text, **weights)).model, embeddings=embeddings)


def only_use(text, **weights):
    result = found(text, **weights)
    assert not result.skips
    (use,) = result.uses
    return use


@pytest.mark.parametrize(
    ("chain", "stored", "expected"),
    [
        ("t = Transpose <perm = [1, 0]> (w)", (6, 4), lambda w: w.T),
        ("t = Transpose (w)", (6, 4), lambda w: w.T),
        ("t = Identity (w)", (4, 6), lambda w: w),
        ("s = Constant <value = int64[2] {4, -1}> () t = Reshape (w, s)", (2, 12), None),
        ("s = Constant <value = int64[2] {0, -1}> () t = Reshape (w, s)", (4, 2, 3), None),
        ("a = Constant <value = int64[1] {0}> () t = Squeeze (w, a)", (1, 4, 6), lambda w: w[0]),
        ("t = Flatten <axis = 2> (w)", (2, 2, 6), None),
        ("t = Cast <to = 1> (w)", (4, 6), lambda w: w),
        (
            "a = Transpose (w) b = Identity (a) c = Cast <to = 1> (b) t = Transpose (c)",
            (4, 6),
            lambda w: w,
        ),
    ],
)
def test_weights_behind_layout_nodes(chain, stored, expected):
    weight = normal(*stored)
    use = only_use(f"m (float[N, 4] x) => (float[N, 6] y) {{ {chain} y = MatMul(x, t) }}", w=weight)
    assert use.weight.name == "w"
    assert use.weight.shape == (4, 6)
    wanted = weight.reshape(4, 6) if expected is None else expected(weight)
    np.testing.assert_array_equal(use.weight.as_read(weight), wanted)
    assert use.layout.channels == (1,)


def test_a_cast_keeps_the_precision_from_before_it():
    use = only_use(
        "m (float16[N, 4] x) => (float16[N, 6] y) { t = Cast <to = 10> (w) y = MatMul(x, t) }",
        w=normal(4, 6),
    )
    assert use.weight.dtype == ir.DataType.FLOAT16
    assert use.weight.tensor.dtype == ir.DataType.FLOAT


def test_a_weight_in_a_constant_node():
    use = only_use(
        """m (float[N, 2] x) => (float[N, 2] y) {
            c = Constant <value = float[2, 2] {1, 2, 3, 4}> ()
            y = MatMul(x, c)
        }"""
    )
    assert use.weight.name == "c"


CONV = "y = Conv (x, w)"
DECONV = "y = ConvTranspose (x, w)"


@pytest.mark.parametrize(
    ("node", "x", "weight", "operand", "channels", "k"),
    [
        ("y = MatMul (x, w)", "N, 4", (4, 6), 1, (1,), 4),
        ("y = MatMul (w, x)", "6, N", (4, 6), 0, (0,), 6),
        ("y = MatMul (x, w)", "3, N, 4", (3, 4, 6), 1, (0, 2), 4),
        ("y = MatMul (w, x)", "3, 6, N", (3, 4, 6), 0, (0, 1), 6),
        ("y = Gemm (x, w)", "N, 4", (4, 6), 1, (1,), 4),
        ("y = Gemm <transB = 1> (x, w)", "N, 4", (6, 4), 1, (0,), 4),
        ("y = Gemm (w, x)", "6, N", (4, 6), 0, (0,), 6),
        ("y = Gemm <transA = 1> (w, x)", "4, N", (4, 6), 0, (1,), 4),
        (CONV, "1, 4, 9, 9", (6, 4, 3, 3), 1, (0,), 36),
        (CONV, "1, 4, 9", (6, 4, 3), 1, (0,), 12),
        (DECONV, "1, 4, 9, 9", (4, 6, 3, 3), 1, (1,), 36),
    ],
)
def test_channel_axes(node, x, weight, operand, channels, k):
    use = only_use(f"m (float[{x}] x) => (float[Q] y) {{ {node} }}", w=normal(*weight))
    assert (use.operand, use.layout.channels, use.layout.k) == (operand, channels, k)
    array = normal(*weight)
    matrix = use.layout.to_matrix(array)
    assert matrix.shape == (k, use.layout.n)
    np.testing.assert_array_equal(use.layout.from_matrix(matrix), array)


@pytest.mark.parametrize(
    ("node", "weights", "reason"),
    [
        ("y = MatMul (x, x)", {}, "no operand is a constant"),
        ("y = MatMul (w, w)", {"w": (4, 4)}, "both operands are constants"),
        ("y = MatMul (x, w)", {"w": (4,)}, "a vector has no channels"),
        ("y = MatMul (x, w)", {"w": (4, 0)}, "it is empty"),
        ("y = ConvTranspose <group = 2> (x, w)", {"w": (4, 3, 2, 2)}, "ConvTranspose with groups"),
        ("y = Gather (w, i)", {"w": (4, 6)}, "an embedding table"),
        ("y = Einsum <equation = 'ab,bc->ac'> (x, w)", {"w": (64, 64)}, "Einsum has no form"),
        ("y = Mul (x, w)", {"w": (64, 64)}, "Mul has no form"),
    ],
)
def test_what_stays_and_why(node, weights, reason):
    text = f"m (float[A, B] x, int64[C] i) => (float[Q] y) {{ {node} }}".replace("'", '"')
    result = found(text, **{name: normal(*shape) for name, shape in weights.items()})
    assert not result.uses
    (skip,) = result.skips
    assert skip.reason.startswith(reason)
    assert skip.shape == weights.get("w", ())


def test_gather_along_another_axis_stays():
    text = "m (int64[C] i) => (float[Q] y) { y = Gather <axis = 1> (w, i) }"
    (skip,) = found(text, embeddings=True, w=normal(4, 6)).skips
    assert skip.reason == "Gather along another axis than 0"


@pytest.mark.parametrize(
    "text",
    [
        "m (float[N, 4] x) => (float[N, 4] y) { y = Add(x, w) }",
        "m (float[N, 64] x) => (float[N, 64] y) { y = Mul(x, w) }",
    ],
)
def test_small_tables_and_vectors_are_not_mentioned(text):
    result = found(text, w=normal(64) if "64" in text else normal(1, 4))
    assert (result.uses, result.skips) == ([], [])


def test_biases_are_never_weights():
    use = only_use(
        "m (float[N, 4] x) => (float[N, 6] y) { y = Gemm (x, w, b) }", w=normal(4, 6), b=normal(6)
    )
    assert use.weight.name == "w"
