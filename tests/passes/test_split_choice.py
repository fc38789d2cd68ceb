"""Where a model is cut: layers by module and by structure, balance, names, and refusals."""

from itertools import combinations, pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.support.models import parse

from cannc.compiler.core.errors import UsageError
from cannc.compiler.core.provenance import OriginalNode
from cannc.compiler.core.shapes import infer_shapes
from cannc.compiler.core.unit import load
from cannc.passes.split.choose import Request
from cannc.passes.split.costs import Costs
from cannc.passes.split.line import Line
from cannc.passes.split.partition import partition
from cannc.passes.split.split import split_unit


def blocks(count, *, widths=None, between=""):
    """An embedding, `count` blocks of three MatMuls (two side by side) with a residual, a head."""
    widths = widths or [16] * count
    lines, weights, x = ["h = MatMul(x, we)"], {"we": (4, 8), "wo": (8, 4)}, "h"
    for i, width in enumerate(widths):
        weights |= {f"q{i}": (8, width), f"k{i}": (8, width), f"o{i}": (width, 8)}
        lines += [
            f"qx{i} = MatMul({x}, q{i})",
            f"kx{i} = MatMul({x}, k{i})",
            f"g{i} = Sigmoid(kx{i})",
            f"m{i} = Mul(qx{i}, g{i})",
            f"p{i} = MatMul(m{i}, o{i})",
            f"h{i} = Add(p{i}, {x})",
        ]
        x = f"h{i}"
    lines += [between, f"y = MatMul({x}, wo)"]
    rng = np.random.default_rng(0)
    arrays = {n: rng.standard_normal(s).astype(np.float32) for n, s in weights.items()}
    body = "\n".join(lines)
    return load(parse(f"g (float[N, 4] x) => (float[N, 4] y) {{{body}}}", **arrays))


def ends(unit, **request):
    """Return what crosses each cut, and the layers of each part."""
    split = split_unit(unit, Request(**request))
    outputs = [[v.name for v in part.unit.model.graph.outputs] for part in split.parts]
    return outputs, [list(part.layers) for part in split.parts]


@pytest.mark.parametrize("strategy", ["even", "memory_balanced"])
def test_layers_by_structure(strategy):
    outputs, layers = ends(blocks(4), layers_per_subgraph=1, strategy=strategy)
    assert outputs == [["h0"], ["h1"], ["h2"], ["y"]]
    assert layers == [["layer.0"], ["layer.1"], ["layer.2"], ["layer.3"]]
    outputs, layers = ends(blocks(5), layers_per_subgraph=2, strategy=strategy)
    assert len(outputs) == 3
    assert outputs[-1] == ["y"]
    assert [name for names in layers for name in names] == [f"layer.{i}" for i in range(5)]
    assert max(map(len, layers)) == 2


def test_equal_weights_side_by_side_are_no_layers():
    with pytest.raises(UsageError, match="no repeated layers") as refused:
        ends(blocks(1), layers_per_subgraph=1)
    assert refused.value.code == "SPL005"
    assert "--parts" in refused.value.fix


def test_two_lists_of_layers_and_what_stands_between():
    unit = blocks(6, widths=[16, 16, 16, 32, 24, 24])
    outputs, layers = ends(unit, layers_per_subgraph=1)
    assert outputs == [["h0"], ["h1"], ["h2"], ["h3"], ["h4"], ["y"]]
    assert [len(names) for names in layers] == [1] * 6


def by_module(unit, path):
    """Pretend that PyTorch's exporter left module paths."""
    for name, node in list(unit.provenance.nodes.items()):
        place = path(node.outputs[0])
        unit.provenance.nodes[name] = OriginalNode(node.name, node.op_type, node.outputs, place)
    return unit


def _encoder(value):
    digits = "".join(c for c in value if c.isdigit())
    return f"encoder.layer.{digits}.inner.0" if digits else "head"


def test_layers_by_module_path():
    unit = by_module(blocks(4, widths=[8, 12, 16, 20]), _encoder)
    outputs, layers = ends(unit, layers_per_subgraph=2, strategy="even")
    assert outputs == [["h1"], ["y"]]
    assert layers == [
        ["encoder.layer.0", "encoder.layer.1"],
        ["encoder.layer.2", "encoder.layer.3"],
    ]


def test_a_list_of_unlike_modules_is_no_list_of_layers():
    def path(value):
        digits = "".join(c for c in value if c.isdigit())
        return f"1.layers.{digits}.x" if digits else "0.embed" if value == "h" else "2.head"

    _, layers = ends(by_module(blocks(3), path), layers_per_subgraph=1)
    assert layers == [["1.layers.0"], ["1.layers.1"], ["1.layers.2"]]


