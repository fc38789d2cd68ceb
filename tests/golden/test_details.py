import json

import numpy as np
import pytest
from tests.support.faults import candidate_of, node_of, set_weight
from tests.support.golden_models import inputs, transformer

from cannc.compiler.core.unit import load
from cannc.golden.compare import compare
from cannc.golden.details import BINS, KEPT, Gallery, histograms
from cannc.golden.modules import modules_of
from cannc.golden.render_html import to_html
from cannc.golden.render_json import to_json


def test_histograms_share_a_range_and_count_what_is_finite():
    golden = np.float32([0, 1, 2, 3, np.nan])
    found = histograms(golden, np.float16([0, 1, 2, 7, 1]))
    assert (found.golden.low, found.golden.high) == (found.candidate.low, found.candidate.high)
    assert (found.golden.low, found.golden.high) == (0, 7)
    assert sum(found.golden.counts) == sum(found.difference.counts) == 4
    assert found.candidate.counts[-1] == 1
    assert (found.difference.low, found.difference.high) == (0, 4)
    assert len(found.golden.counts) == BINS


@pytest.mark.parametrize(
    "array", [np.zeros(0), np.float32([np.nan]), np.array(["a"])], ids=["empty", "nan", "text"]
)
def test_nothing_to_count(array):
    assert histograms(array, array) is None


def test_constants_are_one_bar():
    assert histograms(np.ones(5), np.ones(5)).golden.counts == (5,)


def test_the_gallery_keeps_the_worst():
    gallery = Gallery()
    array = np.zeros(2)
    order = np.random.default_rng(0).permutation(40)
    for severity in order:
        gallery.offer(f"r{severity}", float(severity), array, array)
    gallery.offer("r39", 1.0, array, array)
    assert set(gallery.rows()) == {f"r{i}" for i in range(40 - KEPT, 40)}


@pytest.fixture(scope="module")
def report():
    model, golden = candidate_of(transformer(), "fp16"), load(transformer())
    set_weight(node_of(model, "MatMul", 0), 1, lambda w: w.T)
    nodes = golden.provenance.nodes
    for index, (name, node) in enumerate(nodes.items()):
        module = f"block.{'attention' if index < 22 else 'mlp'}"
        nodes[name] = type(node)(node.name, node.op_type, node.outputs, module)
    return compare(golden, model, inputs=inputs(transformer()))


def test_modules_sum_up_their_rows(report):
    modules = {module.path: module for module in modules_of(report)}
    assert [*modules] == ["block", "block.attention", "block.mlp"]
    assert modules["block"].rows == len(report.layers)
    assert modules["block"].rows == sum(m.rows for n, m in modules.items() if "." in n)
    assert modules["block"].culprit == modules["block.attention"].culprit
    assert modules["block.attention"].severity > 1.0 > modules["block.mlp"].severity
    assert json.loads(to_json(report))["modules"][1]["path"] == "block.attention"


def test_the_culprit_has_pictures(report):
    culprit = report.culprits[0]
    detail = report.details[culprit.name]
    assert detail.histograms.difference.high > detail.histograms.difference.low
    assert detail.after
    page = to_html(report)
    assert page.count('class="bars"') == 3 * min(KEPT, len(report.details))
    assert detail.after[0].node in page
    assert "block.attention" in page
    data = json.loads(to_json(report))
    assert len(data["details"][culprit.name]["histograms"]["golden"]["counts"]) == BINS


def test_layers_are_judged_by_their_own_bounds():
    model, unit = transformer(), candidate_of(transformer(), "fp16")
    strict = compare(model, unit, inputs=inputs(model), thresholds={"LayerNorm*:rel_l2": 1e-9})
    failed = [layer.node for layer in strict.layers if layer.passed is False]
    assert failed
    assert all(name.startswith("LayerNorm") for name in failed)
