"""Compiles a synthetic model of any size with the host backend; prints wall time and peak RSS.

    python bench/compile_large.py --gigabytes 12 --folder models/large

The model is a chain of float16 MatMuls (8192 x 8192, 134 MB each) with random weights in external
data. Compiling runs in a process of its own, so the peak is that of `cannc.compile` alone. Then
every weight of the artifact is compared with its source, one at a time.
"""

from __future__ import annotations

import argparse
import resource
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto, helper

SIZE = 8192
LAYER_BYTES = SIZE * SIZE * 2


def make_model(path: Path, layers: int) -> None:
    """Write the model; its weights are written one at a time."""
    data = path.with_suffix(".data")
    rng = np.random.default_rng(0)
    initializers, nodes = [], []
    with data.open("wb") as stream:
        for index in range(layers):
            # A different block for each layer: equal weights would be stored once.
            block = rng.integers(0, 2**15, (SIZE, SIZE), dtype=np.uint16)
            stream.write(block.tobytes())
            tensor = TensorProto(
                name=f"w{index}",
                data_type=TensorProto.FLOAT16,
                dims=[SIZE, SIZE],
                data_location=TensorProto.EXTERNAL,
            )
            entries = {"location": data.name, "offset": index * LAYER_BYTES, "length": LAYER_BYTES}
            for key, value in entries.items():
                tensor.external_data.add(key=key, value=str(value))
            initializers.append(tensor)
            source = "x" if index == 0 else f"h{index - 1}"
            nodes.append(helper.make_node("MatMul", [source, f"w{index}"], [f"h{index}"]))
    shape = ["N", SIZE]
    graph = helper.make_graph(
        nodes,
        "large",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT16, shape)],
        [helper.make_tensor_value_info(f"h{layers - 1}", TensorProto.FLOAT16, shape)],
        initializers,
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=10)
    onnx.save(model, path)


COMPILE = """
import sys, cannc
cannc.compile(sys.argv[1], sys.argv[2], backend="host", soc="Ascend910B4")
"""


def compile_in_child(path: Path, out: Path) -> tuple[float, float]:
    """Return wall seconds and peak RSS in MB of compiling in another process."""
    start = time.perf_counter()
    subprocess.run([sys.executable, "-c", COMPILE, str(path), str(out)], check=True)
    seconds = time.perf_counter() - start
    return seconds, resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss / 1024


def count_different(path: Path, artifact: Path) -> int:
    """Return how many weights of the artifact differ from the model's."""
    from cannc.compiler.core.tensors import released
    from cannc.compiler.core.unit import load
    from cannc.compiler.om.reader import OmFile

    before = load(path).model.graph.initializers
    after = OmFile.open(artifact).to_model().graph.initializers
    different = len(before.keys() ^ after.keys())
    for name in before.keys() & after.keys():
        want, found = before[name].const_value, after[name].const_value
        if want is None or found is None:
            different += 1
            continue
        with released(want) as a, released(found) as b:
            different += not np.array_equal(a.view(np.uint16), b.view(np.uint16))
    return different


def main() -> None:
    """Make, compile, compare, print one Markdown row."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--gigabytes", type=float, default=12)
    parser.add_argument("--folder", type=Path, default=Path("models/large"))
    options = parser.parse_args()
    options.folder.mkdir(parents=True, exist_ok=True)
    layers = max(1, round(options.gigabytes * 1e9 / LAYER_BYTES))
    path, artifact = options.folder / "large.onnx", options.folder / "large.om"
    make_model(path, layers)
    seconds, peak = compile_in_child(path, artifact)
    different = count_different(path, artifact)
    print("| weights, GB | artifact, GB | wall, s | peak RSS, MB | weights that differ |")
    print("|---|---|---|---|---|")
    weights, size = layers * LAYER_BYTES / 1e9, artifact.stat().st_size / 1e9
    print(f"| {weights:.1f} | {size:.1f} | {seconds:.0f} | {peak:.0f} | {different} of {layers} |")


if __name__ == "__main__":
    main()
