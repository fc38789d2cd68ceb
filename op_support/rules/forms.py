"""Node forms that pass the parser but may fail or compute something else.

They follow ``limits`` that no attribute effect covers, so they are risks, never more. The one
exception is a Constant whose value the parser does not read: that one is empty for certain.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import onnx_ir as ir

from cannc.op_support.advice import refusal_cure
from cannc.op_support.report import Finding, Severity
from cannc.op_support.schema import Operator
from cannc.op_support.site import PARSER_RUN, PLUGIN, Site

_CONSTANT_VALUES = (
    "value_int", "value_ints", "value_float", "value_floats", "value_string", "value_strings",
    "sparse_value",
)  # fmt: skip


_CURED = frozenset({"GridSample", "Split"})
"""Operators whose risks a pass takes away."""


def check(site: Site, _: Operator) -> Iterator[Finding]:
    """Yield findings about forms that convert but are not safe."""
    if site.key == "ai.onnx::Constant":
        yield from _constant(site)
        return
    predicate = RISKS.get(site.key)
    why = None if predicate is None else predicate(site)
    if why is not None:
        cure = refusal_cure(site.op_type) if site.op_type in _CURED else ""
        yield site.finding("OP033", Severity.RISK, why, source=PLUGIN, cure=cure)


def _constant(site: Site) -> Iterator[Finding]:
    for name in _CONSTANT_VALUES:
        if site.has(name):
            yield site.finding(
                "OP032",
                Severity.WRONG,
                f"{name} is not read: the constant arrives empty",
                source=PARSER_RUN,
                cure=refusal_cure("Constant"),
            )


def _batch_norm(site: Site) -> str | None:
    if site.get("training_mode", 0):
        return "training_mode=1: the running statistics are not computed as ONNX says"
    return None


def _global_max_pool(site: Site) -> str | None:
    if site.rank(0) == 5:
        return "on a 5-D input the middle spatial axis is left unreduced"
    return None


def _grid_sample(site: Site) -> str | None:
    missing = [name for name in ("mode", "padding_mode") if not site.has(name)]
    if missing:
        return f"{' and '.join(missing)} must be written: the parser has no default for it"
    return "only 4-D input is known; 5-D needs GridSample3D" if site.rank(0) == 5 else None


def _layer_norm(site: Site) -> str | None:
    half = (ir.DataType.FLOAT16, ir.DataType.BFLOAT16)
    if site.input(2) is None and site.dtype(0) in half:
        return "without a bias a float32 zero is added to a half-precision input"
    return None


def _lrn(site: Site) -> str | None:
    size = site.get("size", 1)
    return None if size % 2 else f"an even size ({size}) is rounded down to {size - 1}"


def _reduce_log_sum(site: Site) -> str | None:
    if site.version < 13 and not site.has("axes"):
        return "without axes the inner sum does nothing; write the axes"
    return None


def _reshape(site: Site) -> str | None:
    return "allowzero=1 is passed on, but nothing open reads it" if site.get("allowzero") else None


def _resize(site: Site) -> str | None:
    if site.version == 10 and site.get("mode", "nearest") == "linear":
        return "at opset 10 GE's grid is half_pixel, ONNX means asymmetric"
    rank = site.rank(0)
    if site.get("mode", "nearest") == "nearest" and rank not in (None, 4):
        return f"nearest takes 4-D input only, this one is {rank}-D"
    return None


def _split(site: Site) -> str | None:
    if site.has("num_outputs") and site.input(1) is None and site.get("axis", 0) < 0:
        return "num_outputs without split: a negative axis is not normalised"
    return None


def _unique(site: Site) -> str | None:
    return "the second output is not meaningful" if 1 in site.used_outputs() else None


def _upsample(site: Site) -> str | None:
    if site.version < 9:
        return "opset 8 gives scales as an attribute, which the plugin does not read"
    return None


RISKS: dict[str, Callable[[Site], str | None]] = {
    "ai.onnx::BatchNormalization": _batch_norm,
    "ai.onnx::GlobalMaxPool": _global_max_pool,
    "ai.onnx::GridSample": _grid_sample,
    "ai.onnx::LRN": _lrn,
    "ai.onnx::LayerNormalization": _layer_norm,
    "ai.onnx::ReduceLogSum": _reduce_log_sum,
    "ai.onnx::Reshape": _reshape,
    "ai.onnx::Resize": _resize,
    "ai.onnx::Split": _split,
    "ai.onnx::Unique": _unique,
    "ai.onnx::Upsample": _upsample,
}
