"""Findings about the model as a whole: domains, names, interface, weights."""

from __future__ import annotations

from collections.abc import Iterator

import onnx_ir as ir

from cannc.compiler.core.graphs import all_graphs
from cannc.compiler.core.onnx_io import PROTOBUF_LIMIT_BYTES
from cannc.compiler.core.target import Target
from cannc.op_support.releases import single_import_only
from cannc.op_support.report import Finding, Severity
from cannc.op_support.rules.dtypes import COMPLETE
from cannc.op_support.site import PARSER_RUN
from cannc.op_support.table import operators, parser_facts


def check(model: ir.Model, target: Target) -> Iterator[Finding]:
    """Yield findings that belong to no single node."""
    graphs = [*all_graphs(model.graph)]
    yield from _domains(model, target)
    yield from _interface(model.graph)
    yield from _size([graph for _, graph in graphs])
    for scope, graph in graphs:
        yield from _names(graph, scope)
        yield from _empty_names(graph, scope)
        yield from _weights(graph, scope)
    yield from _functions(model)
    if target.family not in COMPLETE:
        yield _about_model(
            "OP050",
            Severity.UNKNOWN,
            f"the kernel tables of {target.family} are thin: dtypes were not checked there",
            source="coverage of the GE kernel tables",
        )


def tensor_findings(dtype: ir.DataType, name: str, *, constant: bool) -> Iterator[Finding]:
    """Yield a finding when the parser cannot hold a tensor of this dtype."""
    facts = parser_facts()
    allowed = facts.constant_dtypes if constant else facts.mapped_dtypes
    if int(dtype) not in allowed:
        kind = "constant" if constant else "graph input or output"
        yield _about_model(
            "OP067",
            Severity.REFUSED,
            f"{kind} '{name}' is {dtype.name}, which the parser cannot hold",
            source=PARSER_RUN,
            atc_code="E19999",
            cure="store it in another dtype, e.g. 4-bit values packed in INT32",
        )


def _domains(model: ir.Model, target: Target) -> Iterator[Finding]:
    domains = {domain or "ai.onnx" for domain in model.opset_imports}
    single = single_import_only(target)
    if len(domains) < 2 or single is False:
        return
    listed = ", ".join(sorted(domains))
    yield _about_model(
        "OP060",
        Severity.REFUSED if single else Severity.RISK,
        f"operator domains {listed} are imported; CANN {target.cann} "
        + ("reads one only" if single else "may read one only"),
        source="2021 parser (read), user's report on ATC 8.1",
        atc_code="E16005",
        cure="drop unused imports; the atc backend hands over npu operators in the default domain",
    )


def _interface(graph: ir.Graph) -> Iterator[Finding]:
    """No inputs or no outputs; inputs that are sequences; dtypes at the border."""
    inputs = [value for value in graph.inputs if value.name not in graph.initializers]
    for what, values in (("inputs", inputs), ("outputs", list(graph.outputs))):
        if not values:
            yield _about_model(
                "OP063",
                Severity.REFUSED,
                f"the graph has no {what}",
                source=PARSER_RUN,
                atc_code="E16001",
                cure="keep at least one graph input, even an unused one",
            )
    for value in inputs:
        if value.type is not None and not isinstance(value.type, ir.TensorType):
            yield _about_model(
                "OP066",
                Severity.REFUSED,
                f"graph input '{value.name}' is not a tensor",
                source=PARSER_RUN,
                atc_code="E19999",
                cure="pass the elements as separate tensors",
            )
    for value in (*inputs, *graph.outputs):
        if isinstance(value.type, ir.TensorType):
            yield from tensor_findings(value.type.dtype, value.name or "", constant=False)


def _size(graphs: list[ir.Graph]) -> Iterator[Finding]:
    inline = sum(
        value.const_value.nbytes
        for graph in graphs
        for value in graph.initializers.values()
        if value.const_value is not None and not isinstance(value.const_value, ir.ExternalTensor)
    )
    if inline > PROTOBUF_LIMIT_BYTES:
        yield _about_model(
            "OP070",
            Severity.RISK,
            f"{inline / 1e9:.1f} GB of weights are in memory: one file cannot hold them",
            source=PARSER_RUN,
            atc_code="E13015",
            cure="save with external data (cannc does so by itself)",
        )


def _names(graph: ir.Graph, scope: str) -> Iterator[Finding]:
    """Node names must be unique, also against the names of graph inputs."""
    taken = {value.name for value in graph.inputs if value.name not in graph.initializers}
    for node in graph:
        if node.name and node.name in taken:
            yield Finding(
                code="OP064",
                severity=Severity.REFUSED,
                node=f"{scope}{node.name}",
                op_type=node.op_type,
                why="another node or a graph input has the same name",
                source=PARSER_RUN,
                atc_code="E13009",
                cure="rename the node",
            )
        taken.add(node.name)


def _empty_names(graph: ir.Graph, scope: str) -> Iterator[Finding]:
    if any(value is None for node in graph for value in node.inputs):
        for node in graph:
            if any(not value.name for value in node.outputs):
                yield empty_output(f"{scope}{node.name}", node.op_type)


def empty_output(node: str, op_type: str) -> Finding:
    """An output without a name in a graph where an input is left empty."""
    return Finding(
        code="OP065",
        severity=Severity.WRONG,
        node=node,
        op_type=op_type,
        why="an output without a name is wired to every input that is left empty",
        source=PARSER_RUN,
        cure="name skipped outputs (cannc does so on loading)",
    )


def _weights(graph: ir.Graph, scope: str) -> Iterator[Finding]:
    for name, value in graph.initializers.items():
        tensor = value.const_value
        if tensor is not None:
            yield from tensor_findings(tensor.dtype, f"{scope}{name}", constant=True)
    for node in graph:
        if node.op_type == "Constant" and "value" in node.attributes:
            attribute = node.attributes["value"]
            if not attribute.is_ref():
                dtype = attribute.as_tensor().dtype
                name = node.outputs[0].name or ""
                yield from tensor_findings(dtype, f"{scope}{name}", constant=True)


def _functions(model: ir.Model) -> Iterator[Finding]:
    for domain, name, _ in model.functions:
        entry = operators().get(f"{domain or 'ai.onnx'}::{name}")
        if entry is not None and entry.registered_at(model.opset_imports.get(domain, 0)):
            continue  # the plugin's kernel is used, the body only serves other readers
        yield _about_model(
            "OP062",
            Severity.RISK,
            f"local function {domain}::{name}: ATC does not read functions",
            source=PARSER_RUN,
            atc_code="E13010",
            cure="cannc optimize inlines it at every level; do not hand this file to atc as is",
        )


def _about_model(
    code: str, severity: Severity, why: str, *, source: str, atc_code: str = "", cure: str = ""
) -> Finding:
    return Finding(
        code=code,
        severity=severity,
        node="",
        op_type="",
        why=why,
        source=source,
        atc_code=atc_code,
        cure=cure,
    )
