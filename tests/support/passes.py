"""Running one pass on a model written as text, and showing the result as text."""

from __future__ import annotations

import numpy as np
import onnx
import onnx_ir as ir
from tests.support.runner import PlainRunner

from cannc.compiler.core.graphs import subgraphs
from cannc.compiler.core.runner import Array, Runner
from cannc.compiler.core.shapes import infer_shapes
from cannc.compiler.core.target import Target
from cannc.compiler.core.unit import CompileUnit, load
from cannc.passes.manager import run_passes
from cannc.passes.optimize import optimize
from cannc.passes.registry import Level


def no_gap(op_type: str, dtype: ir.DataType | None) -> str | None:
    """Say that every fused operator has a kernel."""
    return None


def parse(graph: str, *, opset: int = 18, functions: str = "", imports: str = "") -> CompileUnit:
    """Return a unit for ``(inputs) => (outputs) {body}`` in ONNX's text form."""
    header = f'<ir_version: 10, opset_import: ["" : {opset}{imports}]>'
    return load(onnx.parser.parse_model(f"{header}\nmain {graph}\n{functions}"))


def run(unit: CompileUnit, *names: str, runner: Runner | None = None) -> CompileUnit:
    """Return a copy after these passes, each once."""
    result = unit.copy()
    infer_shapes(result.model)
    run_passes(result, names, runner=runner or PlainRunner(), may_use_kernel=no_gap)
    return result


def optimized(unit: CompileUnit, level: Level = "O1") -> CompileUnit:
    """Return what `optimize` makes of a unit, precision kept."""
    return optimize(
        unit,
        level=level,
        precision="keep",
        target=Target(),
        runner=PlainRunner(),
        may_use_kernel=no_gap,
    )


def show(graph: ir.Graph | ir.Model) -> list[str]:
    """Return one line per node: ``y = Op(a, b) {attribute: value}``, bodies indented below it."""
    lines = []
    for node in graph.graph if isinstance(graph, ir.Model) else graph:
        outputs = ", ".join(value.name or "" for value in node.outputs)
        inputs = ", ".join(value.name or "" if value is not None else "" for value in node.inputs)
        bodies = subgraphs(node)
        plain = {name: a.value for name, a in node.attributes.items() if name not in dict(bodies)}
        attributes = ", ".join(f"{name}: {plain[name]}" for name in sorted(plain))
        domain = f"{node.domain}." if node.domain else ""
        line = f"{outputs} = {domain}{node.op_type}({inputs})"
        lines.append(f"{line} {{{attributes}}}" if attributes else line)
        for name, body in bodies:
            lines += [f"  {name}: {line}" for line in show(body)]
    return lines


def fates(unit: CompileUnit) -> dict[str, str]:
    """Return original value -> kind of its fate, with the target of an alias."""
    return {
        fate.value: f"alias {fate.target}" if fate.kind == "alias" else fate.kind
        for fate in unit.fates()
    }


def random_feeds(
    model: ir.Model, dims: dict[str, int] | None = None, seed: int = 0
) -> dict[str, Array]:
    """Return seeded inputs; symbolic dims are 2 unless `dims` says otherwise."""
    rng = np.random.default_rng(seed)
    feeds: dict[str, Array] = {}
    for value in model.graph.inputs:
        shape = [
            dim if isinstance(dim, int) else (dims or {}).get(str(dim), 2)
            for dim in value.shape or ()
        ]
        dtype = (value.dtype or ir.DataType.FLOAT).numpy()
        if dtype == np.bool_:
            feeds[value.name or ""] = rng.integers(0, 2, shape).astype(dtype)
        elif np.issubdtype(dtype, np.integer):
            feeds[value.name or ""] = rng.integers(0, 3, shape).astype(dtype)
        else:
            feeds[value.name or ""] = rng.standard_normal(shape).astype(dtype)
    return feeds
