"""Pictures as samples, prepared as the model's training did it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from functools import partial
from pathlib import Path
from typing import Any, Literal

import numpy as np
import onnx_ir as ir
import yaml

from cannc.compiler.core.errors import MissingToolError, ModelError, UsageError, nearest
from cannc.compiler.core.runner import Array
from cannc.quant.calibration.arrays import natural
from cannc.quant.calibration.samples import Feeds, Sample

SUFFIXES = (".jpg", ".jpeg", ".png", ".bmp", ".webp")


@dataclass(frozen=True)
class ImageSpec:
    """What happens to a picture; the defaults are those of torchvision's ImageNet models.

    Attributes:
        size: Height and width of the result; (0, 0) takes them from the model.
        resize: ``shorter`` side to `shorter`, then the middle is cut out; ``exact`` stretches.
        shorter: Length of the shorter side; 0: a seventh more than the larger of `size`.
        scale: Factor of the bytes.
        mean: Subtracted per channel after scaling.
        std: Divided by per channel.
        channels: Order of the colours; ``L`` is grey.
        layout: ``NCHW`` or ``NHWC``.
    """

    size: tuple[int, int] = (0, 0)
    resize: Literal["shorter", "exact"] = "shorter"
    shorter: int = 0
    scale: float = 1 / 255
    mean: tuple[float, ...] = (0.485, 0.456, 0.406)
    std: tuple[float, ...] = (0.229, 0.224, 0.225)
    channels: Literal["RGB", "BGR", "L"] = "RGB"
    layout: Literal["NCHW", "NHWC"] = "NCHW"

    @classmethod
    def parse(cls, given: Mapping[str, Any] | str | Path | None) -> ImageSpec:
        """Read a mapping, or a YAML or JSON file with the attributes as keys.

        Raises:
            UsageError: ``CAL008`` unknown keys or values.
        """
        data: Any = given or {}
        if isinstance(given, (str, Path)):
            try:
                data = yaml.safe_load(Path(given).read_text(encoding="utf-8"))
            except (OSError, ValueError, yaml.YAMLError) as error:
                raise _bad_spec(str(given), str(error)) from error
        known = [field.name for field in fields(cls)]
        if not isinstance(data, Mapping):
            raise _bad_spec(str(given), f"keys are {', '.join(known)}")
        for key in data:
            if key not in known:
                raise _bad_spec(f"key '{key}'", f"keys are {', '.join(known)}{nearest(key, known)}")
        read: dict[str, Any] = {
            key: tuple(value) if isinstance(value, list) else value for key, value in data.items()
        }
        spec = cls(**read)
        spec._check()
        return spec

    def _check(self) -> None:
        choices = {
            "resize": ("shorter", "exact"),
            "channels": ("RGB", "BGR", "L"),
            "layout": ("NCHW", "NHWC"),
        }
        for key, allowed in choices.items():
            if getattr(self, key) not in allowed:
                raise _bad_spec(f"{key}: {getattr(self, key)}", f"use one of {allowed}")
        colours = 1 if self.channels == "L" else 3
        if {len(self.mean), len(self.std)} - {1, colours}:
            raise _bad_spec("mean, std", f"give 1 or {colours} numbers")


def from_images(folder: Path, inputs: Sequence[ir.Value], limit: int, given: Any) -> list[Sample]:
    """Return one sample per picture, in natural order; a fixed batch gets as many at once.

    Raises:
        UsageError: ``CAL006`` the model has not one 4-D input, ``CAL008`` a wrong specification.
        MissingToolError: ``CAL010`` Pillow is not installed.
    """
    spec = ImageSpec.parse(given)
    if len(inputs) != 1 or inputs[0].shape is None or len(inputs[0].shape) != 4:
        raise UsageError(
            "CAL006",
            "pictures can only fill a model with one 4-D input",
            where=str(folder),
            fix="give .npz files, or an iterator that yields all inputs",
        )
    (value,) = inputs
    try:
        import PIL.Image  # noqa: F401
    except ImportError as error:
        raise MissingToolError(
            "CAL010", "the package pillow is not installed", fix="pip install pillow"
        ) from error
    files = natural(p for p in folder.iterdir() if p.suffix.lower() in SUFFIXES)[:limit]
    batch = value.shape[0] if value.shape is not None else None
    step = batch if isinstance(batch, int) else 1
    groups = [files[i : i + step] for i in range(0, len(files), step)]
    size = _size(spec, value)
    return [Sample(str(g[0]), partial(_feeds, g, step, spec, size, value)) for g in groups]


def _size(spec: ImageSpec, value: ir.Value) -> tuple[int, int]:
    if all(spec.size):
        return spec.size
    assert value.shape is not None
    axes = (2, 3) if spec.layout == "NCHW" else (1, 2)
    height, width = (value.shape[axis] for axis in axes)
    if isinstance(height, int) and isinstance(width, int):
        return height, width
    raise _bad_spec("size", "the model's height and width are dynamic: give size: [height, width]")


def _feeds(
    files: Sequence[Path], count: int, spec: ImageSpec, size: tuple[int, int], value: ir.Value
) -> Feeds:
    pictures = [_picture(path, spec, size) for path in files]
    stacked = np.stack([pictures[i % len(pictures)] for i in range(count)])
    assert value.dtype is not None
    if value.dtype == ir.DataType.UINT8:
        stacked = stacked.clip(0, 255)
    return {value.name or "": stacked.astype(value.dtype.numpy())}


def _picture(path: Path, spec: ImageSpec, size: tuple[int, int]) -> Array:
    from PIL import Image

    height, width = size
    try:
        with Image.open(path) as opened:
            image = opened.convert("L" if spec.channels == "L" else "RGB")
    except OSError as error:
        raise ModelError(
            "CAL005", "the picture cannot be read", where=str(path), why=str(error)
        ) from error
    if spec.resize == "exact":
        image = image.resize((width, height), Image.Resampling.BILINEAR)
    else:
        shorter = max(spec.shorter or round(max(size) * 8 / 7), *size)
        factor = shorter / min(image.size)
        w, h = (max(round(side * factor), shorter) for side in image.size)
        image = image.resize((w, h), Image.Resampling.BILINEAR)
        left, top = (w - width) // 2, (h - height) // 2
        image = image.crop((left, top, left + width, top + height))
    array = np.asarray(image, np.float32).reshape(height, width, -1)
    if spec.channels == "BGR":
        array = array[..., ::-1]
    mean, std = (np.asarray(numbers, np.float32) for numbers in (spec.mean, spec.std))
    array = (array * np.float32(spec.scale) - mean) / std
    return array.transpose(2, 0, 1) if spec.layout == "NCHW" else array


def _bad_spec(what: str, why: str) -> UsageError:
    return UsageError("CAL008", f"wrong preprocessing: {what}", where="--images", why=why)
