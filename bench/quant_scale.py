"""Quantizes a LLaMA of any size without data; prints wall time against a copy, and peak RSS.

    python bench/quant_scale.py --shape 7b [--layers 8] --folder models/scale

Weights are random float16 in external data (`llama_shape.py`). Copying the data file and
quantizing take turns, each in a process of its own, both until the bytes are on the disk. The peak
is VmHWM of the quantizing process, in which mapped pages of the model count. Then the first rows
of every quantized weight are compared with their source.
"""

from __future__ import annotations

import argparse
import statistics
import subprocess
import sys
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

import cannc
from cannc.compiler.core.onnx_io import EXTERNAL_ABOVE_BYTES
from cannc.compiler.core.tensors import released
from cannc.quant.report import QuantReport

sys.path.insert(0, str(Path(__file__).parent.parent))
from bench.llama_shape import SHAPES, write_llama

_CHECKED_ROWS = 64

_QUANTIZE = """
import sys, time
start = time.perf_counter()
import cannc
from cannc.compiler.core import onnx_io
source, out, algo, onnx_io.EXTERNAL_ABOVE_BYTES = *sys.argv[1:4], int(sys.argv[4])
cannc.quantize(source, soc="Ascend910B4", algo=algo).save(out)
seconds = time.perf_counter() - start
peak = [line for line in open("/proc/self/status") if line.startswith("VmHWM")]
print(seconds, peak[0].split()[1])
"""

_COPY = """
import os, shutil, sys, time
start = time.perf_counter()
with open(sys.argv[1], "rb") as source, open(sys.argv[2], "wb") as out:
    shutil.copyfileobj(source, out, 1 << 22)
    out.flush()
    os.fsync(out.fileno())
print(time.perf_counter() - start, 0)
"""


@dataclass(frozen=True)
class Result:
    """What one model took.

    Attributes:
        source_bytes: Size of its data file.
        result_bytes: Size of the quantized model with its data.
        copy_s: Seconds for a copy of the data file, median.
        quantize_s: Seconds for quantization, imports and writing included, median.
        peak_bytes: Largest VmHWM of a quantizing process.
        weights: Number of quantized weights.
        off: How many of them differ from their source by more than half a step.
    """

    source_bytes: int
    result_bytes: int
    copy_s: float
    quantize_s: float
    peak_bytes: int
    weights: int
    off: int


def measure(
    path: Path, algo: str = "minmax", runs: int = 1, external_above: int = EXTERNAL_ABOVE_BYTES
) -> Result:
    """Copy and quantize a model in turns, each in a process of its own.

    Args:
        path: The model, with its data file beside it.
        algo: Algorithm of `cannc.quantize` that needs no data.
        runs: How often.
        external_above: Weights of a result that is larger are streamed into a data file; a smaller
            result is one protobuf message, built in memory.
    """
    data, copy = path.with_suffix(".data"), path.with_name("copy.data")
    out = path.with_name("quantized.onnx")
    copies, times, peak = [], [], 0
    for _ in range(runs):
        copies.append(_child(_COPY, data, copy)[0])
        copy.unlink()
        seconds, kilobytes = _child(_QUANTIZE, path, out, algo, external_above)
        times.append(seconds)
        peak = max(peak, int(kilobytes) * 1024)
    weights, off = compare(path, out)
    return Result(
        data.stat().st_size,
        sum(file.stat().st_size for file in path.parent.glob(f"{out.name}*")),
        statistics.median(copies),
        statistics.median(times),
        peak,
        weights,
        off,
    )


def compare(path: Path, out: Path) -> tuple[int, int]:
    """Return how many weights were quantized, and how many are off by more than half a step."""
    before = cannc.load(path).model.graph.initializers
    unit = cannc.load(out)
    scales = {node.inputs[1].name: node.inputs[2] for node in unit.model.graph if _is_fused(node)}
    report = QuantReport.of(unit)
    assert report is not None
    off = 0
    for row in report.quantized:
        wanted = _rows(before[row.weight].const_value)
        levels = _rows(unit.model.graph.initializers[row.stored].const_value)
        scale = scales[row.stored].const_value.numpy().astype(np.float32)
        off += bool((np.abs(wanted - levels * scale) > 0.5001 * scale).any())
    return len(report.quantized), off


def _is_fused(node: Any) -> bool:
    return bool(node.op_type == "WeightQuantBatchMatmulV2")


def _rows(tensor: Any) -> np.ndarray[Any, np.dtype[np.float32]]:
    with released(tensor) as array:
        return array[:_CHECKED_ROWS].astype(np.float32)


def _child(code: str, *arguments: object) -> tuple[float, float]:
    """Run Python code in another process; return the two numbers that it prints."""
    command = [sys.executable, "-c", code, *map(str, arguments)]
    done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)
    first, second = done.stdout.split()
    return float(first), float(second)


def main() -> None:
    """Make the model if it is not there, measure, print one Markdown row."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--shape", choices=SHAPES, default="1b")
    parser.add_argument("--layers", type=int, help="number of layers, instead of the shape's")
    parser.add_argument("--folder", type=Path, default=Path("models/scale"))
    parser.add_argument("--algo", default="minmax")
    parser.add_argument("--runs", type=int, default=1)
    asked = parser.parse_args()
    shape = SHAPES[asked.shape]
    shape = replace(shape, layers=asked.layers or shape.layers)
    path = asked.folder / f"{asked.shape}-{shape.layers}" / "llama.onnx"
    if not path.is_file():
        path.parent.mkdir(parents=True, exist_ok=True)
        write_llama(path, shape)
    found = measure(path, asked.algo, asked.runs)
    print("| shape | layers | weights, GB | result, GB | copy, s | quantize, s ", end="")
    print("| peak RSS, MB | weights off by over half a step |\n|---|---|---|---|---|---|---|---|")
    sizes = f"{found.source_bytes / 1e9:.2f} | {found.result_bytes / 1e9:.2f}"
    times = f"{found.copy_s:.1f} | {found.quantize_s:.1f}"
    print(f"| {asked.shape} | {shape.layers} | {sizes} | {times} | ", end="")
    print(f"{found.peak_bytes / 2**20:.0f} | {found.off} of {found.weights} |")


if __name__ == "__main__":
    main()
