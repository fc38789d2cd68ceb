"""The table at the end of quantization: every weight, what became of it, and how close it is."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any, Literal

from cannc.compiler.core.unit import CompileUnit

QUANT_KEY = "cannc.quant"

HEADER = ("status", "weight", "node", "op", "shape", "form", "scales", "bytes", "error", "why")
"""Column titles of `QuantReport.table`."""


@dataclass(frozen=True)
class WeightRow:
    """What became of one weight of one node.

    Attributes:
        status: ``quantized`` or ``skipped``.
        weight: Name of the constant; empty when the operand is computed.
        node: The node that reads it.
        op_type: Its operator before quantization.
        shape: Shape of the weight as the node reads it.
        reason: Why it was skipped, or what stood against a better form; may be empty.
        form: ``WeightQuantBatchMatmulV2``, ``NPUAntiQuant`` or ``Cast+Mul``.
        granularity: ``channel`` or ``group:N``.
        stored: Name of the integers in the model.
        bytes_before: Size of the constant before; 0 where an earlier row counts it.
        bytes_after: Size of integers, scales and whatever stays in float; 0 like `bytes_before`.
        error: Relative L2 error of the dequantized weight.
        worst_column: Channel with the largest error, see `cannc.quant.scales.Closeness`.
        worst_error: Its error.
        output_error: Relative L2 error of the layer's output on calibration data, its inputs being
            exact (isolated); None without calibration.
    """

    status: Literal["quantized", "skipped"]
    weight: str
    node: str
    op_type: str
    shape: tuple[int, ...] = ()
    reason: str = ""
    form: str = ""
    granularity: str = ""
    stored: str = ""
    bytes_before: int = 0
    bytes_after: int = 0
    error: float = 0.0
    worst_column: int = 0
    worst_error: float = 0.0
    output_error: float | None = None

    @classmethod
    def from_json(cls, row: dict[str, Any]) -> WeightRow:
        """Read one row of `QuantReport.to_json`."""
        return cls(**{**row, "shape": tuple(row["shape"])})


@dataclass(frozen=True)
class QuantReport:
    """All weights of a model after quantization, the quantized ones first.

    Attributes:
        scheme: E.g. ``w8a16``.
        algo: Name of the algorithm.
        granularity: What was asked for; rows say what each weight has.
        soc: SoC whose kernels decided about the forms.
        rows: One per node and weight.
        calibrated_on: Digests of the samples; evaluation refuses the same ones.
    """

    scheme: str
    algo: str
    granularity: str
    soc: str
    rows: tuple[WeightRow, ...]
    calibrated_on: tuple[str, ...] = ()

    @classmethod
    def of(cls, unit: CompileUnit) -> QuantReport | None:
        """Return the report that a quantized model carries, or None."""
        stored = unit.model.metadata_props.get(QUANT_KEY)
        return cls.from_json(stored) if stored else None

    @property
    def quantized(self) -> tuple[WeightRow, ...]:
        """Rows of quantized weights."""
        return tuple(row for row in self.rows if row.status == "quantized")

    @property
    def skipped(self) -> tuple[WeightRow, ...]:
        """Rows of weights that stayed as they were."""
        return tuple(row for row in self.rows if row.status == "skipped")

    @property
    def bytes_before(self) -> int:
        """Size of the quantized weights before."""
        return sum(row.bytes_before for row in self.quantized)

    @property
    def bytes_after(self) -> int:
        """Size of what stands for them now."""
        return sum(row.bytes_after for row in self.quantized)

    def table(self) -> list[tuple[str, ...]]:
        """Return the rows as text, in the columns of `HEADER`."""
        return [_cells(row) for row in self.rows]

    def to_json(self) -> str:
        """Return the report as JSON, the same bytes for the same report."""
        return json.dumps({"schema_version": 1, **asdict(self)}, separators=(",", ":"))

    @classmethod
    def from_json(cls, text: str) -> QuantReport:
        """Read what `to_json` wrote."""
        data = json.loads(text)
        rows = tuple(WeightRow.from_json(row) for row in data["rows"])
        digests = tuple(data.get("calibrated_on", ()))
        return cls(data["scheme"], data["algo"], data["granularity"], data["soc"], rows, digests)


def merged(earlier: QuantReport | None, rows: Sequence[WeightRow]) -> tuple[WeightRow, ...]:
    """Return `rows`, with weights that an earlier run quantized described by its rows."""
    if earlier is None:
        return tuple(rows)
    known = {row.stored: row for row in earlier.quantized}
    mentioned = {row.weight for row in rows}
    kept = [row for row in earlier.quantized if row.stored in mentioned]
    return (*kept, *(row for row in rows if row.weight not in known))


def _cells(row: WeightRow) -> tuple[str, ...]:
    done = row.status == "quantized"
    return (
        row.status,
        row.weight,
        row.node,
        row.op_type,
        "x".join(map(str, row.shape)),
        row.form,
        row.granularity,
        f"{row.bytes_before} -> {row.bytes_after}" if done else "",
        f"{row.error:.2%} (column {row.worst_column}: {row.worst_error:.2%})" if done else "",
        row.reason,
    )
