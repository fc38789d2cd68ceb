"""Every node test of the installed onnx gets a verdict; the counts are committed."""

from __future__ import annotations

import json
import warnings
from collections import Counter
from pathlib import Path

import onnx
import pytest
from tests.support.ops import B4

from cannc.compiler.core.unit import load
from cannc.op_support.checker import check

COUNTS = json.loads((Path(__file__).parent / "data" / "node_suite.json").read_text())


@pytest.mark.slow
def test_a_verdict_for_every_node_test() -> None:
    with warnings.catch_warnings():
        # The reference models of the suite divide by zero and overflow on purpose.
        warnings.simplefilter("ignore")
        from onnx.backend.test.case.node import collect_testcases

        cases = collect_testcases(None)
    counts = Counter(check(load(case.model), B4).verdict for case in cases)
    assert counts.total() == len(cases) > 1800
    if onnx.__version__ == COUNTS["onnx"]:
        assert dict(counts) == COUNTS["verdicts"]
