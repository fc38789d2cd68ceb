"""The memory plan of a model: what a run needs, why, and at which sizes. Stored in the artifact."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any

from cannc.compiler.om.memory import PLAN

if TYPE_CHECKING:
    from cannc.compiler.memory.sizing import InputShapes, Shape
    from cannc.compiler.om.reader import OmFile

SIZES_CURE = "give --input-shape or --gears"


@dataclass(frozen=True)
class Holding:
    """A tensor that is live where the need is greatest.

    Attributes:
        name: Name of the value; for scratch space of nested graphs, the node's.
        node: The node that makes it.
        op_type: That node's operator.
        shape: Shape at the planned sizes; empty for scratch space.
        bytes: Bytes, aligned.
    """

    name: str
    node: str
    op_type: str
    shape: Shape
    bytes: int

    def __str__(self) -> str:
        """One line: ``'name' [1, 2] by node 'n' (Add), 1,024 bytes``."""
        return (
            f"'{self.name}' {list(self.shape)} by node '{self.node}' ({self.op_type}), "
            f"{self.bytes:,} bytes"
        )


@dataclass(frozen=True)
class MemoryPlan:
    """What a run of the main graph needs, in bytes; all buffers are multiples of 512.

    Graph inputs and outputs are buffers of the caller and weights have a region of their own;
    neither is in the arena.

    Attributes:
        arena_bytes: Size of the arena; None when sizes of inputs are open.
        lower_bound_bytes: Greatest sum of live buffers over the steps: no arena can be smaller.
        given_order_bytes: The same sum for the order that the model came in.
        input_bytes: Buffers of the graph inputs.
        output_bytes: Buffers of the graph outputs.
        weight_bytes: The weights, equal ones counted once; 0 before an artifact is written.
        sizes: Input shapes that were planned for; several when no gear is the largest in all.
        open_dims: Dims without a size: the reason why nothing is planned.
        unsized: Values whose size depends on data; they are not planned.
        peak_node: The node at which the greatest sum is live.
        holdings: The five largest tensors that are live there.
        reordered: Whether the nodes stand in another order than the model came in.
        recomputed: Nodes that were put in to compute a value a second time.
    """

    arena_bytes: int | None
    lower_bound_bytes: int | None = None
    given_order_bytes: int | None = None
    input_bytes: int = 0
    output_bytes: int = 0
    weight_bytes: int = 0
    sizes: tuple[InputShapes, ...] = ()
    open_dims: tuple[str, ...] = ()
    unsized: tuple[str, ...] = ()
    peak_node: str = ""
    holdings: tuple[Holding, ...] = field(default=())
    reordered: bool = False
    recomputed: tuple[str, ...] = ()

    @classmethod
    def of_om(cls, file: OmFile) -> MemoryPlan | None:
        """Return the plan that a host artifact carries; None when it carries none that is sound."""
        stored = file.model_attributes.get(PLAN)
        if not isinstance(stored, str):
            return None
        weights = file.model_attributes.get("weight_size")
        try:
            plan = cls.from_data({**json.loads(stored), "weight_bytes": weights})
        except (ValueError, TypeError, KeyError):
            return None
        return plan

    @classmethod
    def from_data(cls, data: dict[str, Any]) -> MemoryPlan:
        """Read what `as_data` returned.

        Raises:
            KeyError, TypeError, ValueError: the data is of another form.
        """
        fields: dict[str, Any] = {
            key: tuple(value) if isinstance(value, list) else value for key, value in data.items()
        }
        holdings = [Holding(**{**h, "shape": tuple(h["shape"])}) for h in data["holdings"]]
        sizes = [{name: tuple(dims) for name, dims in dict(one).items()} for one in data["sizes"]]
        fields |= {"holdings": tuple(holdings), "sizes": tuple(sizes)}
        return cls(**fields)

    def as_data(self) -> dict[str, Any]:
        """Return plain data for JSON."""
        return asdict(self)

    def stored(self) -> str:
        """Return the text that travels in the artifact; the weights are told by the container."""
        data = self.as_data()
        del data["weight_bytes"]
        return json.dumps(data, separators=(",", ":"), sort_keys=True)

    def notes(self) -> tuple[str, ...]:
        """Return what a user should know, as lines."""
        if self.arena_bytes is None:
            return (f"memory plan: unknown, {self.why_open()}; {SIZES_CURE}",)
        found = []
        if self.reordered:
            saved = (self.given_order_bytes or 0) - (self.lower_bound_bytes or 0)
            found.append(f"nodes reordered: the peak is {saved:,} bytes lower")
        if self.recomputed:
            found.append(f"{len(self.recomputed)} values are computed twice to keep the budget")
        if self.unsized:
            names = ", ".join(self.unsized[:3]) + (" ..." if len(self.unsized) > 3 else "")
            found.append(f"memory plan without {len(self.unsized)} values of unknown size: {names}")
        return tuple(found)

    def why_open(self) -> str:
        """Return why nothing is planned."""
        return f"dims without a size: {', '.join(self.open_dims)}"
