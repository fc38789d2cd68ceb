"""Run fusions on a small model and check all that must hold for every fusion."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np
import onnx
import onnx_ir as ir
from tests.support.runner import PlainRunner, assert_same_results

from cannc.compiler.core.graphs import walk
from cannc.compiler.core.runner import Array
from cannc.compiler.core.shapes import infer_shapes
from cannc.compiler.core.unit import CompileUnit, load
from cannc.passes.manager import run_passes

Kernels = Callable[[str, "ir.DataType | None"], "str | None"]


def has_kernel(op_type: str, dtype: ir.DataType | None) -> str | None:
    """Every kernel exists."""
    return None


def no_kernel(op_type: str, dtype: ir.DataType | None) -> str | None:
    """No kernel exists."""
    return f"no kernel for {op_type}"


@dataclass(frozen=True)
class Fused:
    """A model after fusions.

    Attributes:
        unit: The result.
        ops: Operator -> count over all graphs; Constant nodes left out.
        refusals: Near misses of the first run, ``node: reason``.
        notes: Findings of the first run.
    """

    unit: CompileUnit
    ops: Counter[str]
    refusals: tuple[str, ...]
    notes: tuple[str, ...]

    def node(self, op_type: str) -> ir.Node:
        """Return the only node of that type."""
        (found,) = (s.node for s in walk(self.unit.model.graph) if s.node.op_type == op_type)
        return found

    def inside(self, op_type: str) -> set[str]:
        """Return the original values that are computed inside the only node of that type."""
        name = self.node(op_type).name
        return {f.value for f in self.unit.fates() if f.kind == "inside" and f.target == name}


def fuse(
    model: onnx.ModelProto,
    *names: str,
    feeds: Mapping[str, Array],
    kernels: Kernels = has_kernel,
    rtol: float = 1e-5,
    atol: float = 1e-6,
) -> Fused:
    """Run passes; the result is valid, computes the same, and is not changed by a second run."""
    original = load(model)
    unit = original.copy()
    infer_shapes(unit.model)
    run_passes(unit, names, runner=PlainRunner(), may_use_kernel=kernels)
    refusals = tuple(text for stage in unit.log for text in stage.refusals)
    notes = tuple(text for stage in unit.log for text in stage.notes)
    assert not [fate for fate in unit.fates() if fate.kind == "unknown"]
    onnx.checker.check_model(ir.to_proto(unit.model), full_check=True)
    assert_same_results(original.model, unit.model, feeds, rtol=rtol, atol=atol)
    again = unit.copy()
    again.log.clear()
    infer_shapes(again.model)
    run_passes(again, names, runner=PlainRunner(), may_use_kernel=kernels)
    assert [stage.name for stage in again.log if stage.applied] == []
    nodes = [s.node for s in walk(unit.model.graph)]
    ops = Counter(node.op_type for node in nodes if node.op_type != "Constant")
    return Fused(unit, ops, refusals, notes)


def normal(*shape: int, scale: float = 1.0, seed: int = 3, dtype: type = np.float32) -> Array:
    """Return seeded normal numbers."""
    return (np.random.default_rng(seed).normal(size=shape) * scale).astype(dtype)
