"""What cannc left in a model: target, history, what became of the original, quantization."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

import onnx_ir as ir

from cannc.compiler.core.provenance import MODEL_KEY, Provenance
from cannc.compiler.core.unit import LOG_KEY, SOC_KEY, Stage
from cannc.compiler.inspection.container import Reading
from cannc.compiler.inspection.facts import CanncFacts, QuantFacts, StageFacts, Unread
from cannc.compiler.memory.plan import MemoryPlan
from cannc.compiler.om.memory import PLAN
from cannc.quant.report import QUANT_KEY, QuantReport

T = TypeVar("T")
U = TypeVar("U")

# What JSON of another form raises when it is taken apart.
_FOREIGN = (ValueError, KeyError, TypeError, AttributeError, IndexError, RecursionError)


def own_facts(
    model: ir.Model, attributes: Mapping[str, Any], reading: Reading
) -> CanncFacts | None:
    """Return what cannc left; None in a model that it never touched.

    Args:
        model: The model; its nodes must be named.
        attributes: Model attributes of the host artifact that holds it, else empty.
        reading: Told about notes that cannot be read.
    """
    props = model.metadata_props
    keys = (MODEL_KEY, LOG_KEY, SOC_KEY, QUANT_KEY)
    if not any(key in props for key in keys) and "cannc_version" not in attributes:
        return None

    def read(key: str, action: Callable[[str], T], default: U) -> T | U:
        return _read(f"metadata {key}", props.get(key), action, default, reading)

    soc, cann = read(SOC_KEY, _target, ("", ""))
    original, fates = read(MODEL_KEY, lambda text: _fates(text, model), ("", {}))
    return CanncFacts(
        soc=soc or _text(attributes.get("cannc_target_soc")),
        cann=cann or _text(attributes.get("cannc_target_cann")),
        version=_text(attributes.get("cannc_version")),
        original=original,
        fates=fates,
        history=read(LOG_KEY, _history, ()),
        quant=read(QUANT_KEY, _quant, None),
    )


def memory_plan(attributes: Mapping[str, Any], reading: Reading) -> MemoryPlan | None:
    """Return the memory plan among the model attributes of a host artifact."""

    def parse(text: str) -> MemoryPlan:
        data = {**json.loads(text), "weight_bytes": attributes.get("weight_size")}
        plan = MemoryPlan.from_data(data)
        sizes = [value for name, value in vars(plan).items() if name.endswith("_bytes")]
        sizes += [holding.bytes for holding in plan.holdings]
        if not all(size is None or type(size) is int for size in sizes):
            message = f"{sizes} are no byte counts"
            raise TypeError(message)
        return plan

    return _read(f"attribute {PLAN}", attributes.get(PLAN), parse, None, reading)


def _read(
    part: str, text: object, action: Callable[[str], T], default: U, reading: Reading
) -> T | U:
    """Return what `action` makes of a text; note the part when it has another form."""
    if not isinstance(text, str):
        return default
    try:
        return action(text)
    except _FOREIGN as error:
        reading.unread.append(Unread(part, f"{type(error).__name__}: {error}"))
        return default


def _text(value: Any) -> str:
    return value if isinstance(value, str) else ""


def _target(text: str) -> tuple[str, str]:
    soc, cann = json.loads(text)
    return str(soc), str(cann or "")


def _fates(text: str, model: ir.Model) -> tuple[str, dict[str, int]]:
    provenance = Provenance.from_json(text)
    counts = Counter(fate.kind for fate in provenance.fates(model))
    return str(provenance.digest), {str(kind): counts[kind] for kind in sorted(counts)}


def _history(text: str) -> tuple[StageFacts, ...]:
    stages = [Stage.from_row(row) for row in json.loads(text)]
    return tuple(
        StageFacts(
            str(stage.name),
            int(stage.applied),
            int(stage.nodes_before),
            int(stage.nodes_after),
            len(stage.refusals),
            tuple(map(str, stage.notes)),
        )
        for stage in stages
    )


def _quant(text: str) -> QuantFacts | None:
    report = QuantReport.from_json(text)
    return QuantFacts(
        scheme=report.scheme,
        algo=report.algo,
        granularity=report.granularity,
        soc=report.soc,
        quantized=len(report.quantized),
        skipped=len(report.skipped),
        bytes_before=report.bytes_before,
        bytes_after=report.bytes_after,
        worst_error=max((row.error for row in report.quantized), default=0.0),
    )
