"""ONNX's own node tests that the target refuses: which are cured, and why the others are not.

The list is committed (``make bench`` writes it anew). Here one test is judged for each set of
refused operators and outcome; judging means optimize, check, and the test's expected outputs.
"""

from __future__ import annotations

import json
import warnings
from pathlib import Path
from typing import Any

import onnx
import pytest
from bench.legalize_nodes import PROMISED, cases, judge

LIST = json.loads((Path(__file__).parent / "data" / "node_cures.json").read_text())
TESTS: dict[str, tuple[str, list[str], str]] = LIST["tests"]
LEAST_SHARE = 0.6
"""Of the refused tests whose operators all have an ONNX body or are on the list of cures."""


def _sample() -> list[str]:
    """Return the first test of each kind."""
    first: dict[tuple[str, ...], str] = {}
    for name, (group, refused, outcome) in TESTS.items():
        first.setdefault((group, *refused, outcome), name)
    return list(first.values())


@pytest.fixture(scope="module")
def suite() -> dict[str, Any]:
    if onnx.__version__ != LIST["onnx"]:
        pytest.skip(f"the list is of onnx {LIST['onnx']}")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the suite divides by zero on purpose while it is made
        return {case.name: case for case in cases(_sample())}


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@pytest.mark.parametrize("name", _sample())
def test_becomes_what_the_list_says(name: str, suite: dict[str, Any]) -> None:
    verdict = judge(suite[name])
    assert verdict is not None
    assert [verdict.group, list(verdict.refused), verdict.outcome] == list(TESTS[name])


def test_most_of_what_can_be_cured_is() -> None:
    outcomes = [outcome for group, _, outcome in TESTS.values() if group == PROMISED]
    assert len(outcomes) > 300
    assert outcomes.count("cured") >= LEAST_SHARE * len(outcomes)
