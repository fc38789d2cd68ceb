from __future__ import annotations

import pytest
from tests.support.passes import fates, parse, random_feeds, run, show
from tests.support.runner import assert_same_results

# Each body computes a from x, which must vanish, so that y = Relu(x) is left.
GONE = {
    "identity": ("float[2, 3] x", "a = Identity(x)"),
    "cast to the same dtype": ("float[2, 3] x", "a = Cast<to = 1>(x)"),
    "cast like": ("float[2, 3] x", "a = CastLike(x, x)"),
    "dropout": ("float[2, 3] x", "a = Dropout(x)"),
    "dropout with a mask nobody reads": ("float[2, 3] x", "a, m = Dropout(x)"),
    "dropout told not to train": (
        "float[2, 3] x",
        "r = Constant<value = float {0.5}>() t = Constant<value = bool {0}>() a = Dropout(x, r, t)",
    ),
    "transpose": ("float[2, 3] x", "a = Transpose<perm = [0, 1]>(x)"),
    "transpose of a vector": ("float[3] x", "a = Transpose(x)"),
    "reshape": ("float[2, 3] x", "s = Constant<value = int64[2] {2, 3}>() a = Reshape(x, s)"),
    "reshape with copied and open dims": (
        "float[N, 3] x",
        "s = Constant<value = int64[2] {0, -1}>() a = Reshape(x, s)",
    ),
    "reshape with the open dim first": (
        "float[N, 3] x",
        "s = Constant<value = int64[2] {-1, 3}>() a = Reshape(x, s)",
    ),
    "reshape to its own dynamic shape": ("float[N, 3] x", "s = Shape(x) a = Reshape(x, s)"),
    "flatten": ("float[N, 3] x", "a = Flatten<axis = 1>(x)"),
    "expand": ("float[N, 3] x", "s = Constant<value = int64[1] {3}>() a = Expand(x, s)"),
    "slice to the end": (
        "float[N, 3] x",
        (
            "b = Constant<value = int64[1] {0}>()"
            "e = Constant<value = int64[1] {9223372036854775807}>() a = Slice(x, b, e, b)"
        ),
    ),
    "slice of everything": (
        "float[N, 3] x",
        (
            "b = Constant<value = int64[1] {-3}>() e = Constant<value = int64[1] {5}>()"
            "k = Constant<value = int64[1] {1}>() a = Slice(x, b, e, k)"
        ),
    ),
    "pad": ("float[N, 3] x", "p = Constant<value = int64[4] {0, 0, 0, 0}>() a = Pad(x, p)"),
    "tile": ("float[N, 3] x", "r = Constant<value = int64[2] {1, 1}>() a = Tile(x, r)"),
    "concat": ("float[N, 3] x", "a = Concat<axis = 0>(x)"),
    "sum": ("float[N, 3] x", "a = Sum(x)"),
    "mul": ("float[N, 3] x", "k = Constant<value = float {1.0}>() a = Mul(k, x)"),
    "div": ("float[N, 3] x", "k = Constant<value = float[1, 1] {1.0}>() a = Div(x, k)"),
    "sub": ("float[N, 3] x", "k = Constant<value = float {0.0}>() a = Sub(x, k)"),
    "add of integers": ("int32[N, 3] x", "k = Constant<value = int32 {0}>() a = Add(k, x)"),
    "unsqueeze and squeeze": (
        "float[N, 3] x",
        "k = Constant<value = int64[1] {1}>() b = Unsqueeze(x, k) a = Squeeze(b, k)",
    ),
    "squeeze and unsqueeze": (
        "float[N, 1] x",
        "k = Constant<value = int64[1] {1}>() b = Squeeze(x, k) a = Unsqueeze(b, k)",
    ),
    "optional": ("float[N, 3] x", "b = Optional(x) a = OptionalGetElement(b)"),
    "element of a tensor": ("float[N, 3] x", "a = OptionalGetElement(x)"),
}

