"""One entry for every kind of calibration data."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import onnx_ir as ir

from cannc.compiler.core.errors import UsageError
from cannc.quant.calibration import arrays, images, prompts
from cannc.quant.calibration.samples import (
    DEFAULT_SAMPLES,
    Calibration,
    Prepare,
    Sample,
    examined,
)

Data = str | Path | Iterable[Any]
"""A file, a folder, or an iterable of samples."""


def load_calibration(
    data: Data,
    model: ir.Model,
    prepare: Prepare,
    *,
    num_samples: int = DEFAULT_SAMPLES,
    tokenizer: str | Path | None = None,
    preprocessing: Mapping[str, Any] | str | Path | None = None,
) -> Calibration:
    """Read calibration data and check that all of it fits the model.

    Args:
        data: ``.npz``; a folder of .npz, .npy, .bin or pictures; ``.txt``, ``.jsonl`` or ``.json``
            with prompts; or an iterable of dictionaries (or arrays, for one input).
        model: The model that it is for.
        prepare: Checks and casts one sample's inputs.
        num_samples: At most so many samples are used, the first ones.
        tokenizer: For prompts: folder with tokenizer.json.
        preprocessing: For pictures: see `images.ImageSpec`; or a YAML or JSON file.

    Raises:
        CanncError: ``CAL001`` no such data or format; what the readers and `examined` raise.
    """
    if num_samples < 1:
        raise UsageError("CAL001", f"{num_samples} samples are too few", where="--num-samples")
    inputs = [value for value in model.graph.inputs if not value.is_initializer()]
    if isinstance(data, (str, Path)):
        samples = _from_path(
            Path(data),
            inputs,
            num_samples,
            Path(tokenizer) if tokenizer is not None else None,
            preprocessing,
        )
    else:
        samples = arrays.from_iterable(data, inputs, num_samples)
    return examined(samples, model, prepare, num_samples)


def _from_path(
    path: Path, inputs: list[ir.Value], limit: int, tokenizer: Path | None, preprocessing: Any
) -> list[Sample]:
    if path.is_dir():
        if any(file.suffix.lower() in images.SUFFIXES for file in path.iterdir()):
            return images.from_images(path, inputs, limit, preprocessing)
        return arrays.from_folder(path, inputs, limit)
    suffix = path.suffix.lower()
    if path.is_file() and suffix == ".npz":
        return arrays.from_npz(path, inputs, limit)
    if path.is_file() and suffix in prompts.SUFFIXES:
        return prompts.from_prompts(path, inputs, limit, tokenizer)
    raise UsageError(
        "CAL001",
        "no such calibration data" if not path.exists() else f"'{suffix}' is no calibration data",
        where=str(path),
        fix="give .npz, a folder of .npz, .npy, .bin or pictures, or prompts (.txt, .jsonl, .json)",
    )
