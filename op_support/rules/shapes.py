"""Ranks and dims that the tensors of a node may not have."""

from __future__ import annotations

from collections.abc import Iterator

from cannc.op_support.report import Finding, Severity
from cannc.op_support.schema import Operator
from cannc.op_support.site import Site
from cannc.op_support.table import parser_facts


def check(site: Site, _: Operator) -> Iterator[Finding]:
    """Yield findings about the shapes of a node's outputs, where the file states them."""
    limit = parser_facts().max_rank
    for value in site.node.outputs:
        if value.shape is None:
            continue
        if len(value.shape) > limit:
            yield site.finding(
                "OP072",
                Severity.RISK,
                f"output '{value.name}' has {len(value.shape)} dims; documents say 1 to {limit}",
                source="vendor documentation",
                cure="merge neighbouring axes by a Reshape",
            )
        if any(isinstance(dim, int) and dim == 0 for dim in value.shape):
            yield site.finding(
                "OP073",
                Severity.RISK,
                f"output '{value.name}' has a zero dimension; documents forbid it",
                source="vendor documentation",
            )
