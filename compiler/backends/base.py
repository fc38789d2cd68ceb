"""What every backend offers: compile a unit into an ``.om``."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Literal, Protocol

from cannc.compiler.core.unit import CompileUnit


@dataclass(frozen=True)
class CompileOptions:
    """What a caller may choose; the target travels in the unit.

    Attributes:
        precision: ``keep``: the file's dtypes decide (D2). ``fp16``: the float16 pass ran before.
        name: Model name inside the artifact; default: the output's file name without suffix.
        require_support: Refuse a model that the target's own compiler would refuse (D24).
    """

    precision: Literal["keep", "fp16"] = "keep"
    name: str | None = None
    require_support: bool = False


@dataclass(frozen=True)
class CompileResult:
    """What came out.

    Attributes:
        path: The artifact.
        size_bytes: Its size.
        weight_bytes: Bytes of the weights in it, equal ones counted once.
        device: What the artifact runs on, as reports must say it.
        notes: What the user should know, e.g. how many operators the target would refuse.
    """

    path: Path
    size_bytes: int
    weight_bytes: int
    device: str
    notes: tuple[str, ...] = ()


class Backend(Protocol):
    """A compiler.

    Attributes:
        name: As ``--backend`` takes it.
    """

    name: str

    def compile(self, unit: CompileUnit, out: Path, options: CompileOptions) -> CompileResult:
        """Write `out`, whole or not at all; `unit` is not changed.

        Raises:
            UnsupportedOpError: the target would refuse operators, and support is required.
            CanncError: the backend cannot express or run the model.
        """
        ...
