"""Under which values an ignored attribute changes the result.

One predicate per (operator, attribute) of the table's ``effects``, keyed by operator type; the
same plugin serves the default domain and ``npu``. A predicate returns None when the node is not
affected, else why, and whether that is certain: what needs a shape that is not known is not.
Each follows the text of the table's ``when``.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import NamedTuple

import onnx_ir as ir

from cannc.op_support.rules import resize
from cannc.op_support.rules.outcome import Outcome, certain, possible
from cannc.op_support.rules.signs import nonnegative
from cannc.op_support.site import Site

Condition = Callable[[Site], "Outcome | None"]
LARGE_KERNEL = 255
LARGE_STRIDE = 63
RMS_EPSILON = 1e-6


class _Window(NamedTuple):
    """A pooling window."""

    kernel: tuple[int, ...]
    strides: tuple[int, ...]
    dilations: tuple[int, ...]

    @classmethod
    def of(cls, site: Site) -> _Window:
        kernel = tuple(site.get("kernel_shape", ()))
        ones = (1,) * len(kernel)
        strides = tuple(site.get("strides", ones))
        return cls(kernel, strides, tuple(site.get("dilations", ones)))

    @property
    def large(self) -> bool:
        """Does it leave the AI Core for the path that drops ceil_mode and SAME padding?"""
        return math.prod(self.kernel) > LARGE_KERNEL or any(s > LARGE_STRIDE for s in self.strides)


def _odd_same_padding(site: Site, window: _Window) -> bool | None:
    """Is some total of SAME padding odd? None when a spatial dim is unknown."""
    shape = site.shape(0)
    spatial = len(window.kernel)
    if shape is None or {len(shape) - 2, len(window.strides), len(window.dilations)} != {spatial}:
        return None
    odd = False
    for dim, kernel, stride, dilation in zip(shape[2:], *window, strict=True):
        if dim is None:
            return None
        outputs = -(-dim // max(stride, 1))
        total = max((outputs - 1) * stride + (kernel - 1) * dilation + 1 - dim, 0)
        odd |= bool(total % 2)
    return odd


def _same_lower(site: Site, window: _Window) -> Outcome | None:
    if site.get("auto_pad") != "SAME_LOWER":
        return None
    odd = _odd_same_padding(site, window)
    if odd is None:
        return possible("SAME_LOWER is treated as SAME_UPPER; differs where the padding is odd")
    return certain("SAME_LOWER is treated as SAME_UPPER and the padding is odd") if odd else None


def _same(site: Site) -> bool:
    return site.get("auto_pad", "NOTSET") in ("SAME_UPPER", "SAME_LOWER")


def _average_pool_auto_pad(site: Site) -> Outcome | None:
    window = _Window.of(site)
    if _same(site) and len(window.kernel) == 3:
        return certain("auto_pad is not passed on for a 3-D kernel")
    return _same_lower(site, window)


def _max_pool_auto_pad(site: Site) -> Outcome | None:
    window = _Window.of(site)
    if _same(site) and _on_large_path(site, window):
        return certain("a window this large runs on the AI CPU, where SAME padding is dropped")
    return _same_lower(site, window)


def _lp_pool_auto_pad(site: Site) -> Outcome | None:
    window = _Window.of(site)
    if _same(site) and (len(window.kernel) == 3 or window.large):
        return certain("auto_pad is dropped for a 3-D or a large window")
    return _same_lower(site, window)


def _on_large_path(site: Site, window: _Window) -> bool:
    return window.large and len(window.kernel) < 3 and site.world.target.family != "ascend950"


def _max_pool_ceil(site: Site) -> Outcome | None:
    if site.get("ceil_mode", 0) and _on_large_path(site, _Window.of(site)):
        return certain("a window this large runs on the AI CPU, where ceil_mode is dropped")
    return None


def _max_pool_dilations(site: Site) -> Outcome | None:
    window = _Window.of(site)
    if len(window.kernel) < 3 and any(d > 1 for d in window.dilations):
        return certain("dilations are dropped for 1-D and 2-D pooling")
    return None


def _lp_pool_dilations(site: Site) -> Outcome | None:
    return (
        certain("dilations are ignored") if any(d > 1 for d in site.get("dilations", ())) else None
    )


def _flag(name: str, bad: object, why: str, default: object = None) -> Condition:
    """Affected when the attribute (or its default) has one value."""

    def condition(site: Site) -> Outcome | None:
        return certain(why) if site.get(name, default) == bad else None

    return condition


def _not_equal(name: str, good: float, why: str, default: float | None = None) -> Condition:
    """Affected when the attribute (or its ONNX default) is not the value that the device uses."""

    def condition(site: Site) -> Outcome | None:
        value = site.get(name, default)
        if value is None or math.isclose(value, good, rel_tol=1e-5):
            return None
        return certain(f"{why}, the node says {value:g}")

    return condition


def _truthy(name: str, why: str) -> Condition:
    def condition(site: Site) -> Outcome | None:
        return certain(why) if site.get(name) else None

    return condition


def _always(why: str) -> Condition:
    return lambda _: certain(why)


def _eye_like_dtype(site: Site) -> Outcome | None:
    if site.has("dtype"):
        return None
    dtype = site.dtype(0)
    why = "without dtype the output is float32, not the input's type"
    if dtype is None:
        return possible(why)
    return certain(why) if dtype != ir.DataType.FLOAT else None


def _activations(default: tuple[str, ...]) -> Condition:
    def condition(site: Site) -> Outcome | None:
        given = tuple(name.lower() for name in site.get("activations", ()))
        expected = default * (len(given) // len(default) or 1)
        if not given or given == expected:
            return None
        return certain(f"activations {', '.join(given)} are ignored; {', '.join(default)} are used")

    return condition


def _clip(site: Site) -> Outcome | None:
    value = site.get("clip", 0.0)
    return certain(f"clip={value:g} is ignored") if value > 0 else None


def _gemm_alpha(site: Site) -> Outcome | None:
    if site.input(2) is not None:
        return None
    return _not_equal(
        "alpha", 1.0, "without C the node becomes a bare MatMul: alpha is dropped", 1
    )(site)


def _flattening_axis(why: str) -> Condition:
    """Below opset 13 the axis splits the shape in two; the device only knows the last axis."""

    def condition(site: Site) -> Outcome | None:
        axis, rank = site.get("axis", 1), site.rank(0)
        if axis == -1 or (rank is not None and axis == rank - 1):
            return None
        return possible(why) if rank is None else certain(why)

    return condition


def _mod_fmod(site: Site) -> Outcome | None:
    if site.get("fmod", 0):
        return None
    if all(nonnegative(site.input(index), site.world.values) for index in (0, 1)):
        return None
    return certain("the device truncates (fmod=1); operands of opposite sign differ")


def _multinomial_dtype(site: Site) -> Outcome | None:
    value = site.get("dtype", 6)
    return None if value == 6 else certain("the output is always int32")


def _geglu_dim(site: Site) -> Outcome | None:
    dim, rank = site.get("dim", -1), site.rank(0)
    if dim == -1 or (rank is not None and dim == rank - 1):
        return None
    why = f"the device splits the last axis, the node says {dim}"
    return possible(why) if rank is None else certain(why)


def _scatter_elements(site: Site) -> Outcome | None:
    reduction = site.get("reduction", "none")
    if reduction in ("max", "min"):
        return certain(f"reduction={reduction} is passed on, but GE documents none, add, mul only")
    return None


def _scatter_nd(site: Site) -> Outcome | None:
    reduction = site.get("reduction", "none")
    if reduction == "none":
        return None
    return certain(f"reduction={reduction} may be ignored, depending on the release")


def _shape_start(site: Site) -> Outcome | None:
    start = site.get("start", 0)
    if start == 0 or start == -(site.rank(0) or 0):
        return None
    return certain(f"start={start} is ignored: the whole shape is produced")


def _shape_end(site: Site) -> Outcome | None:
    end, rank = site.get("end"), site.rank(0)
    if end is None or (rank is not None and end >= rank):
        return None
    why = f"end={end} is ignored: the whole shape is produced"
    return possible(why) if end >= 0 and rank is None else certain(why)


def _unique_axis(site: Site) -> Outcome | None:
    if not site.has("axis") or site.rank(0) == 1:
        return None
    why = "axis is ignored: the flattened input is searched"
    return possible(why) if site.rank(0) is None else certain(why)


def _bernoulli_dtype(site: Site) -> Outcome | None:
    return None if site.has("dtype") else certain("without dtype GE's attribute is undefined")


_UNREAD_RMS = _not_equal("epsilon", RMS_EPSILON, "the device always uses epsilon 1e-6")
_LAYOUT = _flag("layout", 1, "layout=1 (batch first) is ignored")
_FLATTEN = _flattening_axis("below opset 13 the device does not flatten at axis")

CONDITIONS: dict[tuple[str, str], Condition] = {
    ("AveragePool", "auto_pad"): _average_pool_auto_pad,
    ("BatchNormalization", "spatial"): _flag("spatial", 0, "spatial=0 is ignored"),
    ("Bernoulli", "dtype"): _bernoulli_dtype,
    ("EyeLike", "dtype"): _eye_like_dtype,
    ("GRU", "activations"): _activations(("sigmoid", "tanh")),
    ("GRU", "clip"): _clip,
    ("GRU", "layout"): _LAYOUT,
    ("GRU", "linear_before_reset"): _always(
        "linear_before_reset is not read; which cell the closed kernel computes is not known"
    ),
    ("Gemm", "alpha"): _gemm_alpha,
    ("Hardmax", "axis"): _FLATTEN,
    ("LSTM", "activations"): _activations(("sigmoid", "tanh", "tanh")),
    ("LSTM", "clip"): _clip,
    ("LSTM", "input_forget"): _flag("input_forget", 1, "input_forget=1 is ignored"),
    ("LSTM", "layout"): _LAYOUT,
    ("LogSoftmax", "axis"): _FLATTEN,
    ("LpPool", "auto_pad"): _lp_pool_auto_pad,
    ("LpPool", "ceil_mode"): _flag("ceil_mode", 1, "ceil_mode=1 is ignored"),
    ("LpPool", "dilations"): _lp_pool_dilations,
    ("MaxPool", "auto_pad"): _max_pool_auto_pad,
    ("MaxPool", "ceil_mode"): _max_pool_ceil,
    ("MaxPool", "dilations"): _max_pool_dilations,
    ("Mod", "fmod"): _mod_fmod,
    ("Multinomial", "dtype"): _multinomial_dtype,
    ("Multinomial", "sample_size"): _not_equal("sample_size", 1, "one sample is always drawn", 1),
    ("NPUAddRmsNorm", "epsilon"): _UNREAD_RMS,
    ("NPUDtypeCast", "dtype"): _always("the target dtype is not read; the Cast lacks it"),
    ("NPUGeglu", "activate_left"): _truthy("activate_left", "activate_left is ignored"),
    ("NPUGeglu", "approximate"): _not_equal("approximate", 1, "the tanh form (1) is always used"),
    ("NPUGeglu", "dim"): _geglu_dim,
    ("NPUGru", "batch_first"): _truthy("batch_first", "batch_first is ignored: time comes first"),
    ("NPUGru", "bidirectional"): _truthy("bidirectional", "only the forward direction is computed"),
    ("NPUGru", "num_layers"): lambda site: _layers(site),
    ("NPULstm", "batch_first"): _truthy("batch_first", "batch_first is ignored: time comes first"),
    ("NPULstm", "bidirectional"): _truthy("bidirectional", "only one direction is computed"),
    ("NPULstm", "num_layers"): lambda site: _layers(site),
    ("NPURmsNorm", "epsilon"): _UNREAD_RMS,
    ("Resize", "antialias"): resize.antialias,
    ("Resize", "axes"): resize.axes,
    ("Resize", "coordinate_transformation_mode"): resize.coordinate_mode,
    ("Resize", "cubic_coeff_a"): resize.cubic_coefficient,
    ("Resize", "exclude_outside"): resize.exclude_outside,
    ("Resize", "extrapolation_value"): resize.extrapolation,
    ("Resize", "keep_aspect_ratio_policy"): resize.aspect_ratio,
    ("Resize", "nearest_mode"): resize.nearest_mode,
    ("RoiAlign", "mode"): _flag("mode", "max", "mode=max is ignored: averages are computed"),
    ("ScatterElements", "reduction"): _scatter_elements,
    ("ScatterND", "reduction"): _scatter_nd,
    ("SequenceEmpty", "dtype"): _not_equal("dtype", 1, "dtype is not read", 1),
    ("Shape", "end"): _shape_end,
    ("Shape", "start"): _shape_start,
    ("Softmax", "axis"): _flattening_axis("below opset 13 a closed fusion must restore the axis"),
    ("Unique", "axis"): _unique_axis,
    ("Upsample", "mode"): _flag("mode", "linear", "GE's grid is half_pixel, Upsample's asymmetric"),
}


def _layers(site: Site) -> Outcome | None:
    layers = site.get("num_layers", 1)
    return certain(f"one layer is computed, the node says {layers}") if layers > 1 else None
