"""Agreement with the parser itself: it was run on the node tests of onnx 1.13.1.

The models are in that release's wheel (``onnx/backend/test/data/node``). Unpack it and name the
folder in CANNC_ONNX113_NODES, or unpack it into ``.cache/onnx-1.13.1``.
"""

from __future__ import annotations

import json
import os
from collections import Counter
from pathlib import Path

import pytest
from tests.support.ops import B4

from cannc.compiler.core.unit import load
from cannc.op_support.checker import check

ROOT = Path(__file__).parents[2]
VERDICTS: dict[str, list[str]] = json.loads(
    (Path(__file__).parent / "data" / "parser_verdicts.json").read_text()
)["tests"]
NODES = Path(
    os.environ.get("CANNC_ONNX113_NODES", ROOT / ".cache/onnx-1.13.1/onnx/backend/test/data/node")
)

pytestmark = pytest.mark.skipif(
    not NODES.is_dir(), reason="onnx 1.13.1's node tests are not here (see CANNC_ONNX113_NODES)"
)


def _verdict(name: str) -> list[str]:
    """Return our verdict in the form of the table."""
    unit = load(NODES / name / "model.onnx")
    parser = [finding for finding in check(unit, B4).refused if finding.stage == "parser"]
    if not parser:
        return ["accepted"]
    if any(finding.code == "OP021" for finding in parser):
        return ["crash"]
    codes = {finding.atc_code for finding in parser}
    first = next(code for code in ("E16001", "E13010", "E19999") if code in codes)
    if first != "E13010":
        return [first]
    imports = unit.model.opset_imports
    missing = set()
    for finding in parser:
        domain, _, op_type = finding.op_type.rpartition("::")
        if finding.atc_code == "E13010":
            missing.add(f"{domain or 'ai.onnx'}::{imports[domain]}::{op_type}")
    return [first, *sorted(missing)]


def test_every_verdict_is_the_parsers_own() -> None:
    """Refused for the same reason and the same types; what it accepts is accepted."""
    different = {
        name: (expected, ours)
        for name, expected in VERDICTS.items()
        if (ours := _verdict(name)) != expected
    }
    assert different == {}
    assert len(VERDICTS) == 710


def test_the_rest_of_the_suite_adds_up_to_what_was_counted() -> None:
    """Of all 1,097: 817 accepted, 279 refused (211 for a missing plugin), 1 crash."""
    counts = Counter(_verdict(folder.name)[0] for folder in sorted(NODES.iterdir()))
    assert counts == {"accepted": 817, "E13010": 211, "E19999": 63, "E16001": 5, "crash": 1}
