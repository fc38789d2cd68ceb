"""Resize: what GE's kernels do differently from ONNX.

GE's nearest kernel ignores nearest_mode; its rounding follows the grid (kernel source, newest
generation): asymmetric floors, half_pixel and pytorch_half_pixel take floor((i + 0.5) * scale),
align_corners rounds half up, and any other grid runs as asymmetric + floor.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import numpy.typing as npt

from cannc.op_support.rules.outcome import Outcome, certain, possible
from cannc.op_support.site import Site

_Indices = npt.NDArray[np.int64]
_GRIDS_KNOWN = ("asymmetric", "half_pixel", "pytorch_half_pixel", "align_corners")
_ROUNDING: dict[str, Callable[[npt.NDArray[np.float64]], npt.NDArray[np.float64]]] = {
    "round_prefer_floor": lambda x: np.ceil(x - 0.5),
    "round_prefer_ceil": lambda x: np.floor(x + 0.5),
    "floor": np.floor,
    "ceil": np.ceil,
}
_SIZES, _SCALES = 3, 2


def nearest_mode(site: Site) -> Outcome | None:
    """Compare the two index maps; judge by the rounding alone where sizes are not known."""
    grid = _grid(site)
    if not _nearest(site) or site.version < 11 or grid not in _GRIDS_KNOWN:
        return None
    rounding = site.get("nearest_mode", "round_prefer_floor")
    if rounding not in _ROUNDING:
        return certain(f"nearest_mode={rounding} is not known to ONNX")
    spans = _spans(site)
    if spans is None:
        return _without_sizes(site, grid, rounding)
    for size, out, scale in spans:
        if not np.array_equal(
            onnx_indices(size, out, scale, grid, rounding), device_indices(size, out, grid)
        ):
            return certain(
                f"nearest_mode={rounding} on the {grid} grid is not what the device does: other "
                f"pixels are taken from {size} to {out}"
            )
    return None


def onnx_indices(size: int, out: int, scale: float, grid: str, rounding: str) -> _Indices:
    """Return the source index of each output pixel by ONNX's rule.

    Args:
        size: Input pixels.
        out: Output pixels.
        scale: Output over input, as the node gives it.
        grid: coordinate_transformation_mode.
        rounding: nearest_mode.
    """
    position = np.arange(out, dtype=np.float64)
    if grid == "asymmetric":
        source = position / scale
    elif grid == "align_corners":
        source = position * (size - 1) / (out - 1) if out > 1 else position * 0
    elif grid == "pytorch_half_pixel" and out == 1:
        source = position * 0
    else:
        source = (position + 0.5) / scale - 0.5
    return _clamp(_ROUNDING[rounding](source), size)


def device_indices(size: int, out: int, grid: str) -> _Indices:
    """Return the source index of each output pixel by GE's rule."""
    position = np.arange(out, dtype=np.float64)
    if grid == "align_corners":
        source = np.floor(position * (size - 1) / (out - 1) + 0.5) if out > 1 else position * 0
    elif grid in ("half_pixel", "pytorch_half_pixel"):
        source = np.floor((position + 0.5) * size / out)
    else:
        source = np.floor(position * size / out)
    return _clamp(source, size)


def coordinate_mode(site: Site) -> Outcome | None:
    """The two rare grids run as asymmetric + floor."""
    grid = _grid(site)
    if _nearest(site) and grid in ("tf_half_pixel_for_nn", "tf_crop_and_resize"):
        return certain(f"{grid} runs as asymmetric with floor")
    return None


def cubic_coefficient(site: Site) -> Outcome | None:
    """The cubic kernel's coefficient stays at -0.75."""
    value = site.get("cubic_coeff_a", -0.75)
    if site.get("mode") != "cubic" or abs(value + 0.75) < 1e-6:
        return None
    return certain(f"cubic_coeff_a={value:g} is ignored: -0.75 is used")


def exclude_outside(site: Site) -> Outcome | None:
    """Weights outside the image keep their share."""
    if site.get("mode") == "cubic" and site.get("exclude_outside", 0):
        return certain("exclude_outside=1 is ignored")
    return None


def extrapolation(site: Site) -> Outcome | None:
    """Points outside the image become 0."""
    value = site.get("extrapolation_value", 0.0)
    if _grid(site) == "tf_crop_and_resize" and value != 0:
        return certain(f"extrapolation_value={value:g} is ignored: 0 is used")
    return None


def antialias(site: Site) -> Outcome | None:
    """Down-scaling is not smoothed."""
    if not site.get("antialias", 0):
        return None
    scales = _scales(site)
    why = "antialias=1 is ignored when scaling down"
    if scales is None:
        return possible(why)
    return certain(why) if any(scale < 1 for scale in scales) else None


def axes(site: Site) -> Outcome | None:
    """A subset of the axes breaks the size computation."""
    given, rank = site.get("axes"), site.rank(0)
    if given is None or (rank is not None and len(given) == rank):
        return None
    return certain("axes is ignored: a subset of the axes with short sizes breaks")


def aspect_ratio(site: Site) -> Outcome | None:
    """Sizes are taken as they are."""
    policy = site.get("keep_aspect_ratio_policy", "stretch")
    if policy != "stretch" and site.input(_SIZES) is not None:
        return certain(f"keep_aspect_ratio_policy={policy} is ignored: the image is stretched")
    return None


def _nearest(site: Site) -> bool:
    return bool(site.get("mode", "nearest") == "nearest")


def _grid(site: Site) -> str:
    return str(site.get("coordinate_transformation_mode", "half_pixel"))


def _clamp(source: npt.NDArray[np.float64], size: int) -> _Indices:
    return np.clip(source, 0, size - 1).astype(np.int64)


def _scales(site: Site) -> list[float] | None:
    """Return output over input for each axis that is scaled, or None when not known."""
    scales = site.constant(_SCALES)
    if scales is not None and scales.size:
        return [float(scale) for scale in scales]
    spans = _spans(site)
    return None if spans is None else [scale for _, _, scale in spans]


def _spans(site: Site) -> list[tuple[int, int, float]] | None:
    """Return (input size, output size, scale) per scaled axis, or None when one is not known."""
    shape = site.shape(0)
    if not shape:
        return None
    chosen = [axis % len(shape) for axis in site.get("axes", range(len(shape)))]
    dims = [shape[axis] for axis in chosen]
    if any(dim is None or dim == 0 for dim in dims):
        return None
    known = [dim for dim in dims if dim is not None]
    scales, sizes = site.constant(_SCALES), site.constant(_SIZES)
    if scales is not None and scales.size == len(known):
        factors = [float(scale) for scale in scales]
        return [(d, int(np.floor(d * f)), f) for d, f in zip(known, factors, strict=True)]
    if sizes is not None and sizes.size == len(known):
        return [(d, int(s), int(s) / d) for d, s in zip(known, sizes, strict=True)]
    return None


def _without_sizes(site: Site, grid: str, rounding: str) -> Outcome | None:
    if rounding == ("floor" if grid == "asymmetric" else "round_prefer_ceil"):
        return None
    scales = site.constant(_SCALES)
    if grid in ("half_pixel", "pytorch_half_pixel") and rounding == "round_prefer_floor":
        whole = scales is not None and all(s >= 1 and float(s).is_integer() for s in scales)
        if scales is not None and scales.size and whole:
            return None
    why = f"nearest_mode={rounding} is ignored on the {grid} grid"
    return possible(why) if rounding.startswith("round_prefer") else certain(why)
