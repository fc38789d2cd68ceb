"""The operator check: everything in a model that its target refuses or gets wrong.

All findings of one run, not the first: main graph, branches, and the bodies of local functions
that are no registered operators (D8).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping

import onnx_ir as ir

from cannc.compiler.core.graphs import walk
from cannc.compiler.core.target import Target
from cannc.compiler.core.unit import CompileUnit
from cannc.op_support.report import Finding, Severity, SupportReport
from cannc.op_support.rules import (
    arity,
    attributes,
    constness,
    control_flow,
    dtypes,
    forms,
    fused,
    on_disk,
    plugin,
    registration,
    shapes,
    structure,
)
from cannc.op_support.schema import Operator
from cannc.op_support.site import Site, World
from cannc.op_support.table import operators
from cannc.op_support.values import Values

Rule = Callable[[Site, Operator], Iterator[Finding]]
RULES: tuple[Rule, ...] = (
    arity.check,
    plugin.check,
    plugin.crashes,
    control_flow.check,
    attributes.check,
    forms.check,
    fused.check,
    constness.check,
    dtypes.check,
    shapes.check,
)
"""Rules for nodes that have a plugin."""


def check(
    unit: CompileUnit,
    target: Target,
    *,
    registered: Collection[str] = (),
    on_disk_too: bool = True,
) -> SupportReport:
    """Check every node of a model for a target.

    Args:
        unit: The model; not changed.
        target: SoC and CANN release.
        registered: ``domain::opset::type`` of plugins that the user installed: never refused for
            want of a plugin.
        on_disk_too: Also judge the file that the unit was read from, as long as nothing has worked
            on it: faults that loading mends (names, external-data keys) stop ATC all the same.
    """
    model = unit.model
    world = World(
        target=target,
        values=Values(model),
        provenance=unit.provenance,
        functions=frozenset((domain, name) for domain, name, _ in model.functions),
    )
    findings: list[Finding] = [*structure.check(model, target)]
    if on_disk_too and unit.source is not None and not unit.log:
        findings += on_disk.check(unit.source)
    nodes = cube_nodes = 0
    no_float32 = target.family in dtypes.NO_FLOAT32_CUBE
    for site in _sites(model, world):
        nodes += 1
        findings += check_node(site, registered)
        cube_nodes += no_float32 and dtypes.float32_on_cube(site)
    if cube_nodes:
        findings.append(_float32(cube_nodes, target))
    return SupportReport.of(target, _default_opset(model), nodes, findings)


def check_node(site: Site, registered: Collection[str] = ()) -> Iterator[Finding]:
    """Yield the findings about one node; `registered` as in `check`."""
    entry = operators().get(site.key)
    if entry is not None and entry.registered_at(site.version):
        for rule in RULES:
            yield from rule(site, entry)
    elif (site.node.domain, site.op_type) in site.world.functions:
        return  # its body is checked instead (D8)
    elif f"{site.domain}::{site.opset}::{site.op_type}" not in registered:
        yield from registration.check(site, entry)


def _sites(model: ir.Model, world: World) -> Iterator[Site]:
    """Yield every node of the model and of the function bodies that ATC would see inlined."""
    imports = _by_domain(model.opset_imports)
    for scoped in walk(model.graph):
        yield Site.of(scoped.node, scoped.scope, imports, world)
    for function in _called(model, imports):
        inner = {**imports, **_by_domain(function.opset_imports)}
        for scoped in walk(function.graph, f"{function.domain}::{function.name}/"):
            yield Site.of(scoped.node, scoped.scope, inner, world, in_function=True)


def _called(model: ir.Model, imports: Mapping[str, int]) -> list[ir.Function]:
    """Return the local functions that calls reach and no plugin takes over, in file order."""
    bodies = {
        key: function
        for key, function in model.functions.items()
        if not _registered(key[0], key[1], imports)
    }
    reached: set[ir.OperatorIdentifier] = set()
    pending = [model.graph] if bodies else []
    while pending:
        for scoped in walk(pending.pop()):
            key = scoped.node.op_identifier()
            if key in bodies and key not in reached:
                reached.add(key)
                pending.append(bodies[key].graph)
    return [function for key, function in bodies.items() if key in reached]


def _registered(domain: str, name: str, imports: Mapping[str, int]) -> bool:
    entry = operators().get(f"{domain or 'ai.onnx'}::{name}")
    return entry is not None and entry.registered_at(imports.get(domain or "ai.onnx", 0))


def _by_domain(imports: Mapping[str, int]) -> dict[str, int]:
    """Spell out the default domain; when it is imported under both names the last one wins."""
    return {domain or "ai.onnx": version for domain, version in imports.items()}


def _default_opset(model: ir.Model) -> int:
    return _by_domain(model.opset_imports).get("ai.onnx", 0)


def _float32(count: int, target: Target) -> Finding:
    return Finding(
        code="OP053",
        severity=Severity.RISK,
        node="",
        op_type="",
        why=f"{count} matrix operators work on float32, which the matrix unit of {target.family} "
        "lacks at origin precision",
        source="vendor documentation of Conv; ATC's precision modes",
        cure="cannc optimize --precision fp16 (or mixed)",
    )
