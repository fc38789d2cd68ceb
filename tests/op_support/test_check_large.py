"""A large model is checked whole; how long that takes is measured by ``make bench``."""

from __future__ import annotations

import pytest
from bench.check_support import NODES, large_model
from tests.support.ops import B4

from cannc.op_support.checker import check


@pytest.mark.slow
@pytest.mark.parametrize("declared", [False, True])
def test_twelve_thousand_nodes(declared: bool) -> None:
    report = check(large_model(declared=declared), B4)
    assert report.nodes == NODES
    assert report.findings == ()
