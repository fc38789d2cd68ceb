"""What became of every tensor of the original model.

Each node carries the names of the original nodes that it stands for (``cannc.origin`` in its
metadata); the model carries the list of original nodes plus what cannot be read off the graph any
more: aliases, folded constants and dead values. Fates are computed from both, so they are right
after any number of passes, saves and loads (D13; rules in style-anchors.md section 4).

A value that stands for original value v keeps the name v (D14), which makes most fates a look-up.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, MutableMapping
from dataclasses import asdict, dataclass, field
from functools import lru_cache
from typing import Literal

import onnx_ir as ir

from cannc.compiler.core.graphs import all_graphs, survey, walk

ORIGIN_KEY = "cannc.origin"
MODEL_KEY = "cannc.provenance"
_MODULE_KEY = "pkg.torch.onnx.name_scopes"

FateKind = Literal["same", "alias", "inside", "folded", "dead", "unknown"]


@dataclass(frozen=True)
class OriginalNode:
    """A node of the model as it came in. `module` is the PyTorch module path, if known."""

    name: str
    op_type: str
    outputs: tuple[str, ...]
    module: str = ""


@dataclass(frozen=True)
class Alias:
    """An original value can be read off another one.

    `perm` says how: transposing `value` by it gives the original value; None means equal.
    """

    value: str
    perm: tuple[int, ...] | None = None


@dataclass(frozen=True)
class Fate:
    """What became of one original value.

    Attributes:
        value: Key of the original value.
        kind: ``same``: still computed under its name. ``alias``: equal to `target` after `perm`.
            ``inside``: no longer visible, computed inside node `target`. ``folded``: a constant.
            ``dead``: nothing needed it. ``unknown``: lost track, which is a bug.
        target: Value key for ``alias``, node name for ``inside``.
        perm: Permutation to apply to `target`, see `Alias`.
    """

    value: str
    kind: FateKind
    target: str = ""
    perm: tuple[int, ...] | None = None


@dataclass
class Provenance:
    """The original model's nodes, and the record of what passes did to its values."""

    digest: str
    nodes: dict[str, OriginalNode]
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    aliases: dict[str, Alias] = field(default_factory=dict)
    folded: set[str] = field(default_factory=set)
    dead: set[str] = field(default_factory=set)

    @classmethod
    def of(cls, model: ir.Model) -> Provenance:
        """Return the provenance that a model carries, or make this model the original one."""
        stored = model.metadata_props.get(MODEL_KEY)
        if stored:
            return cls.from_json(stored)
        return cls._stamp(model)

    @classmethod
    def _stamp(cls, model: ir.Model) -> Provenance:
        nodes: dict[str, OriginalNode] = {}
        for scoped in walk(model.graph):
            node = scoped.node
            name = f"{scoped.scope}{node.name}"
            outputs = tuple(scoped.key(value) for value in node.outputs)
            nodes[name] = OriginalNode(name, node.op_type, outputs, _module_path(node))
            set_origin(node, [name])
        return cls(
            digest=digest(model),
            nodes=nodes,
            inputs=tuple(v.name or "" for v in model.graph.inputs),
            outputs=tuple(v.name or "" for v in model.graph.outputs),
        )

    def producers(self) -> dict[str, OriginalNode]:
        """Return original value -> original node that computed it; graph inputs have none."""
        return {value: node for node in self.nodes.values() for value in node.outputs}

    def fates(self, model: ir.Model) -> list[Fate]:
        """Return the fate of every original value in `model`, in original order."""
        view = _View.of(model)
        producers = self.producers()
        return [self._fate(value, producers, view) for value in producers]

    def lost(self, model: ir.Model) -> list[str]:
        """Return the original values whose fate in `model` is unknown; see `fates`."""
        visible: set[str] = set()
        for scope, graph, nodes in survey(model.graph):
            visible.update(f"{scope}{value.name}" for value in graph.inputs)
            visible.update(f"{scope}{name}" for name in graph.initializers)
            visible.update(f"{scope}{value.name}" for node in nodes for value in node.outputs)
        unseen = {v for node in self.nodes.values() for v in node.outputs} - visible
        # What is recorded as folded or dead has at least that fate, so only the rest is looked up.
        unclear = unseen - self.folded - self.dead
        rest = sorted(value for value in unclear if self._resolve(value)[0] not in visible)
        if not rest:
            return []
        view, producers = _View.of(model), self.producers()
        return [v for v in rest if self._fate(v, producers, view).kind == "unknown"]

    def _fate(self, value: str, producers: dict[str, OriginalNode], view: _View) -> Fate:
        target, perm = self._resolve(value)
        if target in view.values:
            return Fate(value, "same") if target == value else Fate(value, "alias", target, perm)
        if target in view.constants:
            return Fate(value, "folded")
        producer = producers.get(target, producers[value])
        if producer.name in view.owners:
            return Fate(value, "inside", view.owners[producer.name])
        if target in self.folded or value in self.folded:
            return Fate(value, "folded")
        if target in self.dead or value in self.dead:
            return Fate(value, "dead")
        return Fate(value, "unknown")

    def _resolve(self, value: str) -> tuple[str, tuple[int, ...] | None]:
        perm: tuple[int, ...] | None = None
        seen = {value}
        while value in self.aliases:
            step = self.aliases[value]
            if step.perm is not None:
                # Transposing twice is transposing by the composed permutation.
                perm = step.perm if perm is None else tuple(step.perm[i] for i in perm)
            value = step.value
            if value in seen:
                break
            seen.add(value)
        return value, perm

    def to_json(self) -> str:
        """Return the record as JSON, the same bytes for the same record."""
        return json.dumps(
            {
                "schema_version": 1,
                "digest": self.digest,
                "inputs": self.inputs,
                "outputs": self.outputs,
                "nodes": [[n.name, n.op_type, n.outputs, n.module] for n in self.nodes.values()],
                "aliases": {k: asdict(a) for k, a in sorted(self.aliases.items())},
                "folded": sorted(self.folded),
                "dead": sorted(self.dead),
            },
            separators=(",", ":"),
        )

    @classmethod
    def from_json(cls, text: str) -> Provenance:
        """Read what `to_json` wrote."""
        data = json.loads(text)
        nodes = [OriginalNode(n, t, tuple(o), m) for n, t, o, m in data["nodes"]]
        aliases = {
            key: Alias(a["value"], tuple(a["perm"]) if a["perm"] is not None else None)
            for key, a in data["aliases"].items()
        }
        return cls(
            digest=data["digest"],
            nodes={node.name: node for node in nodes},
            inputs=tuple(data["inputs"]),
            outputs=tuple(data["outputs"]),
            aliases=aliases,
            folded=set(data["folded"]),
            dead=set(data["dead"]),
        )


