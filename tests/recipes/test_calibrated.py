"""Recipes whose quantization uses data: files beside the recipe, and an accuracy goal."""

import numpy as np
import pytest
from tests.support.models import mlp, save

from cannc.compiler.build import build
from cannc.compiler.core.errors import CanncError

RECIPE = """
name: mlp
source: {{onnx: mlp.onnx}}
inputs: {{npz: inputs.npz}}
optimize: {{precision: fp16}}
quantize: {{algo: gptq, calib: calib.npz, num_samples: 16, {more}}}
compile: {{require_support: false}}
compare: {{thresholds: {{cosine: 0.9}}}}
"""


@pytest.fixture
def recipe(tmp_path):
    rng = np.random.default_rng(0)
    save(mlp(), tmp_path / "mlp.onnx")
    for name, rows in (("inputs", 2), ("calib", 40), ("eval", 12)):
        np.savez(tmp_path / f"{name}.npz", x=rng.normal(size=(rows, 8)).astype(np.float32))
    return tmp_path / "mlp.yaml"


def test_calibration_data_and_goal_reach_the_quantizer(recipe):
    recipe.write_text(RECIPE.format(more="eval: eval.npz, min_cosine: 0.99"))
    result = build(recipe, recipe.parent / "out")
    assert len(result.quant.calibrated_on) == 2
    assert all(row.output_error is not None for row in result.quant.quantized)


@pytest.mark.parametrize(
    ("more", "code"),
    [
        ("eval: calib.npz, min_cosine: 0.9", "QEV001"),
        ("min_token_accuracy: 0.9", "QEV002"),
        ("min_token_accuracy: 1.5, eval: eval.npz", "RCP002"),
        ("eval: none.npz, min_cosine: 0.9", "CAL001"),
    ],
)
def test_data_that_does_not_fit(recipe, more, code):
    recipe.write_text(RECIPE.format(more=more))
    with pytest.raises(CanncError) as caught:
        build(recipe, recipe.parent / "out")
    assert caught.value.code == code
