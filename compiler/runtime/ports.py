"""What a model takes and gives: names, types and shapes of its graph inputs and outputs."""

from __future__ import annotations

from dataclasses import dataclass

import onnx_ir as ir

Dim = int | str | None
"""A size, the name of a dynamic size, or unknown."""


@dataclass(frozen=True)
class Port:
    """One graph input or output.

    Attributes:
        name: Its name in the graph.
        type: Tensor, sequence or optional type; None when the file does not say (taps).
        shape: One entry per dimension; None when the rank is unknown.
    """

    name: str
    type: ir.TypeProtocol | None
    shape: tuple[Dim, ...] | None

    @classmethod
    def of(cls, value: ir.Value) -> Port:
        """Describe a graph input or output."""
        shape = None
        if value.shape is not None:
            shape = tuple(d if isinstance(d, int) else d.value for d in value.shape)
        return cls(value.name or "", value.type, shape)

    @property
    def dtype(self) -> ir.DataType | None:
        """Element dtype, also of sequences and optionals; None when unknown."""
        return self.type.dtype if self.type is not None else None

    @property
    def is_tensor(self) -> bool:
        """True unless it is a sequence or an optional."""
        return self.type is None or isinstance(self.type, ir.TensorType)

    def __str__(self) -> str:
        """E.g. ``float16[batch,3,224,224]``."""
        kind = str(self.dtype).lower() if self.dtype is not None else "?"
        dims = (
            "" if self.shape is None else ",".join("?" if d is None else str(d) for d in self.shape)
        )
        text = f"{kind}[{dims}]" if self.shape is not None else kind
        if isinstance(self.type, ir.SequenceType):
            return f"sequence of {text}"
        return f"optional {text}" if isinstance(self.type, ir.OptionalType) else text


def input_ports(model: ir.Model) -> list[Port]:
    """Return the inputs that a caller feeds; initializers among them are constants (D25)."""
    return [Port.of(v) for v in model.graph.inputs if not v.is_initializer()]


def output_ports(model: ir.Model) -> list[Port]:
    """Return the outputs, in graph order."""
    return [Port.of(v) for v in model.graph.outputs]
