"""Windows and padding that the device's pooling does not know.

- ``auto_pad=SAME_*`` becomes pads: SAME_LOWER is read as SAME_UPPER, 3-D and large windows drop it.
- ``ceil_mode`` of LpPool, and of a large MaxPool, becomes more padding at the end: what MaxPool
  pads never wins, and what LpPool pads adds nothing.
- Dilated MaxPool (1-D, 2-D) becomes, axis by axis, ``Max`` of strided Slices of the padded input.
- Dilated LpPool becomes ``Pow(Conv(Pow(|x|, p), ones), 1/p)``, one group per channel.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from cannc.compiler.core.shapes import static_shape
from cannc.passes.base import Numerics
from cannc.passes.legalize.base import EditCure, is_used
from cannc.passes.opset.edit import Edit

_LARGE = 255
_LONG_STRIDE = 63


class _Window(NamedTuple):
    """A pooling window, one entry per spatial axis."""

    kernel: tuple[int, ...]
    strides: tuple[int, ...]
    dilations: tuple[int, ...]
    begins: tuple[int, ...]
    ends: tuple[int, ...]

    @property
    def reach(self) -> list[int]:
        """Pixels from the first to the last tap."""
        return [(k - 1) * d + 1 for k, d in zip(self.kernel, self.dilations, strict=True)]

    @property
    def is_large(self) -> bool:
        """Does it leave the AI Core?"""
        return math.prod(self.kernel) > _LARGE or max(self.strides) > _LONG_STRIDE


class ExplicitPads(EditCure):
    """See the module."""

    name = "explicit-pads"
    summary = "auto_pad and ceil_mode of pooling -> pads"
    numerics = Numerics.EXACT
    op_types = frozenset({"AveragePool", "MaxPool", "LpPool", "Conv"})

    def needs(self, edit: Edit) -> bool:
        """Is padding left to the device that it would get wrong?"""
        if "kernel_shape" not in edit.node.attributes:
            return False
        window = _raw_window(edit)
        kind, flat = edit.node.op_type, len(window.kernel) < 3
        mode = edit.node.attributes.get_string("auto_pad", "NOTSET")
        if mode in ("SAME_UPPER", "SAME_LOWER"):
            return mode == "SAME_LOWER" or not flat or (window.is_large and kind != "Conv")
        ceil = edit.node.attributes.get_int("ceil_mode", 0) == 1
        return ceil and (kind == "LpPool" or (kind == "MaxPool" and flat and window.is_large))

    def obstacle(self, edit: Edit) -> str | None:
        """Padding follows from the size of the image."""
        return None if _spatial(edit) is not None else "the size of its input is not known"

    def apply(self, edit: Edit) -> None:
        """Write the pads."""
        window = _window(edit)
        names = ("auto_pad", "ceil_mode")
        gone = {name: None for name in names if name in edit.node.attributes}
        pads = [*window.begins, *window.ends]
        edit.ctx.rewriter.set_attributes(edit.node, {**gone, "pads": pads})


class DilatedPooling(EditCure):
    """See the module."""

    name = "dilated-pooling"
    summary = "dilated MaxPool -> Max of Slices; dilated LpPool -> Conv"
    numerics = Numerics.REASSOCIATED
    op_types = frozenset({"MaxPool", "LpPool"})

    def needs(self, edit: Edit) -> bool:
        """Is the window dilated where the device knows none?"""
        window = _raw_window(edit)
        dilated = any(d > 1 for d in window.dilations)
        return dilated and (edit.node.op_type == "LpPool" or len(window.kernel) < 3)

    def obstacle(self, edit: Edit) -> str | None:
        """Shapes must be static, and only the values wanted."""
        if static_shape(edit.data()) is None or edit.data().dtype is None:
            return "dilations: the shape or dtype of its input is not known"
        if any(is_used(value) for value in edit.node.outputs[1:]):
            return "dilations: its indices are read"
        return None

    def apply(self, edit: Edit) -> None:
        """Write it out."""
        if edit.node.op_type == "MaxPool":
            _max_of_slices(edit, _window(edit))
        else:
            _power_mean(edit, _window(edit))


def _max_of_slices(edit: Edit, window: _Window) -> None:
    shape, dtype = static_shape(edit.data()), edit.data().dtype
    assert shape is not None
    assert dtype is not None
    lowest = -np.inf if dtype.is_floating_point() else np.iinfo(dtype.numpy()).min
    pads = edit.constant([0, 0, *window.begins, 0, 0, *window.ends])
    nodes = [edit.make("Pad", edit.data(), pads, edit.constant(lowest, dtype.numpy()))]
    for axis, (size, reach) in enumerate(zip(shape[2:], window.reach, strict=True)):
        stride, dilation = window.strides[axis], window.dilations[axis]
        total = size + window.begins[axis] + window.ends[axis]
        span = (total - reach) // stride * stride + 1
        whole, parts = nodes[-1].outputs[0], []
        for tap in range(window.kernel[axis]):
            start = tap * dilation
            numbers = (start, start + span, axis + 2, stride)
            bounds = [edit.constant([number]) for number in numbers]
            parts.append(edit.make("Slice", whole, *bounds))
        nodes += [*parts, edit.make("Max", *(part.outputs[0] for part in parts))]
    edit.put(nodes)


def _power_mean(edit: Edit, window: _Window) -> None:
    shape, power = static_shape(edit.data()), edit.node.attributes.get_int("p", 2)
    dtype = edit.data().dtype
    assert shape is not None
    assert dtype is not None
    ones = edit.constant(np.ones((shape[1], 1, *window.kernel)), dtype.numpy())
    absolute = edit.make("Abs", edit.data())
    raised = edit.make("Pow", absolute.outputs[0], edit.scalar(power))
    attributes = {
        "kernel_shape": list(window.kernel),
        "strides": list(window.strides),
        "dilations": list(window.dilations),
        "pads": [*window.begins, *window.ends],
        "group": shape[1],
    }
    total = edit.make("Conv", raised.outputs[0], ones, attributes=attributes)
    edit.put([absolute, raised, total, edit.make("Pow", total.outputs[0], edit.scalar(1 / power))])


def _raw_window(edit: Edit) -> _Window:
    """The window as the node says it; pads 0 where it leaves them to auto_pad."""
    get = edit.node.attributes.get_ints
    kernel = tuple(get("kernel_shape") or ())
    ones = (1,) * len(kernel)
    pads = tuple(get("pads") or (0,) * (2 * len(kernel)))
    half = len(kernel)
    strides, dilations = get("strides") or ones, get("dilations") or ones
    return _Window(kernel, tuple(strides), tuple(dilations), pads[:half], pads[half:])


def _window(edit: Edit) -> _Window:
    """The window with all padding resolved, so that sizes round down."""
    window, sizes = _raw_window(edit), _spatial(edit)
    assert sizes is not None
    mode = edit.node.attributes.get_string("auto_pad", "NOTSET")
    ceil = edit.node.attributes.get_int("ceil_mode", 0) == 1
    begins, ends = [], []
    for axis, (size, reach) in enumerate(zip(sizes, window.reach, strict=True)):
        stride, begin, end = window.strides[axis], window.begins[axis], window.ends[axis]
        if mode in ("SAME_UPPER", "SAME_LOWER"):
            total = max((-(-size // stride) - 1) * stride + reach - size, 0)
            begin = total // 2 if mode == "SAME_UPPER" else total - total // 2
            end = total - begin
        elif ceil:
            steps = -(-(size + begin + end - reach) // stride)
            if steps * stride >= size + begin:
                steps -= 1  # A window may not start in the padding at the end.
            end = max(end, steps * stride + reach - size - begin)
        begins.append(begin)
        ends.append(end)
    return window._replace(begins=tuple(begins), ends=tuple(ends))


def _spatial(edit: Edit) -> list[int] | None:
    shape = edit.data().shape
    if shape is None:
        return None
    sizes = [dim for dim in list(shape)[2:] if isinstance(dim, int)]
    return sizes if len(sizes) == len(shape) - 2 else None
