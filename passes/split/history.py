"""Which part tells what became of which original value.

Every part keeps the digest of the original model and of its record what concerns that part, so
that no value is called dead because another part computes it. Together the parts tell everything.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace

import onnx_ir as ir

from cannc.compiler.core.graphs import all_graphs, walk
from cannc.compiler.core.provenance import Provenance


def share_provenance(
    whole: Provenance, model: ir.Model, parts: Sequence[ir.Model]
) -> list[Provenance]:
    """Return the provenance of each part of `model`, whose provenance is `whole`.

    An original value belongs to the part that shows it or computes it inside a node; to several
    where each of them computes it. What no part computes any more (folded or dead values) goes
    with the original node before it.
    """
    inputs = {value.name or "" for value in model.graph.inputs}
    shown: dict[str, list[int]] = {}
    computing: dict[str, list[int]] = {}
    for index, part in enumerate(parts):
        for key in _shown(part, inputs):
            shown.setdefault(key, []).append(index)
        for scoped in walk(part.graph):
            computing.setdefault(scoped.node.name or "", []).append(index)
    producers = whole.producers()
    owned: list[dict[str, list[str]]] = [{} for _ in parts]
    owners = [0]
    for fate in whole.fates(model):
        key = fate.value if fate.kind in ("same", "folded") else fate.target
        owners = (computing if fate.kind == "inside" else shown).get(key, owners)
        for index in owners:
            owned[index].setdefault(producers[fate.value].name, []).append(fate.value)
    return [_restricted(whole, outputs) for outputs in owned]


def _shown(part: ir.Model, inputs: Collection[str]) -> set[str]:
    """Return keys of the values that a part has of its own: not those that other parts send."""
    keys: set[str] = set()
    for scope, graph in all_graphs(part.graph):
        keys.update(f"{scope}{v.name}" for v in graph.inputs if scope or v.name in inputs)
        keys.update(f"{scope}{name}" for name in graph.initializers)
        keys.update(f"{scope}{value.name}" for node in graph for value in node.outputs)
    return keys


def _restricted(whole: Provenance, outputs: Mapping[str, Sequence[str]]) -> Provenance:
    """Return the record of some outputs of original nodes, given by the names of the nodes."""
    values = [value for made in outputs.values() for value in made]
    linked = set(values)
    aliases = {}
    pending = [value for value in values if value in whole.aliases]
    while pending:
        value = pending.pop()
        aliases[value] = whole.aliases[value]
        target = whole.aliases[value].value
        linked.add(target)
        if target in whole.aliases and target not in aliases:
            pending.append(target)
    return replace(
        whole,
        nodes={
            name: replace(whole.nodes[name], outputs=tuple(made)) for name, made in outputs.items()
        },
        aliases=aliases,
        folded=whole.folded & linked,
        dead=whole.dead & linked,
    )
