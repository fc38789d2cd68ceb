"""Fused operators: shapes and attributes that their kernels reject (npu-ops.md sections 3, 4).

A predicate returns the reason, or None; what depends on a shape that is not known is not judged.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from cannc.op_support.report import Finding, Severity
from cannc.op_support.schema import Operator
from cannc.op_support.site import Site

_GROUP_MULTIPLE = 32
_MAX_DIM = 65535


def check(site: Site, _: Operator) -> Iterator[Finding]:
    """Yield findings about forms that the kernel's own checks reject."""
    predicate = REJECTS.get(site.op_type.removeprefix("NPU"))
    why = None if predicate is None else predicate(site)
    if why is not None:
        yield site.finding(
            "OP022", Severity.REFUSED, why, source="npu-ops.md sections 3 and 4", atc_code="EZ9999"
        )


def _rms_norm(site: Site) -> str | None:
    return _trailing(site, "gamma", gamma=1)


def _add_rms_norm(site: Site) -> str | None:
    first, second = site.shape(0), site.shape(1)
    if first is not None and second is not None and not _compatible(first, second):
        return f"x1 {_text(first)} and x2 {_text(second)} must have the same shape"
    return _trailing(site, "gamma", gamma=2)


def _trailing(site: Site, name: str, *, gamma: int) -> str | None:
    """The weight must have the last dims of x exactly."""
    x, weight = site.shape(0), site.shape(gamma)
    if x is None or weight is None:
        return None
    if not weight or len(weight) > len(x) or not _compatible(x[len(x) - len(weight) :], weight):
        return f"{name} {_text(weight)} must equal the trailing dims of x {_text(x)}"
    return None


def _rotary_mul(site: Site) -> str | None:
    x, cos, sin = (site.shape(index) for index in range(3))
    for shape in (x, cos, sin):
        if shape is not None and len(shape) != 4:
            return f"all inputs must be 4-D, one has {len(shape)} dims"
    if x is not None and x[-1] is not None and x[-1] % 2:
        return f"the last dim ({x[-1]}) must be even"
    if cos is not None and sin is not None and not _compatible(cos, sin):
        return "cos and sin must have the same shape"
    return None


def _geglu(site: Site) -> str | None:
    x = site.shape(0)
    if x and x[-1] is not None and x[-1] % 2:
        return f"the last dim ({x[-1]}) must be even"
    return None


def _group_norm_silu(site: Site) -> str | None:
    groups = site.get("num_groups", site.get("group", 0))
    if groups <= 0:
        return "num_groups (or group) must be given"
    x = site.shape(0)
    if x is not None and len(x) > 1 and x[1] is not None and x[1] % groups:
        return f"{groups} groups do not divide {x[1]} channels"
    return None


def _weight_quant_matmul(site: Site) -> str | None:
    x, weight = site.shape(0), site.shape(1)
    if x is not None and len(x) != 2:
        return f"x must be 2-D, it has {len(x)} dims"
    if weight is not None:
        large = [dim for dim in weight if dim is not None and dim > _MAX_DIM]
        if large:
            return f"a weight dim of {large[0]} is above {_MAX_DIM}"
    group = site.get("antiquant_group_size", 0)
    depth = weight[0] if weight else None
    if group and (group % _GROUP_MULTIPLE or (depth is not None and group >= depth)):
        return f"group size {group} must be a multiple of {_GROUP_MULTIPLE} below k"
    return _offset_like_scale(site)


def _offset_like_scale(site: Site) -> str | None:
    scale, offset = site.shape(2), site.shape(3)
    if scale is not None and offset is not None and not _compatible(scale, offset):
        return f"antiquant_offset {_text(offset)} must have the shape of the scale {_text(scale)}"
    return None


def _quantize(site: Site) -> str | None:
    return None if site.has("dtype") else "dtype must be given"


def _group_quant(site: Site) -> str | None:
    return None if site.get("dst_type", 2) == 2 else "dst_type must be 2 (int8)"


def _compatible(left: tuple[int | None, ...], right: tuple[int | None, ...]) -> bool:
    """Can the two shapes be equal? Dims that are not static are believed."""
    return len(left) == len(right) and all(
        a is None or b is None or a == b for a, b in zip(left, right, strict=True)
    )


def _text(shape: tuple[int | None, ...]) -> str:
    return "(" + ", ".join("?" if dim is None else str(dim) for dim in shape) + ")"


REJECTS: dict[str, Callable[[Site], str | None]] = {
    "AddRmsNorm": _add_rms_norm,
    "FusedAddRmsNorm": _add_rms_norm,
    "Geglu": _geglu,
    "GroupNormSilu": _group_norm_silu,
    "GroupQuant": _group_quant,
    "Quantize": _quantize,
    "RmsNorm": _rms_norm,
    "RotaryMul": _rotary_mul,
    "WeightQuantBatchMatmulV2": _weight_quant_matmul,
}
"""Operator type without its ``NPU`` prefix -> predicate."""
