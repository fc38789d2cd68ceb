"""Einsum written with operators that the device has kernels for."""

from __future__ import annotations

import itertools

import numpy as np
import onnx
import pytest
from tests.support.fusion import fuse, normal
from tests.support.models import parse

SIZES = dict(zip("abcdefghijklmnop", itertools.cycle([2, 3, 4, 5, 1]), strict=False))


def einsum(equation: str, *shapes: tuple[object, ...], feeds: list[np.ndarray]) -> onnx.ModelProto:
    """Return a model of one Einsum; `shapes` as declared."""
    result = np.einsum(equation, *feeds)
    dims = ", ".join(f"R{axis}" for axis in range(result.ndim))
    inputs = ", ".join(
        f"float[{', '.join(map(str, shape))}] x{i}" for i, shape in enumerate(shapes)
    )
    names = ", ".join(f"x{i}" for i in range(len(shapes)))
    return parse(
        f'g ({inputs}) => (float[{dims}] y) {{ y = Einsum<equation = "{equation}">({names}) }}'
    )


@pytest.mark.parametrize(
    ("equation", "ops"),
    [
        ("bhid,bhjd->bhij", {"Transpose", "MatMul"}),
        ("bhij,bhjd->bhid", {"MatMul"}),
        ("ij,jk->ik", {"MatMul"}),
        ("ij,jk", {"MatMul"}),
        ("ji,jk->ki", {"Transpose", "MatMul"}),
        ("i,i->", {"Reshape", "MatMul"}),
        ("i,i", {"Reshape", "MatMul"}),
        ("i,j->ij", {"Unsqueeze", "Mul"}),
        ("ij,ij->ij", {"Mul"}),
        ("bij,bj->bij", {"Unsqueeze", "Mul"}),
        ("bij,bj->bi", {"Reshape", "MatMul"}),
        ("abcd,aecd->abe", None),
        ("abcd,cdef->abef", None),
        ("bnh,nhd->bd", None),
        ("ij,kj->", None),
        ("ij,k->k", None),
        ("ij->ji", {"Transpose"}),
        ("ij->i", {"ReduceSum"}),
        ("ij->", {"ReduceSum"}),
        ("ij", {"Identity"}),
        ("ba", {"Transpose"}),
        ("ii->i", {"Transpose", "Reshape", "Slice"}),
        ("ii->", None),
        ("bii->b", None),
        ("ij,jk,kl->il", {"MatMul"}),
        ("ij,jk,k->i", None),
    ],
)
def test_equations(equation, ops):
    terms = equation.split("->")[0].split(",")
    shapes = [tuple(SIZES[label] for label in term) for term in terms]
    feeds = [normal(*shape, seed=i) for i, shape in enumerate(shapes)]
    model = einsum(equation, *shapes, feeds=feeds)
    named = {f"x{i}": array for i, array in enumerate(feeds)}
    result = fuse(model, "decompose-einsum", feeds=named, atol=1e-5)
    assert result.ops["Einsum"] == 0
    assert ops is None or set(result.ops) == ops
    assert result.refusals == ()


@pytest.mark.parametrize(
    ("equation", "shapes"),
    [
        ("...ij,...jk->...ik", [(2, 3, 4, 5), (2, 3, 5, 2)]),
        ("...ij,...jk->...ik", [(2, 1, 4, 5), (1, 3, 5, 2)]),
        ("...i->...", [(2, 3, 4)]),
        ("i...->...i", [(2, 3, 4)]),
        ("...ij,kj->...ik", [(2, 3, 4), (5, 4)]),
        ("b...i,b...i->b...", [(2, 3, 4), (2, 3, 4)]),
        ("...,...->...", [(2, 3), (1, 3)]),
    ],
)
def test_hidden_axes(equation, shapes):
    feeds = [normal(*shape, seed=i) for i, shape in enumerate(shapes)]
    model = einsum(equation, *shapes, feeds=feeds)
    named = {f"x{i}": array for i, array in enumerate(feeds)}
    result = fuse(model, "decompose-einsum", feeds=named, atol=1e-5)
    assert result.ops["Einsum"] == 0


def test_open_sizes_need_no_reshape_in_attention():
    feeds = [normal(2, 3, 4, 5), normal(2, 3, 6, 5)]
    model = einsum("bhid,bhjd->bhij", ("B", 3, "S", 5), ("B", 3, "T", 5), feeds=feeds)
    result = fuse(model, "decompose-einsum", feeds={"x0": feeds[0], "x1": feeds[1]})
    assert result.ops == {"Transpose": 1, "MatMul": 1}


def test_one_open_size_may_be_merged():
    feeds = [normal(2, 3, 4), normal(4, 2, 5)]
    model = einsum("bsd,dhe->bshe", ("B", 3, 4), (4, 2, 5), feeds=feeds)
    result = fuse(model, "decompose-einsum", feeds={"x0": feeds[0], "x1": feeds[1]})
    assert result.ops["Einsum"] == 0


def test_sizes_that_must_be_known_are_refused():
    feeds = [normal(2, 3, 4), normal(4, 2, 5)]
    model = einsum("bsd,dhe->bshe", ("B", "S", 4), (4, "H", 5), feeds=feeds)
    result = fuse(model, "decompose-einsum", feeds={"x0": feeds[0], "x1": feeds[1]})
    assert "not known" in result.refusals[0]
    assert len(result.unit.model.graph.initializers) == 0
    assert [len(value.uses()) for value in result.unit.model.graph.inputs] == [1, 1]
    assert result.ops == {"Einsum": 1}
