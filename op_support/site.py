"""A node where it stands, with the questions that rules ask about it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx_ir as ir

from cannc.compiler.core.provenance import Provenance, origins
from cannc.compiler.core.runner import Array
from cannc.compiler.core.target import Target
from cannc.op_support.report import Finding, Severity
from cannc.op_support.values import Values

PARSER_RUN = "the open parser, executed (parser-run.md, 2026-08 snapshot)"
PLUGIN = "plugin source"


@dataclass(frozen=True)
class World:
    """What all nodes of one check share.

    Attributes:
        target: SoC and CANN release.
        values: Types and shapes.
        provenance: The original nodes.
        functions: ``(domain, name)`` of the model's local functions.
    """

    target: Target
    values: Values
    provenance: Provenance
    functions: frozenset[tuple[str, str]]


@dataclass
class Site:
    """One node under check.

    Attributes:
        node: The node.
        scope: Where it stands: "" in the main graph.
        domain: Its domain, the default one spelled out.
        opset: Version of the node's domain that its graph imports; None when it imports none.
        key: ``domain::type`` with the default domain spelled out.
        world: What all nodes share.
        in_function: The node stands in a local function's body.
    """

    node: ir.Node
    scope: str
    domain: str
    opset: int | None
    key: str
    world: World
    in_function: bool = False

    @classmethod
    def of(
        cls,
        node: ir.Node,
        scope: str,
        imports: Mapping[str, int],
        world: World,
        *,
        in_function: bool = False,
    ) -> Site:
        """Return the site of a node in a graph that imports these domains."""
        domain = node.domain or "ai.onnx"
        key = f"{domain}::{node.op_type}"
        return cls(node, scope, domain, imports.get(domain), key, world, in_function)

    @property
    def op_type(self) -> str:
        """Operator type without its domain."""
        return self.node.op_type

    @property
    def version(self) -> int:
        """Opset of the node's domain; 0 when the domain is not imported."""
        return self.opset or 0

    def has(self, name: str) -> bool:
        """Does the node carry this attribute?"""
        return name in self.node.attributes

    def get(self, name: str, default: Any = None) -> Any:
        """Return an attribute's value; `default` when absent or a function's parameter."""
        attribute = self.node.attributes.get(name)
        if attribute is None or attribute.is_ref():
            return default
        return attribute.value

    def input(self, index: int) -> ir.Value | None:
        """Return an input, or None when it is absent or left empty."""
        inputs = self.node.inputs
        return inputs[index] if index < len(inputs) else None

    def connected(self) -> int:
        """Return one more than the index of the last input that is given."""
        inputs = self.node.inputs
        count = len(inputs)
        while count and inputs[count - 1] is None:
            count -= 1
        return count

    def used_outputs(self) -> list[int]:
        """Return the indices of outputs that something reads."""
        return [
            index
            for index, value in enumerate(self.node.outputs)
            if value.uses() or value.is_graph_output()
        ]

    def dtype(self, index: int) -> ir.DataType | None:
        """Return the dtype of an input, or None when unknown."""
        value = self.input(index)
        return None if value is None else self.world.values.dtype(value)

    def shape(self, index: int) -> tuple[int | None, ...] | None:
        """Return the shape of an input, None for dims that are not static; None when unknown."""
        value = self.input(index)
        return None if value is None else self.world.values.shape(value)

    def rank(self, index: int) -> int | None:
        """Return the number of dims of an input, or None when unknown."""
        shape = self.shape(index)
        return None if shape is None else len(shape)

    def constant(self, index: int, max_elements: int = 1024) -> Array | None:
        """Return a small constant input as an array, else None."""
        value = self.input(index)
        tensor = None if value is None else ir.convenience.get_const_tensor(value)
        if tensor is None or tensor.size > max_elements:
            return None
        return np.asarray(tensor.numpy())

    def finding(
        self,
        code: str,
        severity: Severity,
        why: str,
        *,
        source: str,
        atc_code: str = "",
        cure: str = "",
    ) -> Finding:
        """Return a finding about this node."""
        node = self.node
        domain = "" if node.domain in ("", "ai.onnx") else f"{node.domain}::"
        return Finding(
            code=code,
            severity=severity,
            node=f"{self.scope}{node.name}",
            op_type=f"{domain}{node.op_type}",
            why=why,
            source=source,
            atc_code=atc_code,
            cure=cure,
            module=self._module(),
        )

    def _module(self) -> str:
        known = self.world.provenance.nodes
        modules = (known[name].module for name in origins(self.node) if name in known)
        return next((module for module in modules if module), "")