# Each body computes a from x by something that only looks like nothing.
STAYS = {
    "cast to another dtype": ("float[2, 3] x", "b = Cast<to = 10>(x) a = Cast<to = 1>(b)"),
    "dropout whose mask is read": (
        "float[2, 3] x",
        "b, m = Dropout(x) c = Cast<to = 1>(m) a = Add(b, c)",
    ),
    "dropout that may train": (
        "float[2, 3] x, bool t",
        "r = Constant<value = float {0.0}>() a = Dropout(x, r, t)",
    ),
    "transpose of equal dims": ("float[3, 3] x", "a = Transpose(x)"),
    "reshape with two open dims of unknown size": (
        "float[N, M] x",
        "s = Constant<value = int64[2] {-1, 2}>() a = Reshape(x, s)",
    ),
    "flatten into a column": ("float[2, 3] x", "a = Flatten<axis = 0>(x)"),
    "expand": ("float[1, 3] x", "s = Constant<value = int64[2] {2, 1}>() a = Expand(x, s)"),
    "reverse": (
        "float[2, 3] x",
        (
            "b = Constant<value = int64[1] {-1}>() e = Constant<value = int64[1] {-100}>()"
            "k = Constant<value = int64[1] {1}>() s = Constant<value = int64[1] {-1}>()"
            "a = Slice(x, b, e, k, s)"
        ),
    ),
    "slice that may drop rows": (
        "float[N, 3] x",
        (
            "b = Constant<value = int64[1] {0}>() e = Constant<value = int64[1] {1}>()"
            "a = Slice(x, b, e)"
        ),
    ),
    "pad": ("float[N, 3] x", "p = Constant<value = int64[4] {0, 0, 0, 1}>() a = Pad(x, p)"),
    "tile": ("float[N, 3] x", "r = Constant<value = int64[2] {1, 2}>() a = Tile(x, r)"),
    "product that adds an axis": (
        "float[2, 3] x",
        "k = Constant<value = float[1, 1, 1] {1.0}>() a = Mul(x, k)",
    ),
    "division of one": ("float[2, 3] x", "k = Constant<value = float {1.0}>() a = Div(k, x)"),
    "difference from zero": ("float[2, 3] x", "k = Constant<value = float {0.0}>() a = Sub(k, x)"),
    "sum with a float zero, which loses the sign of zero": (
        "float[2, 3] x",
        "k = Constant<value = float {0.0}>() a = Add(x, k)",
    ),
    "squeeze of another axis": (
        "float[1, 3] x",
        (
            "k = Constant<value = int64[1] {0}>() i = Constant<value = int64[1] {1}>()"
            "b = Unsqueeze(x, k) a = Squeeze(b, i)"
        ),
    ),
}


@pytest.mark.parametrize("name", GONE)
def test_removes(name: str) -> None:
    source, body = GONE[name]
    dtype = source.split("[")[0]
    before = parse(f"({source}) => ({dtype} y) {{ {body} y = Relu(a) }}")
    after = run(before, "eliminate-identity", "dead-code")
    assert show(after.model) == ["y = Relu(x)"]
    assert fates(after)["a"] == "alias x"
    assert_same_results(before.model, after.model, random_feeds(before.model))


@pytest.mark.parametrize("name", STAYS)
def test_keeps(name: str) -> None:
    source, body = STAYS[name]
    before = parse(f"({source}) => (float y) {{ {body} y = Relu(a) }}")
    after = run(before, "eliminate-identity")
    assert show(after.model) == show(before.model)
    if "M" not in source:
        assert_same_results(before.model, after.model, random_feeds(before.model))


def test_the_name_of_an_output_moves_to_what_computes_it() -> None:
    before = parse("(float[2] x) => (float[2] y) { a = Relu(x) y = Identity(a) }")
    after = run(before, "eliminate-identity")
    assert show(after.model) == ["y = Relu(x)"]
    assert fates(after) == {"a": "alias y", "y": "same"}


def test_an_input_cannot_take_the_name_of_an_output() -> None:
    before = parse("(float[2] x) => (float[2] y) { y = Identity(x) }")
    after = run(before, "eliminate-identity")
    assert show(after.model) == ["y = Identity(x)"]


def test_two_outputs_of_one_value_keep_two_names() -> None:
    before = parse("(float[2] x) => (y, z) { a = Relu(x) y = Identity(a) z = Identity(a) }")
    after = run(before, "eliminate-identity")
    assert show(after.model) == ["y = Relu(x)", "z = Identity(y)"]
    assert_same_results(before.model, after.model, random_feeds(before.model))


def test_a_declared_output_shape_is_no_proof() -> None:
    # The file says that y has the shape of x; the target, known only at run time, may differ.
    before = parse("(float[2, 3] x, int64[2] s) => (float[2, 3] y) { y = Reshape(x, s) }")
    assert show(run(before, "eliminate-identity").model) == ["y = Reshape(x, s)"]


def test_a_dim_called_unknown_equals_no_other() -> None:
    text = """(float[unknown, 3] x, float[unknown, 3] z) => (y) {
        s = Shape(z) a = Expand(x, s) y = Relu(a)
    }"""
    assert "a = Expand(x, s)" in show(run(parse(text), "eliminate-identity").model)


def test_works_inside_a_branch_and_keeps_its_output() -> None:
    before = parse(
        """(float[2] x, bool c) => (float[2] y) {
            y = If (c) <
                then_branch = t () => (float[2] p) { q = Identity(x) p = Relu(q) },
                else_branch = e () => (float[2] r) { r = Identity(x) }
            >
        }"""
    )
    after = run(before, "eliminate-identity")
    assert show(after.model) == [
        "y = If(c)",
        "  then_branch: p = Relu(x)",
        "  else_branch: r = Identity(x)",
    ]
    assert_same_results(before.model, after.model, random_feeds(before.model))
