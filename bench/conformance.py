"""ONNX backend node tests through optimize at O2, host compile and a run from the artifact.

Usage: conformance.py [--out results/conformance.md] [--only NAME]...

Counted are the tests that plain onnxruntime passes, within each test's own tolerance. Prints what
fails and the counts by operator; returns 1 when any of them fails.
"""

from __future__ import annotations

import argparse
import logging
import sys
import tempfile
import warnings
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import onnx
import onnxruntime as ort
from legalize_nodes import TARGET, cases, is_equal

import cannc


def main() -> int:
    """Judge all tests, write the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path)
    parser.add_argument("--only", action="append", default=[], metavar="NAME")
    asked = parser.parse_args()
    logging.disable(logging.CRITICAL)
    warnings.simplefilter("ignore")
    found = [(case, why) for case in cases(asked.only) if (why := judge(case)) is not None]
    text = "\n".join(_table(found)) + "\n"
    if asked.out is None:
        sys.stdout.write(text)
    else:
        asked.out.write_text(text, encoding="utf-8")
    return int(any(why for _, why in found))


def judge(case: Any) -> str | None:
    """Return why a test fails, "" when it passes, None when plain onnxruntime fails it."""
    names = [value.name for value in case.model.graph.input]
    feeds = dict(zip(names, case.data_sets[0][0], strict=False))
    if not _plain_passes(case, feeds):
        return None
    try:
        unit = cannc.optimize(case.model, level="O2", soc=TARGET.soc, precision="keep")
        with tempfile.TemporaryDirectory() as folder:
            artifact = cannc.compile(
                unit, Path(folder) / "node.om", backend="host", precision="keep"
            )
            with cannc.Session(artifact) as session:
                actual = list(session.run(feeds).values())
    except Exception as error:  # any failure is a verdict here
        return f"{type(error).__name__}: {str(error).splitlines()[0][:90]}"
    return "" if is_equal(case, actual) else "numbers differ"


def _plain_passes(case: Any, feeds: dict[str, Any]) -> bool:
    options = ort.SessionOptions()
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.log_severity_level = 4
    try:
        session = ort.InferenceSession(case.model.SerializeToString(), options)
        return is_equal(case, session.run(None, feeds))
    except Exception:  # what onnxruntime cannot run is not counted
        return False


def _table(found: list[tuple[Any, str]]) -> Iterator[str]:
    passed = sum(not why for _, why in found)
    yield f"# Node tests through O2 and the artifact (onnx {onnx.__version__}, {TARGET.soc})\n"
    yield f"onnxruntime {ort.__version__} passes {len(found)} without us, {passed} with us.\n"
    yield "| test | why it fails |\n|---|---|"
    yield from (f"| {case.name} | {why} |" for case, why in found if why)
    every = Counter(_operator(case) for case, _ in found)
    good = Counter(_operator(case) for case, why in found if not why)
    yield "\n| operator | tests | pass |\n|---|---|---|"
    yield from (f"| {op} | {every[op]} | {good[op]} |" for op in sorted(every))


def _operator(case: Any) -> str:
    """Return the tested operator; an expanded test has its body's nodes instead."""
    nodes = case.model.graph.node
    return nodes[0].op_type if len(nodes) == 1 else "(several nodes)"


if __name__ == "__main__":
    sys.exit(main())
