"""Typed access to the package data, read when first asked for.

Example:
    >>> operators().get("ai.onnx::Loop").status
    'unregistered'
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from functools import cache
from importlib import resources
from typing import Any, Generic, TypeVar

from pydantic import BaseModel

from cannc.op_support.schema import FusedOperator, GeKernel, Meta, Operator, ParserFacts

Row = TypeVar("Row", bound=BaseModel)


class Table(Generic[Row]):
    """Rows of one data file by key; a row is validated when it is first used."""

    def __init__(self, meta: Meta, rows: dict[str, Any], schema: type[Row]) -> None:
        self.meta = meta
        self._raw = rows
        self._schema = schema
        self._rows: dict[str, Row] = {}

    def get(self, key: str) -> Row | None:
        """Return the row of that key, or None."""
        row = self._rows.get(key)
        if row is None and key in self._raw:
            row = self._rows[key] = self._schema.model_validate(self._raw[key])
        return row

    def __iter__(self) -> Iterator[str]:
        return iter(self._raw)

    def __len__(self) -> int:
        return len(self._raw)

    def items(self) -> Iterator[tuple[str, Row]]:
        """Yield every key with its row, in key order."""
        for key in self._raw:
            row = self.get(key)
            assert row is not None
            yield key, row


@cache
def operators() -> Table[Operator]:
    """Return ``domain::type`` -> what the parser knows about it."""
    data = _read("operators.json")
    return Table(Meta.model_validate(data["meta"]), data["rows"], Operator)


@cache
def fused_operators() -> Table[FusedOperator]:
    """Return ``domain::type`` -> signature and kernels of a non-standard operator."""
    data = _read("fused.json")
    return Table(Meta.model_validate(data["meta"]), data["rows"], FusedOperator)


@cache
def ge_kernels() -> Table[GeKernel]:
    """Return ``<GE operator>@<SoC family>`` -> input dtypes.

    Two families are not chips: ``aicpu`` (runs on the AI CPU of any chip) and ``proto`` (the
    operator's prototype, an upper bound for all chips).
    """
    data = _read("kernels.json")
    return Table(Meta.model_validate(data["meta"]), data["rows"], GeKernel)


@cache
def parser_facts() -> ParserFacts:
    """Return what the parser does with tensors."""
    return ParserFacts.model_validate(_read("operators.json")["parser"])


@cache
def _read(name: str) -> dict[str, Any]:
    text = (resources.files("cannc.op_support.data") / name).read_text(encoding="utf-8")
    data: dict[str, Any] = json.loads(text)
    return data
