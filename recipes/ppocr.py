"""Text recognition: PP-OCRv4 with real weights on rendered lines of text, at several widths."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

import numpy as np
import numpy.typing as npt
import onnx
from PIL import Image, ImageDraw, ImageFont

Array = npt.NDArray[np.generic]
Run = Callable[[Mapping[str, Array]], Mapping[str, Array]]

MODEL = Path("rapidocr_onnxruntime") / "models" / "ch_PP-OCRv4_rec_infer.onnx"
HEIGHT = 48
LINES = {
    160: "Hello 2026",
    320: "Deploy on Ascend NPU",
    640: "The quick brown fox jumps over 13 lazy dogs",
}


def line_image(text: str, width: int) -> Array:
    """Render one line of black text; return (1, 3, 48, width) float32 in [-1, 1]."""
    image = Image.new("RGB", (width, HEIGHT), "white")
    draw = ImageDraw.Draw(image)
    size = 30
    font = ImageFont.load_default(size)
    while draw.textlength(text, font=font) > width - 12:
        size -= 1
        font = ImageFont.load_default(size)
    draw.text((6, HEIGHT / 2), text, fill="black", font=font, anchor="lm")
    pixels = np.asarray(image, np.float32).transpose(2, 0, 1)[None]
    return np.ascontiguousarray((pixels / 255.0 - 0.5) / 0.5)


def inputs() -> dict[str, Array]:
    """Return the example input that layers are compared on."""
    return {"x": line_image(LINES[320], 320)}


def decode(scores: Array, characters: list[str]) -> str:
    """Greedy CTC: best class per step, repeats merged, blanks (class 0) dropped."""
    best = np.asarray(scores)[0].argmax(axis=-1)
    kept = [int(c) for i, c in enumerate(best) if c and (i == 0 or c != best[i - 1])]
    return "".join(characters[index] for index in kept)


def read_characters(model: Path) -> list[str]:
    """Return the classes of the model, which it carries in its own metadata."""
    proto = onnx.load(model, load_external_data=False)
    table = {entry.key: entry.value for entry in proto.metadata_props}["character"]
    return ["", *table.splitlines(), " "]


def evaluate(original: Run, artifact: Run, package: Path) -> dict[str, float]:
    """Return the share of lines that original and artifact both read as they were rendered."""
    characters = read_characters(package / MODEL)
    right = 0
    for width, text in LINES.items():
        feeds = {"x": line_image(text, width)}
        before, after = (
            decode(next(iter(run(feeds).values())), characters) for run in (original, artifact)
        )
        # The margins of a line may be read as spaces; they must still be the same ones.
        right += before == after and after.strip() == text
    return {"lines_read_right": right / len(LINES)}
