"""What `check` says of the ONNX backend node tests, and how long a large model takes.

Usage: check_support.py [--out results/check.md]

Returns 1 when a check of the large model takes a second or more of CPU time.
"""

from __future__ import annotations

import argparse
import os
import platform
import sys
import time
import warnings
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnx.parser

from cannc.compiler.core.target import Target
from cannc.compiler.core.unit import CompileUnit, load
from cannc.op_support.checker import check
from cannc.op_support.report import KINDS, Severity

NODES = 12_000
LIMIT_SECONDS = 1.0
SOCS = ("Ascend910B4", "Ascend310P3")
VERDICTS = (*(severity.value for severity in Severity), "supported")
_STEPS = ("MatMul({v}, w)", "Add({v}, {v})", "Softmax({v})", "Reshape({v}, s)", "Sigmoid({v})")


def main() -> int:
    """Check everything, write the tables."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path)
    asked = parser.parse_args()
    seconds = {declared: time_check(large_model(declared=declared)) for declared in (False, True)}
    text = "\n".join([*_verdicts(), *_speed(seconds)]) + "\n"
    if asked.out is None:
        sys.stdout.write(text)
    else:
        asked.out.write_text(text, encoding="utf-8")
    return int(max(seconds.values()) >= LIMIT_SECONDS)


def large_model(*, declared: bool) -> CompileUnit:
    """Return a model of `NODES` nodes; `declared`: with the type of every value in the file."""
    steps = [f"v{i + 1} = {_STEPS[i % 5].format(v=f'v{i}')}" for i in range(NODES)]
    inner = ", ".join(f"float[N, 4] v{i}" for i in range(1, NODES)) if declared else ""
    text = (
        '<ir_version: 8, opset_import: ["" : 17]>\n'
        f"g (float[N, 4] v0) => (float[N, 4] v{NODES})"
        f"{f' <{inner}>' if inner else ''} {{ {chr(10).join(steps)} }}"
    )
    model = onnx.parser.parse_model(text)
    weights = {"w": np.eye(4, dtype=np.float32), "s": np.array([-1, 4])}
    model.graph.initializer.extend(
        onnx.numpy_helper.from_array(array, name) for name, array in weights.items()
    )
    return load(model)


def time_check(unit: CompileUnit) -> float:
    """Return the median CPU seconds of five checks."""
    seconds = []
    for _ in range(5):
        start = time.process_time()
        report = check(unit, Target(SOCS[0]))
        seconds.append(time.process_time() - start)
        assert report.nodes == NODES
    return sorted(seconds)[2]


def _suite() -> list[Any]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the suite divides by zero on purpose while it is made
        from onnx.backend.test.case.node import collect_testcases

        return list(collect_testcases(None))


def _verdicts() -> Iterator[str]:
    cases = _suite()
    reports = {soc: [check(load(case.model), Target(soc)) for case in cases] for soc in SOCS}
    yield f"# Verdicts of check on the ONNX backend node tests (onnx {onnx.__version__})\n"
    yield f"{len(cases)} models; a model counts under its worst finding.\n"
    yield f"| verdict | {' | '.join(SOCS)} |"
    yield "|---|" + "---|" * len(SOCS)
    counts = {soc: Counter(report.verdict for report in reports[soc]) for soc in SOCS}
    for verdict in VERDICTS:
        yield f"| {verdict} | {' | '.join(str(counts[soc][verdict]) for soc in SOCS)} |"
    yield f"\nModels with a finding of a code, {SOCS[0]}:\n"
    yield "| code | stands for | models |\n|---|---|---|"
    codes = Counter(
        code for report in reports[SOCS[0]] for code in {f.code for f in report.findings}
    )
    yield from (f"| {code} | {KINDS[code].title} | {codes[code]} |" for code in sorted(codes))


def _speed(seconds: dict[bool, float]) -> Iterator[str]:
    load_now = os.getloadavg()[0]
    yield f"\n# A model of {NODES:,} nodes\n"
    yield f"Python {platform.python_version()}, load average {load_now:.1f}; after loading.\n"
    yield "| types in the file | CPU seconds of check, median of 5 |\n|---|---|"
    for declared, figure in seconds.items():
        yield f"| {'all values' if declared else 'inputs and outputs'} | {figure:.2f} |"


if __name__ == "__main__":
    sys.exit(main())
