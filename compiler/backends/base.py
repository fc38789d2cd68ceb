"""What every backend offers: compile a unit into an ``.om``."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal, Protocol, TypeAlias

from cannc.compiler.core.unit import CompileUnit
from cannc.compiler.memory.plan import MemoryPlan
from cannc.compiler.memory.planner import Optimizer

ShapeMode: TypeAlias = Literal["fixed", "range", "gears"]


@dataclass(frozen=True)
class CompileOptions:
    """What a caller may choose; the target travels in the unit.

    Attributes:
        precision: ``keep``: the file's dtypes decide (D2). ``fp16``: the float16 pass ran before.
            None: ATC's own options decide, else ``keep``.
        name: Model name inside the artifact; default: the output's file name without suffix.
        require_support: Refuse a model that the target's own compiler would refuse (D24).
        atc_options: ATC's options by flag; those that shape the model act on the host too (D23).
        gears: Dimension name -> its sizes; gear i takes the i-th size of every name.
        shapes: What the sizes must come to: ``fixed``, ``range`` or ``gears``; None: whatever the
            options and the model say.
        atc: Where ATC is, instead of looking for it.
        timeout_s: Seconds after which ATC is stopped.
        golden: Build for layer-by-layer comparison on a device: ATC's fusions off.
        dry_run: Check and hand over, but do not run ATC; the result holds the command.
        max_workspace: Bytes that the arena of a run may take; the host keeps it or refuses, ATC
            plans by itself.
        memory_optimizer: ``recompute``: cheap values may be computed twice to keep it.
    """

    precision: Literal["keep", "fp16"] | None = None
    name: str | None = None
    require_support: bool = False
    atc_options: Mapping[str, object] = field(default_factory=dict)
    gears: Mapping[str, Sequence[int]] = field(default_factory=dict)
    shapes: ShapeMode | None = None
    atc: Path | None = None
    timeout_s: float | None = None
    golden: bool = False
    dry_run: bool = False
    max_workspace: int | None = None
    memory_optimizer: Optimizer = "none"


@dataclass(frozen=True)
class CompileResult:
    """What came out.

    Attributes:
        path: The artifact.
        size_bytes: Its size.
        weight_bytes: Bytes of the weights in it, equal ones counted once.
        device: What the artifact runs on, as reports must say it.
        notes: What the user should know, e.g. how many operators the target would refuse.
        command: The command of ATC, as a shell takes it; "" from the host.
        memory: What a run needs; None from ATC, which plans by itself.
    """

    path: Path
    size_bytes: int
    weight_bytes: int
    device: str
    notes: tuple[str, ...] = ()
    command: str = ""
    memory: MemoryPlan | None = None


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
