"""Hugging Face model folders: the class that the config names, weights from safetensors only."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from cannc.compiler.core.errors import MissingToolError, ModelError, UsageError
from cannc.compiler.core.runner import Array
from cannc.compiler.frontend.pytorch import import_torch
from cannc.compiler.frontend.source import Example

_TEXTS = (
    "The compiler turns a model into an artifact that the device can run.",
    "Each layer is compared with the original one.",
)


def load_folder(folder: Path, inputs: Mapping[str, Array] | None = None) -> Example:
    """Return the model in a folder, ready to export.

    Args:
        folder: Holds ``config.json`` and ``*.safetensors`` (and a tokenizer).
        inputs: Real inputs by name; without them two sentences go through the tokenizer.

    Raises:
        ModelError: ``HF001`` not such a folder, ``HF002`` no safetensors weights.
        UsageError: ``HF003`` no inputs given and no tokenizer to make some.
        MissingToolError: ``DEP002`` transformers is not installed.
    """
    torch = import_torch()
    transformers = _import_transformers()
    config_path = folder / "config.json"
    if not config_path.is_file():
        raise ModelError(
            "HF001",
            "not a Hugging Face model folder",
            where=str(folder),
            why="it has no config.json",
            fix="give the folder that from_pretrained would take",
        )
    if not any(folder.glob("*.safetensors")):
        raise ModelError(
            "HF002",
            "no weights in safetensors format",
            where=str(folder),
            why="other formats can hold code, which is never run from a model file",
            fix="save it again: model.save_pretrained(folder, safe_serialization=True)",
        )
    architectures = json.loads(config_path.read_text()).get("architectures") or ["AutoModel"]
    cls = getattr(transformers, architectures[0], transformers.AutoModel)
    model = cls.from_pretrained(
        folder,
        use_safetensors=True,
        local_files_only=True,
        trust_remote_code=False,
        attn_implementation="eager",
        dtype=torch.float32,
    )
    tensors = {name: torch.as_tensor(array) for name, array in (inputs or {}).items()}
    tensors = tensors or _tokenized(transformers, folder)
    # A key/value cache among the outputs is no tensor; decoding with one is another graph.
    model.config.use_cache = False
    return Example(model, tensors, _text_axes(tensors))


def _tokenized(transformers: Any, folder: Path) -> dict[str, Any]:
    try:
        tokenizer = transformers.AutoTokenizer.from_pretrained(folder, local_files_only=True)
    except (OSError, ValueError, KeyError) as error:
        raise UsageError(
            "HF003",
            "no example inputs for this model",
            where=str(folder),
            why=f"there is no tokenizer in the folder: {error}",
            fix="give real inputs: --inputs FILE.npz",
        ) from error
    if tokenizer.pad_token is None:
        tokenizer.pad_token = tokenizer.eos_token
    return dict(tokenizer(list(_TEXTS), padding=True, return_tensors="pt"))


def _text_axes(tensors: Mapping[str, Any]) -> dict[str, dict[int, str]]:
    """Token inputs are dynamic in batch and sequence; anything else is dynamic in its batch."""
    return {
        name: {0: "batch", 1: "sequence"} if tensor.dim() == 2 else {0: "batch"}
        for name, tensor in tensors.items()
        if tensor.dim() >= 1
    }


def _import_transformers() -> Any:
    try:
        import transformers
    except ImportError as error:
        raise MissingToolError(
            "DEP002",
            "transformers is not installed",
            why="hf: sources are loaded with it",
            fix="pip install 'cannc[torch,hf]'",
        ) from error
    transformers.utils.logging.disable_progress_bar()  # type: ignore[no-untyped-call]
    return transformers
