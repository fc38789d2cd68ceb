"""The rooms and who may import whom (README, Architecture), checked on the source itself."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

import cannc

ROOT = Path(__file__).parents[1]
ROOMS = (
    "compiler.core",
    "op_support",
    "compiler.om",
    "passes",
    "compiler.memory",
    "compiler.runtime",
    "compiler.backends",
    "golden",
    "quant",
    "compiler.inspection",
    "compiler.frontend",
    "compiler",
    "compiler.cli",
)
"""A room imports only itself and rooms before it (D18); ``compiler`` is the pipeline."""


def room_of(module):
    """Return the longest room name that the module lies in."""
    inside = [room for room in ROOMS if module == room or module.startswith(f"{room}.")]
    return max(inside, key=len) if inside else None


def imports(path):
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield node.module
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def sources():
    for folder in ("compiler", "passes", "quant", "op_support", "golden"):
        yield from sorted((ROOT / folder).rglob("*.py"))


def test_rooms_import_only_rooms_before_them():
    faults = []
    for path in sources():
        module = ".".join(path.relative_to(ROOT).with_suffix("").parts)
        here = room_of(module)
        for imported in imports(path):
            there = room_of(imported.removeprefix("cannc.")) if "cannc" in imported else None
            if there is not None and ROOMS.index(there) > ROOMS.index(here):
                faults.append(f"{module} imports {imported}")
    assert faults == []


def test_the_rule_would_notice():
    assert room_of("passes.cleanup.dead_code") == "passes"
    assert room_of("compiler.core.errors") == "compiler.core"
    assert room_of("compiler.pipeline") == "compiler"
    assert ROOMS.index("compiler.runtime") > ROOMS.index("passes")


def test_importing_cannc_is_light():
    code = "import sys, cannc; print(*sorted(m for m in sys.modules if not m.startswith('_')))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    loaded = {name.split(".")[0] for name in done.stdout.split()}
    assert not loaded & {"numpy", "onnx", "onnx_ir", "onnxruntime", "torch", "click", "rich"}


@pytest.mark.parametrize("name", sorted(set(cannc.__all__)))
def test_public_names_exist_and_are_documented(name):
    value = getattr(cannc, name)
    assert isinstance(value, str) or value.__doc__


def test_unknown_attribute_is_an_attribute_error():
    with pytest.raises(AttributeError, match="no attribute 'nope'"):
        cannc.nope  # noqa: B018
