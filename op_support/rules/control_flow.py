"""If: what the parser's sub-graph adapter cannot do."""

from __future__ import annotations

from collections.abc import Iterator

import onnx_ir as ir

from cannc.compiler.core.graphs import all_graphs, subgraphs, walk
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
    branches = [*subgraphs(site.node)]
    captured = {value for _, branch in branches for node in branch for value in node.inputs}
    names = {value.name for value in captured if value is not None}
    for name, branch in branches:
        yield from _deep_captures(site, name, branch, captured)
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
            if not _made_in(value, branch) and value.name not in names:
                yield _refused(
                    site,
                    f"{name}: output '{value.name}' comes from outside and no node here reads it",
                    "insert an Identity",
                )


def _deep_captures(
    site: Site, name: str, branch: ir.Graph, captured: set[ir.Value | None]
) -> Iterator[Finding]:
    """What only a nested If reads from outside is not handed down: its input stays open."""
    for node in branch:
        for _, inner in subgraphs(node):
            graphs = {branch, *(graph for _, graph in all_graphs(inner))}
            read = (value for scoped in walk(inner) for value in scoped.node.inputs if value)
            lost = next((v for v in read if v not in captured and v.graph not in graphs), None)
            if lost is not None:
                yield site.finding(
                    "OP033",
                    Severity.RISK,
                    f"{name}: only the nested '{node.name}' reads '{lost.name}', which the parser "
                    "does not hand down",
                    source=PLUGIN,
                    cure="read it in the outer branch too, or resolve the If",
                )


def _made_in(value: ir.Value, graph: ir.Graph) -> bool:
    """Is it computed or stored in this graph? An output from outside has no maker at all."""
    node = value.producer()
    return (node is not None and node.graph is graph) or value.name in graph.initializers


def _empty_input(node: ir.Node) -> int | None:
    return next((index for index, value in enumerate(node.inputs) if value is None), None)


def _refused(site: Site, why: str, cure: str) -> Finding:
    return site.finding("OP020", Severity.REFUSED, why, source=PLUGIN, atc_code="E19999", cure=cure)
