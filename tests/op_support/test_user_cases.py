"""Cases from users' reports: what must be refused is refused, and by name."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from tests.support.ops import B4

from cannc.compiler.core.unit import load
from cannc.op_support.checker import check

CASES = Path(__file__).parents[2].parent / "shared" / "cases"
INDEX = CASES / "cases.json"
ROWS: list[dict[str, Any]] = json.loads(INDEX.read_text())["cases"] if INDEX.is_file() else []
MUST = [row for row in ROWS if row["expect"].startswith("reject-op:")]
MAY = [row for row in ROWS if row["expect"].startswith("equal-or-reject:")]

pytestmark = pytest.mark.skipif(not ROWS, reason="the cases are not here")


def _operators(row: dict[str, Any]) -> set[str]:
    return set(row["expect"].split(":", 1)[1].split(","))


@pytest.mark.parametrize("row", MUST, ids=lambda row: row["id"])
def test_what_must_be_refused_is_refused_by_name(row: dict[str, Any]) -> None:
    report = check(load(CASES / row["model"]), B4)
    assert _operators(row) <= {finding.op_type for finding in report.refused}


@pytest.mark.parametrize("row", MAY, ids=lambda row: row["id"])
def test_what_may_be_refused_is_at_least_reported(row: dict[str, Any]) -> None:
    report = check(load(CASES / row["model"]), B4)
    assert report.exit_code == 1
    assert _operators(row) <= {f.op_type for f in (*report.refused, *report.wrong)}


def test_a_data_dependent_trip_count_is_named() -> None:
    (row,) = [row for row in MUST if row["id"] == "op-04"]
    assert "depends on data" in check(load(CASES / row["model"]), B4).refused[0].why
