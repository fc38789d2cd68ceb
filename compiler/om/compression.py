"""Undo the attribute compression of CANN 8 files (om-format.md section 6)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from cannc.compiler.om.attributes import AttrMap, typed
from cannc.compiler.om.faults import damaged

VERSION_ATTR = "om_compress_version"
NAMES_ATTR = "attr_name_enum"
VALUES_ATTR = "attr_value_enum"
USES_ATTR = "attrs_use_string_value"
_BASE = 127
_MAX_DIGITS = 4  # 127**4 names; a hostile key of millions of digits would take forever


def decompress(model: Any, path: Path, inherited: Dictionary | None = None) -> Dictionary | None:
    """Replace coded attribute names and values of all ops, in place; a plain model stays as is.

    Args:
        model: The ModelDef.
        path: Named in errors.
        inherited: Dictionary of the file's first model, for models that have none of their own.

    Returns:
        The dictionary used, None when there is none.

    Raises:
        ModelError: ``OM006`` the dictionary is missing or does not fit its use.
    """
    dictionary = Dictionary.of(model, path) or inherited
    if dictionary is None:
        return None
    for graph in model.graph:
        for op in graph.op:
            dictionary.expand(op.attr)
            for desc in (*op.input_desc, *op.output_desc):
                dictionary.expand(desc.attr)
    for name in (VERSION_ATTR, NAMES_ATTR, VALUES_ATTR, USES_ATTR):
        if name in model.attr:
            del model.attr[name]
    return dictionary


class Dictionary:
    """The tables that coded names and values index."""

    def __init__(self, names: list[str], values: list[str], uses: list[bool], path: Path) -> None:
        self.names, self.values, self.uses, self.path = names, values, uses, path

    @classmethod
    def of(cls, model: Any, path: Path) -> Dictionary | None:
        """Return the dictionary that a ModelDef carries; None when it is not compressed."""
        if VERSION_ATTR not in model.attr:
            return None
        names: list[str] = typed(model.attr, NAMES_ATTR, "list:s", [])
        values: list[str] = typed(model.attr, VALUES_ATTR, "list:s", [])
        uses: list[bool] = typed(model.attr, USES_ATTR, "list:b", [])
        if len(names) != len(uses):
            why = f"{len(names)} names but {len(uses)} flags"
            raise damaged("OM006", "the attribute dictionary is broken", path, why)
        if not all(isinstance(name, str) for name in names):
            raise damaged("OM006", "the attribute dictionary is broken", path, "a name is no text")
        return cls(names, values, uses, path)

    def expand(self, attrs: AttrMap) -> None:
        """Give the attributes their names and values back, in place."""
        for key in [key for key in attrs if key.startswith("\0")]:
            index = self._index(key)
            name = self.names[index]
            # A literal key wins over a coded one for the same name, as in GE's loader.
            if name not in attrs:
                attrs[name].CopyFrom(attrs[key])
                if self.uses[index]:
                    self._expand_value(attrs[name])
            del attrs[key]

    def _index(self, key: str) -> int:
        """Decode base-127 digits, least significant first, each stored plus one."""
        digits = key[1:].encode()
        index = 0
        for digit in reversed(digits[:_MAX_DIGITS]):
            index = index * _BASE + digit - 1
        if not 1 <= len(digits) <= _MAX_DIGITS or not 0 <= index < len(self.names):
            raise self._out_of_range(index, len(self.names))
        return index

    def _expand_value(self, attr: Any) -> None:
        kind = attr.WhichOneof("value")
        if kind == "i":
            attr.s = self._value(attr.i)
        elif kind == "list" and len(attr.list.i):
            texts = [self._value(i) for i in attr.list.i]
            attr.list.ClearField("i")
            attr.list.s.extend(texts)
            attr.list.val_type = 1

    def _value(self, index: int) -> bytes:
        if not 0 <= index < len(self.values):
            raise self._out_of_range(index, len(self.values))
        value = self.values[index]
        return value if isinstance(value, bytes) else value.encode()

    def _out_of_range(self, index: int, count: int) -> Exception:
        why = f"index {index} into a dictionary of {count} entries"
        return damaged("OM006", "the attribute dictionary is broken", self.path, why)
