"""The operator check: everything in a model that its target refuses or gets wrong.

All findings of one run, not the first: main graph, branches, and the bodies of local functions
that are no registered operators (D8).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator

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
    on_disk,
    plugin,
    registration,
    shapes,
    structure,
)
from cannc.op_support.site import Site, World
from cannc.op_support.table import operators
from cannc.op_support.values import Values

Rule = Callable[[Site], Iterator[Finding]]
RULES: tuple[Rule, ...] = (
    registration.check,
    arity.check,
    plugin.check,
    plugin.crashes,
    control_flow.check,
    attributes.check,
    forms.check,
    constness.check,
    dtypes.check,
    shapes.check,
)


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
    for site in _sites(model, world):
        nodes += 1
        if _is_call(site) or _full_name(site) in registered:
            continue
        for rule in RULES:
            findings += rule(site)
        if target.family in dtypes.NO_FLOAT32_CUBE:
            cube_nodes += dtypes.float32_on_cube(site)
    if cube_nodes:
        findings.append(_float32(cube_nodes, target))
    return SupportReport.of(target, _default_opset(model), nodes, findings)


def _sites(model: ir.Model, world: World) -> Iterator[Site]:
    """Yield every node of the model and of the function bodies that ATC would see inlined."""
    imports = _by_domain(model.opset_imports)
    for scoped in walk(model.graph):
        yield _site(scoped.node, scoped.scope, imports, world, in_function=False)
    for (domain, name, _), function in model.functions.items():
        if _registered(domain, name, imports):
            continue
        inner = {**imports, **_by_domain(function.opset_imports)}
        for scoped in walk(function.graph, f"{domain}::{name}/"):
            yield _site(scoped.node, scoped.scope, inner, world, in_function=True)


def _site(
    node: ir.Node, scope: str, imports: dict[str, int], world: World, *, in_function: bool
) -> Site:
    domain = node.domain or "ai.onnx"
    key = f"{domain}::{node.op_type}"
    entry = operators().get(key)
    return Site(node, scope, imports.get(domain), key, entry, world, in_function)


def _is_call(site: Site) -> bool:
    """Is it a call of a local function? Its body is checked instead (D8)."""
    if (site.node.domain, site.op_type) not in site.world.functions:
        return False
    return site.entry is None or not site.entry.registered_at(site.version)


def _registered(domain: str, name: str, imports: dict[str, int]) -> bool:
    entry = operators().get(f"{domain or 'ai.onnx'}::{name}")
    return entry is not None and entry.registered_at(imports.get(domain or "ai.onnx", 0))


def _full_name(site: Site) -> str:
    domain, _, op_type = site.key.partition("::")
    return f"{domain}::{site.opset}::{op_type}"


def _by_domain(imports: ir.OpsetImports | dict[str, int]) -> dict[str, int]:
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
