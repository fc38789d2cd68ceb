"""Silero VAD 6.2.3 for 16 kHz: a supported graph that says the same, frame after frame."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import onnx_ir as ir
import pytest
from tests.support.ops import B4
from tests.support.runner import PlainRunner, session

from cannc.compiler.core.graphs import walk
from cannc.compiler.core.runner import Array
from cannc.compiler.core.unit import CompileUnit, load
from cannc.compiler.frontend.inputs import fix_shapes
from cannc.op_support.checker import check
from cannc.passes.optimize import optimize

ROOT = Path(__file__).parents[2]
MODELS = Path(os.environ.get("CANNC_SILERO", ROOT / ".cache/silero/x/silero_vad/data"))
FRAMES, CONTEXT, FRAME = 50, 64, 512

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(
        not MODELS.is_dir(),
        reason="unpack the wheel silero-vad 6.2.3 into .cache/silero/x, or set CANNC_SILERO",
    ),
]


def _supported(name: str, shapes: dict[str, tuple[int, ...]], fixed: dict[str, int]) -> CompileUnit:
    unit = load(MODELS / name)
    fix_shapes(unit.model, shapes)
    result = optimize(
        unit,
        level="O1",
        precision="keep",
        target=B4,
        runner=PlainRunner(),
        may_use_kernel=lambda op_type, dtype: None,
        fixed=fixed,
    )
    report = check(result, B4)
    assert report.refused == report.wrong == []
    assert not {"If", "Loop"} & {s.node.op_type for s in walk(result.model.graph)}
    assert not [fate for fate in result.fates() if fate.kind == "unknown"]
    return result


def _audio() -> Array:
    """Return frames with their context, of noise that comes and goes: [frames, 1, 576]."""
    rng = np.random.default_rng(5)
    count = FRAMES * FRAME
    tone = np.sin(np.arange(count) * 0.05) * np.sin(np.arange(count) * 0.0005)
    samples = np.concatenate([np.zeros(CONTEXT), tone + rng.normal(size=count) * 0.1])
    starts = range(0, count, FRAME)
    return np.stack([samples[None, s : s + CONTEXT + FRAME] for s in starts]).astype(np.float32)


@pytest.mark.parametrize(
    "name",
    [
        "silero_vad.onnx",
        "silero_vad_16k_op15.onnx",
        "silero_vad_half.onnx",
        "silero_vad_op18_ifless.onnx",
    ],
)
def test_frame_by_frame(name: str) -> None:
    original = ir.load(MODELS / name)
    rate = {"sr": 16000} if "sr" in {v.name for v in original.graph.inputs} else {}
    shapes = {"input": (1, CONTEXT + FRAME), "state": (2, 1, 128)}
    before = session(original)
    after = session(_supported(name, shapes, rate).model)
    old = new = np.zeros((2, 1, 128), np.float32)
    speech = []
    for frame in _audio():
        fed = {"input": frame, "state": old, **{k: np.array(v) for k, v in rate.items()}}
        expected, old = before.run(["output", "stateN"], fed)
        actual, new = after.run(["output", "stateN"], {"input": frame, "state": new})
        np.testing.assert_allclose(actual, expected, rtol=1e-3, atol=1e-5)
        np.testing.assert_allclose(new, old, rtol=1e-3, atol=1e-4)
        speech.append(float(expected.squeeze()))
    assert max(speech) - min(speech) > 0.001  # the frames are not all alike


def test_sequence_at_once() -> None:
    name = "silero_vad_16k_sequence.onnx"
    feeds = {"input": _audio()[:, 0], **{k: np.zeros((1, 1, 128), np.float32) for k in "hc"}}
    before = session(ir.load(MODELS / name)).run(None, feeds)
    after = session(_supported(name, {"input": (FRAMES, CONTEXT + FRAME)}, {}).model)
    for actual, expected in zip(after.run(None, feeds), before, strict=True):
        np.testing.assert_allclose(actual, expected, rtol=1e-3, atol=1e-5)
