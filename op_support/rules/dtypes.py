"""Is there a kernel on the target for the dtypes that flow into a node?

Only nodes that map to one GE operator are judged: inside an expansion the dtypes are not visible.
The tables are complete for 910B (its store copy also serves 910_93) and good for 950; for the
other families absence proves nothing, so nothing is said about single nodes there.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache

from cannc.op_support.dtypes import dtype_name
from cannc.op_support.report import Finding, Severity
from cannc.op_support.schema import Expansion, Operator
from cannc.op_support.site import Site
from cannc.op_support.table import fused_operators, ge_kernels

COMPLETE = {"ascend910b": "ascend910b", "ascend910_93": "ascend910b", "ascend950": "ascend950"}
"""SoC family -> family whose kernel table speaks for it."""

NO_FLOAT32_CUBE = frozenset({"ascend310", "ascend310p", "ascend310b"})
"""Inference chips: float32 convolutions are documented as unsupported at origin precision."""

CUBE_OPERATORS = frozenset(
    f"ai.onnx::{name}" for name in ("Conv", "ConvTranspose", "Gemm", "MatMul", "Einsum")
)
_SOURCE = "GE kernel tables (operator store copy and open kernels)"


def check(site: Site, entry: Operator) -> Iterator[Finding]:
    """Yield findings about dtypes that no AI Core kernel takes."""
    if site.key in fused_operators():
        yield from _fused(site)
        return
    family = COMPLETE.get(site.world.target.family)
    ge = _direct(site.version, entry.expansions)
    if family is None or ge is None:
        return
    inputs = _accepted(ge, family)
    if not inputs and _accepted(ge, "aicpu"):
        yield site.finding(
            "OP051",
            Severity.SLOW,
            f"only an AI CPU kernel of {ge} is known for {family}",
            source=_SOURCE,
        )
    for index, accepted in enumerate(inputs[: site.connected()]):
        dtype = site.dtype(index)
        if dtype is not None and accepted is not None and dtype_name(dtype) not in accepted:
            yield _unmet(site, ge, index, dtype_name(dtype), accepted)
            return


@cache
def _accepted(ge: str, family: str) -> tuple[tuple[str, ...] | None, ...]:
    """Return the dtypes that each input takes on a family; empty when there is no entry."""
    kernel = ge_kernels().get(f"{ge}@{family}")
    return () if kernel is None else kernel.inputs


def float32_on_cube(site: Site) -> bool:
    """Does the node feed float32 to the matrix unit of a chip whose unit has none?"""
    return (
        site.key in CUBE_OPERATORS and (name := site.dtype(0)) is not None and name.name == "FLOAT"
    )


def _unmet(site: Site, ge: str, index: int, dtype: str, accepted: tuple[str, ...]) -> Finding:
    if _aicpu_takes(ge, index, dtype):
        return site.finding(
            "OP051",
            Severity.SLOW,
            f"input {index} is {dtype}: {ge} takes it on the AI CPU only",
            source=_SOURCE,
            cure=f"cast to one of {', '.join(accepted)} where the values fit",
        )
    return site.finding(
        "OP050",
        Severity.RISK,
        f"input {index} is {dtype}; the AI Core kernel of {ge} takes {', '.join(accepted)}",
        source=_SOURCE,
        atc_code="EZ3002",
        cure=f"cast to one of {', '.join(accepted)}",
    )


def _aicpu_takes(ge: str, index: int, dtype: str) -> bool:
    inputs = _accepted(ge, "aicpu")
    accepted = inputs[index] if index < len(inputs) else None
    return accepted is not None and dtype in accepted


@cache
def _direct(version: int, expansions: tuple[Expansion, ...]) -> str | None:
    """Return the GE operator when the node maps to exactly one, else None."""
    for expansion in expansions:
        if version in expansion.opsets:
            return expansion.ge[0] if len(expansion.ge) == 1 else None
    return None


def _fused(site: Site) -> Iterator[Finding]:
    """A fused operator in the file: is its kernel known, and with these dtypes?"""
    target = site.world.target
    fused = fused_operators().get(site.key)
    kernel = None if fused is None else fused.kernels.get(target.family)
    if kernel is None or kernel.mark in "?tx":
        note = f": {kernel.note}" if kernel is not None and kernel.note else ""
        yield site.finding(
            "OP052",
            Severity.UNKNOWN,
            f"no kernel on {target.family} is proven{note}",
            source="npu-ops.md",
            cure="leave the operator unfused for this chip",
        )
    elif kernel.mark == "-":
        yield site.finding(
            "OP052",
            Severity.RISK,
            f"the product table says that {target.family} has no kernel",
            source="npu-ops.md",
            atc_code="EZ3003",
            cure="leave the operator unfused for this chip",
        )
    elif not _matches(site, kernel.dtypes):
        given = ", ".join(_given(site))
        yield site.finding(
            "OP050",
            Severity.RISK,
            f"inputs ({given}) match none of the kernel's dtype tuples on {target.family}",
            source="npu_ops.json",
            atc_code="EZ3002",
        )


def _given(site: Site) -> list[str]:
    dtypes = [site.dtype(index) for index in range(site.connected())]
    return ["-" if dtype is None else dtype_name(dtype) for dtype in dtypes]


def _matches(site: Site, tuples: tuple[str, ...]) -> bool:
    """Does a dtype tuple agree with every input whose dtype is known?"""
    given = _given(site)
    return not tuples or any(
        all(have in ("-", want) for have, want in zip(given, row.split(","), strict=False))
        for row in tuples
    )
