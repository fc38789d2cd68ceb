"""Prompts as samples: texts, made into tokens by the tokenizer of a Hugging Face folder."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import onnx_ir as ir

from cannc.compiler.core.errors import MissingToolError, ModelError, UsageError
from cannc.quant.calibration.samples import Feeds, Sample

SUFFIXES = (".jsonl", ".json", ".txt")
MAX_TOKENS = 512
_TEXT_KEYS = ("text", "prompt", "content", "input")
_FILLED = ("input_ids", "attention_mask", "token_type_ids", "position_ids")


def from_prompts(
    path: Path, inputs: Sequence[ir.Value], limit: int, tokenizer: Path | None
) -> list[Sample]:
    """Return one sample per prompt.

    A model with a fixed length gets prompts cut to it, and filled up with zeros behind an
    attention mask where it has one; else prompts are joined until the length is reached.

    Args:
        path: .txt (a prompt per line), .jsonl, or .json (a list); entries are texts, or objects
            with the key ``text``, ``prompt``, ``content`` or ``input``.
        inputs: Inputs of the model: ``input_ids``, and further ones that follow from it.
        limit: Largest number of samples.
        tokenizer: Folder with tokenizer.json, or the file.

    Raises:
        UsageError: ``CAL004`` no tokenizer, ``CAL006`` inputs that do not follow from a text.
        ModelError: ``CAL005`` the file holds no texts.
    """
    names = [value.name or "" for value in inputs]
    others = [name for name in names if name not in _FILLED]
    if others or "input_ids" not in names:
        raise UsageError(
            "CAL006",
            f"prompts cannot fill the inputs {others or names}",
            where=str(path),
            why=f"from a text follow only {', '.join(_FILLED)}",
            fix="give .npz files, or an iterator that yields all inputs",
        )
    encode = _Encoder(tokenizer)
    (ids,) = (value for value in inputs if value.name == "input_ids")
    rows, length = _fixed(ids)
    tokens = ((where, encode(text)) for where, text in _texts(path))
    cut: Iterable[tuple[str, np.ndarray[Any, Any]]]
    if length is None:
        cut = ((where, np.array(found[:MAX_TOKENS])) for where, found in tokens if found)
    elif "attention_mask" in names:
        cut = ((where, np.array(found[:length])) for where, found in tokens if found)
    else:
        cut = _joined(tokens, length)
    count = limit if rows is None else limit * rows
    lines = list(islice(cut, count))
    step = rows or 1
    groups = [lines[i : i + step] for i in range(0, len(lines), step)]
    return [
        Sample(group[0][0], partial(_feeds, [row for _, row in group], rows, length, names))
        for group in groups
    ]


def _fixed(ids: ir.Value) -> tuple[int | None, int | None]:
    """Return batch and length where the model fixes them."""
    if ids.shape is None or len(ids.shape) != 2:
        return None, None
    batch, length = (dim if isinstance(dim, int) else None for dim in ids.shape)
    return batch, length


def _joined(tokens: Iterator[tuple[str, list[int]]], length: int) -> Iterator[tuple[str, Any]]:
    held: list[int] = []
    for where, found in tokens:
        held += found
        while len(held) >= length:
            yield where, np.array(held[:length])
            held = held[length:]


def _feeds(
    rows: Sequence[Any], batch: int | None, length: int | None, names: Sequence[str]
) -> Feeds:
    rows = [rows[i % len(rows)] for i in range(batch or len(rows))]
    width = length or max(len(row) for row in rows)
    ids = np.zeros((len(rows), width), np.int64)
    mask = np.zeros_like(ids)
    for index, row in enumerate(rows):
        ids[index, : len(row)] = row
        mask[index, : len(row)] = 1
    positions = np.broadcast_to(np.arange(width), ids.shape)
    every = {
        "input_ids": ids,
        "attention_mask": mask,
        "token_type_ids": np.zeros_like(ids),
        "position_ids": positions,
    }
    return {name: every[name] for name in names}


class _Encoder:
    """Text -> token ids, without running any code of the model's folder."""

    def __init__(self, folder: Path | None) -> None:
        if folder is None:
            raise UsageError(
                "CAL004",
                "prompts need a tokenizer",
                where="--calib",
                fix="--tokenizer FOLDER, a Hugging Face folder with tokenizer.json",
            )
        file = folder / "tokenizer.json" if folder.is_dir() else folder
        if not file.is_file():
            raise UsageError(
                "CAL004",
                "no tokenizer.json",
                where=str(folder),
                fix="save it with AutoTokenizer.from_pretrained(...).save_pretrained(FOLDER)",
            )
        try:
            from tokenizers import Tokenizer
        except ImportError as error:
            raise MissingToolError(
                "CAL010", "the package tokenizers is not installed", fix="pip install cannc[hf]"
            ) from error
        try:
            self._tokenizer = Tokenizer.from_file(str(file))
        except Exception as error:  # tokenizers raises plain Exception
            raise ModelError(
                "CAL005", "the tokenizer cannot be read", where=str(file), why=str(error)
            ) from error

    def __call__(self, text: str) -> list[int]:
        """Return the ids with the special tokens that the tokenizer adds."""
        ids: list[int] = self._tokenizer.encode(text).ids
        return ids


def _texts(path: Path) -> Iterator[tuple[str, str]]:
    try:
        content = path.read_text(encoding="utf-8")
        if path.suffix == ".json":
            entries: list[tuple[int, Any]] = list(enumerate(json.loads(content), 1))
        else:
            numbered = [(n, line) for n, line in enumerate(content.splitlines(), 1) if line.strip()]
            is_json = path.suffix == ".jsonl"
            entries = [(n, json.loads(line) if is_json else line) for n, line in numbered]
    except (ValueError, TypeError) as error:
        raise _unreadable(path, str(error)) from error
    for number, entry in entries:
        text = entry
        if isinstance(entry, dict):
            text = next((entry[key] for key in _TEXT_KEYS if key in entry), None)
        if not isinstance(text, str):
            raise _unreadable(path, f"entry {number} has no text under any of {_TEXT_KEYS}")
        yield f"{path} entry {number}", text


def _unreadable(path: Path, why: str) -> ModelError:
    return ModelError(
        "CAL005",
        "the prompts cannot be read",
        where=str(path),
        why=why,
        fix='write one text per line (.txt), or {"text": ...} per line (.jsonl)',
    )