def test_memory_is_balanced_where_even_counts():
    unit = blocks(4, widths=[400, 8, 8, 8])
    unit = by_module(unit, _encoder)
    even, _ = ends(unit, parts=2, strategy="even")
    balanced, _ = ends(unit, parts=2)
    assert even == [["h1"], ["y"]]
    assert balanced[0] != ["h1"]
    split = split_unit(unit, Request(parts=2))
    heaviest = max(part.weight_bytes + part.activation_bytes for part in split.parts)
    evenly = split_unit(unit, Request(parts=2, strategy="even"))
    assert heaviest < max(p.weight_bytes + p.activation_bytes for p in evenly.parts)


def test_the_cut_goes_where_few_bytes_cross():
    unit = load(
        parse(
            """g (float[4, 64] x) => (float[4, 64] y) {
                a = Relu(x)
                n = ReduceMean<keepdims = 1>(a, last)
                b = Expand(n, wide)
                c = Neg(b)
                y = Exp(c)
            }""",
            last=np.array([1]),
            wide=np.array([4, 64]),
        )
    )
    assert ends(unit, parts=2, strategy="even")[0] == [["n"], ["y"]]


def test_names_of_values_nodes_and_modules():
    unit = by_module(blocks(4), _encoder)
    node = next(n.name for n in unit.model.graph if n.outputs[0].name == "h1")
    for name in ("h1", node, "encoder.layer.1"):
        assert ends(unit, cuts=(name,))[0] == [["h1"], ["y"]]
    outputs, _ = ends(unit, cuts=("h2", "h0"), strategy="named")
    assert outputs == [["h0"], ["h2"], ["y"]]


@pytest.mark.parametrize(
    ("request_", "code", "text"),
    [
        ({"parts": 0}, "SPL001", "0 parts"),
        ({"layers_per_subgraph": -1}, "SPL001", "layers per part"),
        ({"parts": 2, "strategy": "evn"}, "SPL002", "did you mean 'even'"),
        ({}, "SPL003", "not clear"),
        ({"parts": 2, "layers_per_subgraph": 2}, "SPL003", "not clear"),
        ({"parts": 2, "strategy": "named"}, "SPL003", "not clear"),
        ({"cuts": ("h1",), "strategy": "even"}, "SPL003", "not clear"),
        ({"parts": 99}, "SPL004", "into 99 parts"),
        ({"cuts": ("h11",)}, "SPL006", "did you mean 'h1'"),
        ({"cuts": ("x",)}, "SPL006", "called 'x'"),
        ({"cuts": ("y",)}, "SPL007", "after 'y'"),
        ({"cuts": ("h1", "h1")}, "SPL007", "after 'h1'"),
    ],
)
def test_refusals(request_, code, text):
    with pytest.raises(UsageError) as refused:
        split_unit(blocks(4), Request(**request_))
    assert refused.value.code == code
    assert text in refused.value.what


def test_as_many_parts_as_possible_and_not_one_more():
    unit = blocks(2)
    infer_shapes(unit.model)
    most = len(Line(unit.model).cuts()) + 1
    assert len(ends(unit, parts=most)[0]) == most
    with pytest.raises(UsageError) as refused:
        ends(unit, parts=most + 1)
    assert refused.value.fix == f"use at most {most} parts"


def test_more_layers_per_part_than_there_are_is_one_part():
    assert ends(blocks(3), layers_per_subgraph=9)[0] == [["y"]]


def test_memory_of_a_part_counts_what_is_alive_together():
    unit = load(
        parse(
            """g (float[8] x) => (float[8] y) {
                a = Relu(x)
                b = Neg(a)
                c = Add(b, w)
                y = Add(c, a)
            }""",
            w=np.ones(8, np.float32),
        )
    )
    infer_shapes(unit.model)
    costs = Costs(Line(unit.model), {})
    size = 32
    assert costs.crossing == [0, size, 2 * size, 2 * size, 0]
    assert costs.memory(0, 1) == (0, 2 * size)  # x, a
    assert costs.memory(1, 3) == (size, 2 * size)  # a comes in and dies; b; then b and c
    assert costs.memory(2, 4) == (size, 3 * size)  # a and b come in, c; then a, c, y
    assert Costs(Line(unit.model), {"a": (16,)}).crossing[1] == 2 * size


@settings(max_examples=60, deadline=None)
@given(data=st.data())
def test_partition_is_the_best_of_all(data):
    points = list(range(data.draw(st.integers(3, 7))))
    parts = data.draw(st.integers(1, len(points) - 1))
    weight = data.draw(st.lists(st.integers(0, 9), min_size=7, max_size=7))
    crossing = data.draw(st.lists(st.integers(0, 9), min_size=7, max_size=7))

    def cost(start, end):
        return float(sum(weight[start:end]))

    def rate(cuts):
        edges = [0, *cuts, points[-1]]
        worst = max(cost(a, b) for a, b in pairwise(edges))
        return worst, sum(crossing[cut] for cut in cuts)

    found = partition(points, parts, cost, crossing, 0.0)
    best = min(rate(cuts) for cuts in combinations(points[1:-1], parts - 1))
    assert rate(found) == best
