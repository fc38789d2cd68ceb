"""Arena of the memory plan against its lower bound.

Usage: memory.py [--dim NAME=SIZE]... MODEL.onnx...

The lower bound is the greatest sum of live 512-aligned buffers over the steps of the order chosen.
Sizes come from ``MODEL.examples.npz`` beside a model, else from ``--dim``. Prints a Markdown table.
"""

from __future__ import annotations

import argparse
import platform
import sys
import time
from pathlib import Path

import onnx
import onnx_ir as ir

import cannc
from cannc.compiler.core.unit import CompileUnit, load
from cannc.compiler.memory.planner import plan_memory
from cannc.compiler.memory.sizing import Shape


def main() -> int:
    """Print one row per model; return 1 when an arena is more than 2 % above its bound."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("models", nargs="+", type=Path)
    parser.add_argument("--dim", action="append", default=[], metavar="NAME=SIZE")
    asked = parser.parse_args()
    dims = {name: int(size) for name, _, size in (text.partition("=") for text in asked.dim)}
    print(f"cannc {cannc.__version__}, onnx {onnx.__version__}, onnx-ir {ir.__version__}, ", end="")
    print(f"Python {platform.python_version()}\n")
    print("| model | nodes | given order | arena | lower bound | ratio | seconds |")
    print("|---|---|---|---|---|---|---|")
    return max([_row(path, dims) for path in asked.models])


def _row(path: Path, dims: dict[str, int]) -> int:
    unit = load(path)
    start = time.perf_counter()
    plan = plan_memory(unit.model, [_shapes(unit, dims)]).plan
    seconds = time.perf_counter() - start
    name = f"{path.parent.name}/{path.name}"
    if plan.arena_bytes is None or plan.unsized:
        print(f"| {name} | not planned: {plan.why_open()} {plan.unsized[:3]} |")
        return 1
    ratio = plan.arena_bytes / max(plan.lower_bound_bytes or 0, 1)
    columns = (plan.given_order_bytes, plan.arena_bytes, plan.lower_bound_bytes)
    numbers = " | ".join(f"{number:,}" for number in columns)
    print(f"| {name} | {len(unit.model.graph)} | {numbers} | {ratio:.4f} | {seconds:.1f} |")
    return int(ratio > 1.02)


def _shapes(unit: CompileUnit, dims: dict[str, int]) -> dict[str, Shape]:
    if unit.examples:
        return {name: tuple(array.shape) for name, array in unit.examples.items()}
    found = {}
    for value in unit.model.graph.inputs:
        sizes = [d if isinstance(d, int) else dims.get(d.value or "") for d in value.shape or ()]
        known = [size for size in sizes if size is not None]
        if len(known) == len(sizes):
            found[value.name or ""] = tuple(known)
    return found


if __name__ == "__main__":
    sys.exit(main())
