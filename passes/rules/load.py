"""Reads files with rules. They are Python and run here, so only those that the user names."""

from __future__ import annotations

import importlib.util
import traceback
from collections.abc import Sequence
from pathlib import Path

from cannc.compiler.core.errors import UsageError
from cannc.compiler.core.graphs import Names
from cannc.passes.rules.rule import Rule


def load_rules(files: Sequence[str | Path]) -> list[Rule]:
    """Execute files and return the rules that their variables hold, in order.

    Raises:
        UsageError: ``RULE001`` no such file, it raises, or holds no rule.
    """
    names = Names()
    found = []
    for file in files:
        for variable, current in _rules_of(Path(file)):
            current.name = names.fresh(f"rule-{variable.strip('_').replace('_', '-')}")  # type: ignore[misc]
            found.append(current)
    return found


def _rules_of(path: Path) -> list[tuple[str, Rule]]:
    if not path.is_file():
        raise UsageError("RULE001", "no such file of rules", where=str(path), fix="check --rules")
    spec = importlib.util.spec_from_file_location(f"cannc_rules_{path.stem}", path)
    if spec is None or spec.loader is None:
        raise UsageError("RULE001", "rules are no Python file", where=str(path), fix="name it .py")
    module = importlib.util.module_from_spec(spec)
    try:
        spec.loader.exec_module(module)
    except Exception as error:
        lines = [f.lineno for f in traceback.extract_tb(error.__traceback__) if _is(f, path)]
        line = error.lineno if isinstance(error, SyntaxError) else lines[-1] if lines else None
        raise UsageError(
            "RULE001",
            "the file of rules cannot be executed",
            where=f"{path}:{line}" if line else str(path),
            why=f"{type(error).__name__}: {error}",
            fix="correct the file",
        ) from error
    rules = [(name, value) for name, value in vars(module).items() if isinstance(value, Rule)]
    if not rules:
        raise UsageError(
            "RULE001",
            "the file holds no rule",
            where=str(path),
            fix="write NAME = rule(pattern, replacement), with rule from cannc",
        )
    return rules


def _is(frame: traceback.FrameSummary, path: Path) -> bool:
    return Path(frame.filename) == path.absolute() or frame.filename == str(path)
