"""Planted faults: the culprit comes first by isolated error, its victims add nothing."""

import onnx_ir as ir
import pytest
from tests.support.faults import candidate_of, node_of, set_weight
from tests.support.golden_models import cnn, inputs, transformer

from cannc.golden.compare import compare

MODELS = {"cnn": cnn, "transformer": transformer}


def wrong_epsilon(unit):
    node = node_of(unit, "LayerNormalization")
    node.attributes["epsilon"] = ir.AttrFloat32("epsilon", 0.5)
    return "LayerNormalization_26"


def transposed_query_weight(unit):
    set_weight(node_of(unit, "MatMul", 0), 1, lambda w: w.T)
    return "MatMul_0"


def swapped_axis(unit):
    node = node_of(unit, "Softmax")
    node.attributes["axis"] = ir.AttrInt64("axis", 1)
    return "Softmax_20"


def scaled_channel(unit):
    def scale(kernel):
        kernel[3] *= 1.5
        return kernel

    set_weight(node_of(unit, "Conv", 1), 1, scale)
    return "BatchNormalization_4"


def wrong_pads(unit):
    node = node_of(unit, "Conv")
    node.attributes["pads"] = ir.AttrInt64s("pads", [2, 2, 0, 0])
    return "BatchNormalization_1"


def scaled_int8_channel(unit):
    def scale(scales):
        scales.reshape(-1)[5] *= 3
        return scales

    set_weight(node_of(unit, "WeightQuantBatchMatmulV2", 3), 2, scale)
    return "MatMul_24"


def negated_bias(unit):
    set_weight(node_of(unit, "Gemm"), 2, lambda b: -b)
    return "Gemm_10"


FLOAT_FAULTS = [
    ("transformer", wrong_epsilon),
    ("transformer", transposed_query_weight),
    ("transformer", swapped_axis),
    ("cnn", scaled_channel),
    ("cnn", wrong_pads),
    ("cnn", negated_bias),
]
FAULTS = [(*fault, options) for fault in FLOAT_FAULTS for options in (("keep",), ("fp16",))]
FAULTS += [
    ("transformer", wrong_epsilon, ("fp16", True)),
    ("transformer", scaled_int8_channel, ("fp16", True)),
    ("cnn", wrong_pads, ("fp16", True)),
]


@pytest.fixture(scope="module")
def candidates():
    made = {}

    def get(name, *options):
        if (name, *options) not in made:
            made[(name, *options)] = candidate_of(MODELS[name](), *options)
        return made[(name, *options)].copy()

    return get


@pytest.mark.parametrize(("name", "plant", "options"), FAULTS)
def test_the_culprit_is_named_first(candidates, name, plant, options):
    model, unit = MODELS[name](), candidates(name, *options)
    culprit = plant(unit)
    report = compare(model, unit, inputs=inputs(model))
    assert report.culprits[0].node == culprit
    assert report.culprits[0].severity > 1.0
    assert report.first_divergence.node == culprit
    # Every other layer adds only its own rounding, whatever arrives there.
    assert all(layer.severity < 1.0 for layer in report.culprits[1:])


@pytest.mark.parametrize("options", [("keep",), ("fp16",), ("fp16", True)], ids=str)
@pytest.mark.parametrize("name", MODELS)
def test_without_a_fault_everything_passes(candidates, name, options):
    model, unit = MODELS[name](), candidates(name, *options)
    report = compare(model, unit, inputs=inputs(model))
    assert report.verdict == "pass"
    assert report.warnings == ()
    assert report.counts["failed"] == 0
    assert report.counts["compared"] + report.counts["inside"] <= report.counts["rows"]
    assert not {"unknown", "unmatched", "dead"} & set(report.counts)
    assert all(layer.severity < 1.0 for layer in report.culprits)
    assert [layer.name for layer in report.outputs] == ["y"]


def test_rows_inside_a_fused_operator_say_so(candidates):
    unit = candidates("transformer", "fp16")
    model = transformer()
    rows = {layer.name: layer for layer in compare(model, unit, inputs=inputs(model)).layers}
    fused = next(n for n in unit.model.graph if n.domain == "npu" and "Gelu" in n.op_type)
    for name in ("h1", "e", "e1", "e2"):
        assert (rows[name].kind, rows[name].candidate_node) == ("inside", fused.name)
        assert rows[name].passed is None
    assert rows["gl"].kind == "compared"
    assert {"Div_28", "Erf_29", "Mul_32"} <= set(rows["gl"].stands_for)
    assert rows["gl"].owned
    assert rows["one"].kind == "folded"


def test_grades_follow_what_feeds_a_value(candidates):
    model = transformer()
    report = compare(model, candidates("transformer", "fp16", True), inputs=inputs(model))
    rows = {layer.name: layer for layer in report.layers}
    assert rows["y"].dtype == "float32"
    assert rows["q0"].added.grade.label == rows["q0"].arriving.grade.label == "int8 weights"
    assert rows["ss"].added.grade.label == "float16"
    assert rows["ss"].arriving.grade.label == "int8 weights"
    assert rows["mf"].arriving.grade.label == "float16"
