"""A large model is checked in under a second of CPU time, with and without declared types."""

from __future__ import annotations

import time

import numpy as np
import pytest
from tests.support.models import parse
from tests.support.ops import B4

from cannc.compiler.core.unit import load
from cannc.op_support.checker import check

NODES = 12_000
LIMIT_SECONDS = 1.0
_STEPS = ("MatMul({v}, w)", "Add({v}, {v})", "Softmax({v})", "Reshape({v}, s)", "Sigmoid({v})")


@pytest.mark.slow
def test_twelve_thousand_nodes() -> None:
    lines = [f"v{i + 1} = {_STEPS[i % 5].format(v=f'v{i}')}" for i in range(NODES)]
    text = f"g (float[N, 4] v0) => (float[N, 4] v{NODES}) {{ {chr(10).join(lines)} }}"
    unit = load(parse(text, w=np.eye(4, dtype=np.float32), s=np.array([-1, 4])))
    seconds = []
    for _ in range(3):
        start = time.process_time()
        report = check(unit, B4)
        seconds.append(time.process_time() - start)
    assert report.nodes == NODES
    assert report.findings == ()
    assert min(seconds) < LIMIT_SECONDS
