"""Node forms that an operator's plugin refuses, although the operator is registered.

Each predicate returns the reason, or None. They follow the ``limits`` of entries that were read
by eye against the plugin's source; those marked "executed" were seen when the parser ran.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import onnx_ir as ir

from cannc.op_support.advice import refusal_cure
from cannc.op_support.report import Finding, Severity
from cannc.op_support.schema import Operator
from cannc.op_support.site import PARSER_RUN, PLUGIN, Site

Predicate = Callable[[Site], "str | None"]
_SPATIAL = (1, 2, 3)


def check(site: Site, _: Operator) -> Iterator[Finding]:
    """Yield findings about forms that stop the parse, or the compile right after it."""
    predicate = REFUSALS.get(site.key)
    why = None if predicate is None else predicate(site)
    if why is not None:
        yield site.finding(
            "OP020",
            Severity.REFUSED,
            why,
            source=PARSER_RUN if site.key in EXECUTED else PLUGIN,
            atc_code="E19999",
            cure=CURES.get(site.key) or refusal_cure(site.op_type),
        )


def crashes(site: Site, _: Operator) -> Iterator[Finding]:
    """Yield findings about forms on which the compiler crashes without an error code."""
    predicate = CRASHES.get(site.key)
    why = None if predicate is None else predicate(site)
    if why is not None:
        yield site.finding(
            "OP021",
            Severity.REFUSED,
            why,
            source=PARSER_RUN,
            cure=CURES.get(site.key) or refusal_cure(site.op_type),
        )
    if site.key == "ai.onnx::NonMaxSuppression" and site.connected() < 5:
        yield site.finding(
            "OP022",
            Severity.REFUSED,
            f"{site.connected()} inputs: fewer than five fail or crash after parsing",
            source="public report on CANN 9.0.1, Ascend310P3",
            cure=refusal_cure(site.op_type),
        )


def _select_last(site: Site) -> str | None:
    return "select_last_index must be 0" if site.get("select_last_index", 0) else None


def _pool(site: Site) -> str | None:
    kernel = site.get("kernel_shape")
    if not kernel:
        return "kernel_shape is required"
    if len(kernel) not in _SPATIAL:
        return f"a {len(kernel)}-D kernel; only 1-D, 2-D and 3-D are known"
    return _odd_pads(site)


def _odd_pads(site: Site) -> str | None:
    return "pads must have an even number of entries" if len(site.get("pads", ())) % 2 else None


def _max_pool(site: Site) -> str | None:
    if len(site.node.outputs) > 1:
        return "the second output (Indices) is refused"
    if site.get("storage_order", 0):
        return "storage_order must be 0"
    return _pool(site)


def _batch_norm(site: Site) -> str | None:
    return "more than five inputs" if site.connected() > 5 else None


def _clip(site: Site) -> str | None:
    if site.version >= 11 and site.input(1) is None and site.input(2) is None:
        return "neither min nor max is given"
    return None


def _col2im(site: Site) -> str | None:
    for name in ("dilations", "pads", "strides"):
        if len(site.get(name, ())) != 2:
            return f"{name} must have exactly two entries; a valid node cannot satisfy the plugin"
    return None


def _conv(site: Site) -> str | None:
    shapes = [site.get(name) for name in ("kernel_shape", "strides", "dilations")]
    pads = site.get("pads")
    known = next((len(shape) for shape in shapes if shape), len(pads) // 2 if pads else None)
    if known is None:
        return "one of kernel_shape, pads, strides, dilations must be given"
    if known not in _SPATIAL:
        return f"{known}-D convolution; only 1-D, 2-D and 3-D are known"
    if known == 3 and site.get("auto_pad", "NOTSET") not in ("NOTSET", "VALID"):
        return f"auto_pad={site.get('auto_pad')} on a 3-D convolution"
    return _odd_pads(site)


def _conv_transpose(site: Site) -> str | None:
    kernel = site.get("kernel_shape")
    if not kernel:
        return "kernel_shape is required"
    if len(kernel) not in _SPATIAL:
        return f"a {len(kernel)}-D kernel; only 1-D, 2-D and 3-D are known"
    return _odd_pads(site)


def _depth_to_space(site: Site) -> str | None:
    return "blocksize must be at least 2" if site.get("blocksize", 0) < 2 else None


def _einsum(site: Site) -> str | None:
    return None if site.has("equation") else "equation is required"


def _gather_nd(site: Site) -> str | None:
    return "batch_dims must be 0" if site.get("batch_dims", 0) else None


def _is_inf(site: Site) -> str | None:
    for name in ("detect_negative", "detect_positive"):
        if site.get(name, 1) != 1:
            return f"{name} must be 1"
    return None


def _lrn(site: Site) -> str | None:
    return None if site.get("size", 0) else "size must be given and not be 0"


def _max_unpool(site: Site) -> str | None:
    return None if site.get("kernel_shape") else "kernel_shape is required"


def _random_like(site: Site) -> str | None:
    allowed = (ir.DataType.FLOAT, ir.DataType.FLOAT16, ir.DataType.DOUBLE)
    return _output_dtype(site, tuple(int(dtype) for dtype in allowed))


def _random_uniform(site: Site) -> str | None:
    allowed = (ir.DataType.FLOAT, ir.DataType.FLOAT16, ir.DataType.INT32, ir.DataType.UINT8)
    return _output_dtype(site, tuple(int(dtype) for dtype in allowed))


def _output_dtype(site: Site, allowed: tuple[int, ...]) -> str | None:
    wanted = site.get("dtype", int(ir.DataType.FLOAT))
    return None if wanted in allowed else f"output dtype {wanted} is refused (ONNX dtype number)"


def _resize(site: Site) -> str | None:
    mode = site.get("mode", "nearest")
    known = ("nearest", "linear") if site.version == 10 else ("nearest", "linear", "cubic")
    if mode not in known:
        return f"mode={mode}; only {', '.join(known)} are known"
    if site.version >= 11 and len(site.node.inputs) < 3:
        return "fewer than three inputs (X, roi, scales)"
    return None


def _selu(site: Site) -> str | None:
    defaults = (("alpha", 1.67326319217681884765625), ("gamma", 1.05070102214813232421875))
    for name, default in defaults:
        if abs(site.get(name, default) - default) > 1e-6:
            return f"{name} must be the ONNX default"
    return None


def _slice(site: Site) -> str | None:
    if site.version < 10 and not (site.has("starts") and site.has("ends")):
        return "starts and ends are required"
    return None


def _scatter_nd(site: Site) -> str | None:
    reduction = site.get("reduction", "none")
    known = ("none", "add", "max", "min")
    return None if reduction in known else f"reduction={reduction}; known are {', '.join(known)}"


def _split(site: Site) -> str | None:
    outputs, sizes = len(site.node.outputs), site.get("split")
    if sizes and len(sizes) != outputs:
        return f"{outputs} outputs, but {len(sizes)} sizes in split"
    parts = site.get("num_outputs")
    if parts is None:
        return None
    if parts != outputs:
        return f"{outputs} outputs, but num_outputs={parts}"
    shape, axis = site.shape(0), site.get("axis", 0)
    if site.input(1) is not None or _split_without_shape(site) or shape is None:
        return None
    dim = shape[axis] if -len(shape) <= axis < len(shape) else None
    if dim is None and parts > 1:
        return f"num_outputs={parts} on a dimension that is not static"
    if dim is not None and dim % parts:
        return f"num_outputs={parts} does not divide the dimension {dim}"
    return None


def _split_without_shape(site: Site) -> str | None:
    """The plugin looks up the dimension before shape inference: only inputs and weights have one.

    Seen to crash with an inner tensor of a Silero export (parser-run.md).
    """
    value = site.input(0)
    if not site.has("num_outputs") or site.input(1) is not None or value is None:
        return None
    if site.in_function or ir.convenience.get_const_tensor(value) is not None:
        return None
    if value.is_graph_input() and not site.scope:
        return None
    return "num_outputs without split on an inner tensor: its shape is read before it is known"


def _seeded(site: Site) -> str | None:
    return "a seed attribute makes the parser crash" if site.has("seed") else None


def _bare_int8_conv(site: Site) -> str | None:
    return None if site.node.attributes else "without attributes the parser crashes"


def _top_k(site: Site) -> str | None:
    return "k is required" if site.version < 10 and not site.has("k") else None


def _transpose(site: Site) -> str | None:
    return None if site.has("perm") else "perm is required (ONNX would reverse the axes)"


def _upsample(site: Site) -> str | None:
    mode = site.get("mode", "nearest")
    return None if mode in ("nearest", "linear") else f"mode={mode}; only nearest and linear"


def _adaptive_pool(site: Site) -> str | None:
    return None if len(site.get("output_size", ())) == 2 else "output_size must have two entries"


REFUSALS: dict[str, Predicate] = {
    "ai.onnx::AdaptiveAvgPool2d": _adaptive_pool,
    "ai.onnx::AdaptiveMaxPool2d": _adaptive_pool,
    "ai.onnx::ArgMax": _select_last,
    "ai.onnx::ArgMin": _select_last,
    "ai.onnx::AveragePool": _pool,
    "ai.onnx::BatchNormalization": _batch_norm,
    "ai.onnx::Clip": _clip,
    "ai.onnx::Col2Im": _col2im,
    "ai.onnx::Conv": _conv,
    "ai.onnx::ConvTranspose": _conv_transpose,
    "ai.onnx::DepthToSpace": _depth_to_space,
    "ai.onnx::Einsum": _einsum,
    "ai.onnx::GatherND": _gather_nd,
    "ai.onnx::IsInf": _is_inf,
    "ai.onnx::LRN": _lrn,
    "ai.onnx::LpPool": _pool,
    "ai.onnx::MaxPool": _max_pool,
    "ai.onnx::MaxUnpool": _max_unpool,
    "ai.onnx::RandomNormalLike": _random_like,
    "ai.onnx::RandomUniform": _random_uniform,
    "ai.onnx::Resize": _resize,
    "ai.onnx::ScatterND": _scatter_nd,
    "ai.onnx::Selu": _selu,
    "ai.onnx::Slice": _slice,
    "ai.onnx::Split": _split,
    "ai.onnx::TopK": _top_k,
    "ai.onnx::Transpose": _transpose,
    "ai.onnx::Upsample": _upsample,
}

CRASHES: dict[str, Predicate] = {
    "ai.onnx::Bernoulli": _seeded,
    "ai.onnx::Int8Conv": _bare_int8_conv,
    "ai.onnx::Split": _split_without_shape,
}

EXECUTED = frozenset(
    f"ai.onnx::{name}"
    for name in (
        "ArgMax", "ArgMin", "Clip", "Col2Im", "ConvTranspose", "GatherND", "IsInf", "MaxPool",
        "Split",
    )
)  # fmt: skip

CURES = {
    "ai.onnx::Bernoulli": "remove the seed; the device's random stream differs anyway",
    "ai.onnx::Col2Im": "express it by reshapes and adds",
    "ai.onnx::MaxPool": "drop the Indices output when nothing needs it (cannc optimize does)",
}
"""What to do where no pass does it."""
