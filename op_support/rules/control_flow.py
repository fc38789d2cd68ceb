"""If: what the parser's sub-graph adapter cannot do."""

from __future__ import annotations

from collections.abc import Iterator

import onnx_ir as ir

from cannc.compiler.core.graphs import subgraphs
from cannc.op_support.report import Finding, Severity
from cannc.op_support.schema import Operator
from cannc.op_support.site import PLUGIN, Site

_BRANCHES = frozenset({"then_branch", "else_branch"})


def check(site: Site, _: Operator) -> Iterator[Finding]:
    """Yield findings about an If node and its branches."""
    if site.key != "ai.onnx::If":
        return
    extra = sorted(set(site.node.attributes) - _BRANCHES)
    if extra:
        yield _refused(site, f"attribute {extra[0]} beside the two branches", "remove it")
    for name, branch in subgraphs(site.node):
        for node in branch:
            empty = _empty_input(node)
            if empty is not None:
                yield _refused(
                    site,
                    f"{name}: input {empty} of '{node.name}' ({node.op_type}) is empty and becomes "
                    "a graph input without a name",
                    "give the input, or resolve the If under a fixed input shape",
                )
                break
        for value in branch.outputs:
            if value.graph is not branch:
                yield _refused(
                    site,
                    f"{name}: output '{value.name}' is a tensor of the outer graph",
                    "insert an Identity",
                )


def _empty_input(node: ir.Node) -> int | None:
    return next((index for index, value in enumerate(node.inputs) if value is None), None)


def _refused(site: Site, why: str, cure: str) -> Finding:
    return site.finding("OP020", Severity.REFUSED, why, source=PLUGIN, atc_code="E19999", cure=cure)