@dataclass(frozen=True)
class _View:
    """Look-up tables over the current model."""

    values: set[str]
    constants: set[str]
    owners: dict[str, str]

    @classmethod
    def of(cls, model: ir.Model) -> _View:
        values: set[str] = set()
        constants: set[str] = set()
        owners: dict[str, str] = {}
        for scope, graph in all_graphs(model.graph):
            values.update(f"{scope}{value.name}" for value in graph.inputs)
            constants.update(f"{scope}{name}" for name in graph.initializers)
        for scoped in walk(model.graph):
            values.update(scoped.key(value) for value in scoped.node.outputs)
            for name in origins(scoped.node):
                owners[name] = scoped.node.name or ""
        return cls(values, constants, owners)


def origins(node: ir.Node) -> list[str]:
    """Return the names of the original nodes that a node stands for; empty for inserted nodes."""
    stored = node.metadata_props.get(ORIGIN_KEY)
    return list(_parse(stored)) if stored else []


@lru_cache(maxsize=1 << 17)
def _parse(stored: str) -> tuple[str, ...]:
    """Read a list of names; every pass reads those of all nodes again."""
    return tuple(json.loads(stored))


def set_origin(node: ir.Node, names: Iterable[str]) -> None:
    """Record which original nodes a node stands for, each name once, in order."""
    node.metadata_props[ORIGIN_KEY] = json.dumps(list(dict.fromkeys(names)))


def digest(model: ir.Model) -> str:
    """Return a digest of names, op types and edges; weights are left out (D13)."""
    rows = []
    for scoped in walk(model.graph):
        node = scoped.node
        edges = [value.name if value is not None else "" for value in node.inputs]
        outputs = [value.name for value in node.outputs]
        rows.append([scoped.scope, node.domain, node.op_type, node.name, edges, outputs])
    return hashlib.sha256(json.dumps(rows).encode()).hexdigest()


def drop_exporter_notes(model: ir.Model) -> None:
    """Remove what PyTorch's exporter noted on nodes and values, once provenance has read it.

    Its stack traces name source files of the machine that exported: they would travel into every
    artifact and make its bytes differ from machine to machine.
    """
    for scoped in walk(model.graph):
        _drop_notes(scoped.node.metadata_props)
        for value in scoped.node.outputs:
            _drop_notes(value.metadata_props)
    for _, graph in all_graphs(model.graph):
        for value in (*graph.inputs, *graph.initializers.values()):
            _drop_notes(value.metadata_props)


def _drop_notes(props: MutableMapping[str, str]) -> None:
    for key in [k for k in props if k == "namespace" or k.startswith("pkg.")]:
        del props[key]


def _module_path(node: ir.Node) -> str:
    """Return the PyTorch module path that the exporter left in the node's metadata, or ''."""
    scopes = node.metadata_props.get(_MODULE_KEY)
    if not scopes:
        return ""
    try:
        names = [str(part) for part in json.loads(scopes.replace("'", '"'))]
    except json.JSONDecodeError:
        return ""
    return names[-2] if len(names) > 1 else ""
