"""AttrDef <-> Python values; lists always carry ``val_type``, without which GE drops them silently.

Source: om-format.md section 4.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, TypeAlias

AttrMap: TypeAlias = Any  # a protobuf map of string -> AttrDef
Scalar: TypeAlias = "bool | int | float | str | bytes"

_LIST_KINDS = {
    "s": 1,
    "i": 2,
    "f": 3,
    "b": 4,
    "bt": 5,
    "td": 6,
    "t": 7,
    "g": 8,
    "na": 9,
    "dt": 10,
}
_LIST_FIELDS = {number: field for field, number in _LIST_KINDS.items()}


def put(attrs: AttrMap, name: str, value: Scalar) -> None:
    """Set a scalar attribute: bool, int, float, str (kind ``s``) or bytes (kind ``bt``)."""
    attr = attrs[name]
    if isinstance(value, bool):
        attr.b = value
    elif isinstance(value, int):
        attr.i = value
    elif isinstance(value, float):
        attr.f = value
    elif isinstance(value, str):
        attr.s = value.encode()
    else:
        attr.bt = value


def put_list(attrs: AttrMap, name: str, kind: str, items: Iterable[Any]) -> None:
    """Set a list attribute.

    Args:
        attrs: The attribute map of a model, graph, op or tensor descriptor.
        name: Attribute name.
        kind: Field of ListValue: ``s``, ``i``, ``f``, ``b``, ``bt``, ``t`` ...
        items: The values; strings are encoded for kind ``s``.
    """
    target = attrs[name].list
    target.val_type = _LIST_KINDS[kind]
    values = getattr(target, kind)
    values.extend(item.encode() if isinstance(item, str) else item for item in items)


def kind_of(attr: Any) -> str:
    """Return the kind of an attribute: ``i``, ``s``, ``t`` ...; ``list:i`` ...; or ``""``."""
    kind = attr.WhichOneof("value") or ""
    return f"list:{_list_field(attr.list)}" if kind == "list" else str(kind)


def get(attr: Any) -> Any:
    """Return the Python value of an attribute.

    Strings that are not UTF-8 stay bytes. Messages (tensor, graph, descriptor, function) are
    returned as they are; an attribute without a value gives None.
    """
    kind = attr.WhichOneof("value")
    if kind is None:
        return None
    if kind == "list":
        field = _list_field(attr.list)
        values = getattr(attr.list, field) if field else ()
        return [_text(v) for v in values] if field == "s" else list(values)
    if kind == "list_list_int":
        return [list(row.list_i) for row in attr.list_list_int.list_list_i]
    if kind == "list_list_float":
        return [list(row.list_f) for row in attr.list_list_float.list_list_f]
    value = getattr(attr, kind)
    return _text(value) if kind == "s" else value


def to_dict(attrs: AttrMap) -> dict[str, Any]:
    """Return all attributes of a map as Python values, sorted by name."""
    return {name: get(attrs[name]) for name in sorted(attrs)}


def typed(attrs: AttrMap, name: str, kind: str, default: Any) -> Any:
    """Return the attribute's value if it is there and of `kind`, else `default`.

    `kind` is written as `kind_of` gives it. A file may hold anything under a known name, so
    nothing is read without looking at its kind.
    """
    if name not in attrs or kind_of(attrs[name]) != kind:
        return default
    return get(attrs[name])


def prefixed(attrs: AttrMap, prefix: str) -> dict[str, Any]:
    """Return the attributes whose names start with `prefix`, with the prefix cut off, sorted."""
    return {n[len(prefix) :]: get(attrs[n]) for n in sorted(attrs) if n.startswith(prefix)}


def put_prefixed(attrs: AttrMap, prefix: str, values: Mapping[str, Scalar]) -> None:
    """Set one attribute per entry, named ``prefix + key``."""
    for key in values:
        put(attrs, prefix + key, values[key])


def _list_field(value: Any) -> str:
    """Return the field that holds a list's items; older files leave ``val_type`` out."""
    field = _LIST_FIELDS.get(value.val_type)
    if field is not None:
        return field
    return next((f for f in _LIST_KINDS if len(getattr(value, f))), "")


def _text(raw: bytes) -> str | bytes:
    try:
        return raw.decode()
    except UnicodeDecodeError:
        return raw
