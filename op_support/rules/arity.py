"""Inputs and outputs that the device operator lacks, and required inputs that are missing."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache

import onnx.defs

from cannc.op_support.advice import refusal_cure
from cannc.op_support.report import Finding, Severity
from cannc.op_support.schema import FusedOperator, Operator
from cannc.op_support.site import PARSER_RUN, Site
from cannc.op_support.table import fused_operators


@dataclass(frozen=True)
class Ports:
    """Input positions of an operator; `most` is None when there is no bound."""

    required: tuple[int, ...]
    most: int | None


def check(site: Site, entry: Operator) -> Iterator[Finding]:
    """Yield findings about the number of inputs and outputs."""
    connected = site.connected()
    for limit, opsets in entry.input_limits.items():
        if site.version in opsets and connected > limit:
            yield _too_many(site, limit, connected)
    for limit, opsets in entry.output_limits.items():
        if site.version in opsets:
            yield from _outputs_beyond(site, limit)
    ports = _ports(site.key, site.version)
    if ports is None:
        return
    missing = [index for index in ports.required if site.input(index) is None]
    if missing:
        yield site.finding(
            "OP012",
            Severity.REFUSED,
            f"required input {missing[0]} is missing; ATC accepts that and leaves it open",
            source=PARSER_RUN,
            cure="export the model again",
        )
    if ports.most is not None and connected > ports.most:
        yield _too_many(site, ports.most, connected)


def _outputs_beyond(site: Site, limit: int) -> Iterator[Finding]:
    """An output that a node reads stops the parse; one that only leaves the graph fails later."""
    cure = "rewrite the graph so that only the first output is used"
    for index, value in enumerate(site.node.outputs):
        if index < limit:
            continue
        if value.uses() or (value.is_graph_output() and site.scope):
            yield site.finding(
                "OP011",
                Severity.REFUSED,
                f"output {index} is used, the device operator has {limit}",
                source=PARSER_RUN,
                atc_code="E19999",
                cure=cure,
            )
        elif value.is_graph_output():
            yield site.finding(
                "OP022",
                Severity.RISK,
                f"output {index} is a graph output, the device operator has {limit}",
                source="parser source: graph outputs are not resolved while parsing",
                cure=cure,
            )


def _too_many(site: Site, limit: int, connected: int) -> Finding:
    return site.finding(
        "OP010",
        Severity.REFUSED,
        f"input {connected - 1} is connected, the device operator has {limit}",
        source=PARSER_RUN,
        atc_code="E19999",
        cure=refusal_cure(site.op_type)
        or "express the input as an attribute or a constant rewrite, or leave it out",
    )


@cache
def _ports(key: str, version: int) -> Ports | None:
    """Return the ports of an operator: of the fused one, else by the ONNX standard."""
    fused = fused_operators().get(key)
    if fused is not None:
        return _fused_ports(fused)
    domain, _, op_type = key.partition("::")
    if domain != "ai.onnx":
        return None
    try:
        schema = onnx.defs.get_schema(op_type, version, "")
    except onnx.defs.SchemaError:
        return None
    option = onnx.defs.OpSchema.FormalParameterOption
    required = [i for i, port in enumerate(schema.inputs) if port.option == option.Single]
    variadic = any(port.option == option.Variadic for port in schema.inputs)
    return Ports(tuple(required), None if variadic else len(schema.inputs))


def _fused_ports(fused: FusedOperator) -> Ports | None:
    if fused.inputs is None:
        return None
    dynamic = any(port.dynamic for port in fused.inputs)
    required = [i for i, port in enumerate(fused.inputs) if not port.optional and not port.dynamic]
    return Ports(tuple(required), None if dynamic else len(fused.inputs))
