"""Names of dump files (pyacl.md section 7).

``{op type}.{op name}.{task}.{stream}.{time}``; older releases lack the stream, and FFTS+ tasks add
kind, context, thread and device. Space, dot and slashes of the op's type and name became ``_``, so
names are compared as the device writes them, and two names can collide.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

_MAPPED = str.maketrans(dict.fromkeys(" ./\\", "_"))
_SLICE = re.compile(r"_lxslice\d+$")
_FIELDS: dict[int, tuple[str, ...]] = {
    2: ("task", "time"),
    3: ("task", "stream", "time"),
    7: ("task", "stream", "time", "kind", "context", "thread", "device"),
}


@dataclass(frozen=True)
class DumpName:
    """A file name taken apart.

    Attributes:
        op_type: GE's operator type, mapped.
        op_name: Name of the op, mapped.
        numbers: Field -> number: task and time (microseconds); stream and more in later releases.
    """

    op_type: str
    op_name: str
    numbers: dict[str, int]

    @classmethod
    def parse(cls, name: str) -> DumpName | None:
        """Take a file name apart; None when it is no dump's."""
        op_type, _, rest = name.partition(".")
        op_name, *fields = rest.split(".")
        if not op_type or not op_name or len(fields) not in _FIELDS:
            return None
        if not all(field.isascii() and field.isdigit() for field in fields):
            return None
        return cls(op_type, op_name, dict(zip(_FIELDS[len(fields)], map(int, fields), strict=True)))

    @property
    def is_slice(self) -> bool:
        """Whether the file holds one slice of an op's work only."""
        return bool(_SLICE.search(self.op_name)) or self.numbers.get("thread", 0) > 0


def mapped(name: str) -> str:
    """Return a name as file names spell it."""
    return name.translate(_MAPPED)
