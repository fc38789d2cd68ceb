"""A LLaMA of any size with random float16 weights in external data, written one weight at a time.

Shapes are those of the published models; `layers` scales the size. The graph is a whole prefill
(RMS norm, rotary embedding, causal attention, SwiGLU) in plain ONNX, so it also runs.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt
import onnx
import onnx.parser
from onnx import TensorProto

_POOL = 1 << 24
_BLOCK = 1 << 22
_ALIGNMENT = 4096


@dataclass(frozen=True)
class Shape:
    """Sizes of one LLaMA; the defaults are those of the 7B model."""

    layers: int = 32
    hidden: int = 4096
    heads: int = 32
    kv_heads: int = 32
    intermediate: int = 11008
    vocabulary: int = 32000
    positions: int = 2048

    @property
    def head(self) -> int:
        """Width of one head."""
        return self.hidden // self.heads

    @property
    def kv_width(self) -> int:
        """Width of all keys of one position."""
        return self.head * self.kv_heads


SHAPES = {
    "tiny": Shape(2, 64, 4, 2, 172, 512, 64),
    "quarter": Shape(8, 1536, 12, 12, 4096, 8000, 128),
    "1b": Shape(16, 2048, 32, 8, 8192, 32000),
    "7b": Shape(),
}
"""By name; ``1b`` has the layers of LLaMA 3.2 with the vocabulary of LLaMA 2."""

_HEADER = """<ir_version: 10, opset_import: ["" : 18]>
llama (int64[B, S] input_ids) => (float16[B, S, {vocabulary}] logits) {{
    minus_one = Constant <value = int64[1] {{-1}}> ()
    zero = Constant <value = int64[1] {{0}}> ()
    one = Constant <value = int64[1] {{1}}> ()
    eps = Constant <value = float {{1e-5}}> ()
    heads = Constant <value = int64[4] {{0, 0, {heads}, {head}}}> ()
    kv_heads = Constant <value = int64[4] {{0, 0, {kv_heads}, {head}}}> ()
    joined = Constant <value = int64[3] {{0, 0, {hidden}}}> ()
    start = Constant <value = int64 {{0}}> ()
    step = Constant <value = int64 {{1}}> ()
    length = Shape <start = 1, end = 2> (input_ids)
    count = Squeeze (length, zero)
    order = Range (start, count, step)
    row = Unsqueeze (order, one)
    is_later = Greater (order, row)
    mask = Where (is_later, lowest, none)
    cos = Slice (cos_table, zero, length, zero)
    sin = Slice (sin_table, zero, length, zero)
    x0 = Gather (embed, input_ids)
"""

_NORM = """
    {p}f = Cast <to = 1> ({x})
    {p}s = Mul ({p}f, {p}f)
    {p}m = ReduceMean ({p}s, minus_one)
    {p}e = Add ({p}m, eps)
    {p}r = Sqrt ({p}e)
    {p}d = Div ({p}f, {p}r)
    {p}c = Cast <to = 10> ({p}d)
    {p} = Mul ({p}c, {p}_weight)
"""

_HEADS = """
    {p}_flat = MatMul ({x}, {p}_weight)
    {p}_split = Reshape ({p}_flat, {count})
    {p} = Transpose <perm = [0, 2, 1, 3]> ({p}_split)
"""

_ROTARY = """
    {p}a, {p}b = Split <axis = -1, num_outputs = 2> ({p})
    {p}n = Neg ({p}b)
    {p}t = Concat <axis = -1> ({p}n, {p}a)
    {p}x = Mul ({p}, cos)
    {p}y = Mul ({p}t, sin)
    {p}_turned = Add ({p}x, {p}y)
"""

_ATTENTION = """
    {p}columns = Transpose <perm = [0, 1, 3, 2]> ({k})
    {p}scores = MatMul ({p}q_turned, {p}columns)
    {p}scaled = Mul ({p}scores, root)
    {p}masked = Add ({p}scaled, mask)
    {p}shares = Softmax <axis = -1> ({p}masked)
    {p}mixed = MatMul ({p}shares, {v})
    {p}back = Transpose <perm = [0, 2, 1, 3]> ({p}mixed)
    {p}flat = Reshape ({p}back, joined)
    {p}o = MatMul ({p}flat, {p}o_weight)
    {p}after = Add ({x}, {p}o)
"""

_REPEAT = """
    {p}_wide = Unsqueeze ({x}, two)
    {p}_copies = Expand ({p}_wide, copies)
    {p} = Reshape ({p}_copies, all_heads)
"""

_FEED_FORWARD = """
    {p}gate = MatMul ({p}n2, {p}gate_weight)
    {p}sig = Sigmoid ({p}gate)
    {p}silu = Mul ({p}gate, {p}sig)
    {p}up = MatMul ({p}n2, {p}up_weight)
    {p}act = Mul ({p}silu, {p}up)
    {p}down = MatMul ({p}act, {p}down_weight)
    {out} = Add ({p}after, {p}down)
"""


def write_llama(path: Path, shape: Shape) -> int:
    """Write the model and ``path.data``; return the bytes of all weights."""
    model = onnx.parser.parse_model(_text(shape))
    offset = 0
    source = _Source()
    with path.with_suffix(".data").open("wb") as stream:
        for name, dims in _weights(shape):
            size = int(np.prod(dims))
            for block in source.blocks(name, size, dims):
                stream.write(block.tobytes())
            model.graph.initializer.append(_external(name, dims, stream.name, offset, 2 * size))
            stream.write(bytes(-stream.tell() % _ALIGNMENT))
            offset = stream.tell()
    model.graph.initializer.extend(_tables(shape))
    for index, node in enumerate(model.graph.node):
        node.name = f"{node.op_type}_{index}"
    onnx.save(model, path)
    return sum(2 * int(np.prod(dims)) for _, dims in _weights(shape))


def _text(shape: Shape) -> str:
    values = {**shape.__dict__, "head": shape.head}
    text = _HEADER.format(**values)
    if shape.kv_heads != shape.heads:
        copies = shape.heads // shape.kv_heads
        text += "    two = Constant <value = int64[1] {2}> ()\n"
        text += f"    copies = Constant <value = int64[5] {{1, 1, {copies}, 1, 1}}> ()\n"
        dims = f"0, {shape.heads}, -1, {shape.head}"
        text += f"    all_heads = Constant <value = int64[4] {{{dims}}}> ()\n"
    for index in range(shape.layers):
        text += _layer(shape, f"l{index}_", f"x{index}", f"x{index + 1}")
    text += _NORM.format(p="final", x=f"x{shape.layers}")
    return text + "    logits = MatMul (final, lm_head)\n}"


def _layer(shape: Shape, p: str, x: str, out: str) -> str:
    text = _NORM.format(p=f"{p}n1", x=x)
    for name, count in (("q", "heads"), ("k", "kv_heads"), ("v", "kv_heads")):
        text += _HEADS.format(p=p + name, x=f"{p}n1", count=count)
    text += _ROTARY.format(p=f"{p}q") + _ROTARY.format(p=f"{p}k")
    k, v = f"{p}k_turned", f"{p}v"
    if shape.kv_heads != shape.heads:
        text += _REPEAT.format(p=f"{p}ks", x=k) + _REPEAT.format(p=f"{p}vs", x=v)
        k, v = f"{p}ks", f"{p}vs"
    text += _ATTENTION.format(p=p, x=x, k=k, v=v)
    return text + _NORM.format(p=f"{p}n2", x=f"{p}after") + _FEED_FORWARD.format(p=p, out=out)


def _weights(shape: Shape) -> Iterator[tuple[str, tuple[int, ...]]]:
    """Yield name and dims of every weight, matrices as (in, out), in the order of the file."""
    hidden, wide = shape.hidden, shape.intermediate
    yield "embed", (shape.vocabulary, hidden)
    for index in range(shape.layers):
        p = f"l{index}_"
        yield f"{p}n1_weight", (hidden,)
        yield f"{p}q_weight", (hidden, hidden)
        yield f"{p}k_weight", (hidden, shape.kv_width)
        yield f"{p}v_weight", (hidden, shape.kv_width)
        yield f"{p}o_weight", (hidden, hidden)
        yield f"{p}n2_weight", (hidden,)
        yield f"{p}gate_weight", (hidden, wide)
        yield f"{p}up_weight", (hidden, wide)
        yield f"{p}down_weight", (wide, hidden)
    yield "final_weight", (hidden,)
    yield "lm_head", (hidden, shape.vocabulary)


class _Source:
    """Normal numbers at memory speed: pieces of one pool, taken at random places."""

    def __init__(self) -> None:
        self._random = np.random.default_rng(0)
        self._pool = self._random.standard_normal(_POOL + _BLOCK, np.float32)

    def blocks(
        self, name: str, size: int, dims: tuple[int, ...]
    ) -> Iterator[npt.NDArray[np.float16]]:
        if len(dims) == 1:
            yield np.ones(size, np.float16)
            return
        factor = np.float32(1.0 if name == "embed" else dims[0] ** -0.5)
        for first in range(0, size, _BLOCK):
            start = int(self._random.integers(_POOL))
            piece = self._pool[start : start + min(_BLOCK, size - first)]
            yield (piece * factor).astype(np.float16)


def _external(name: str, dims: tuple[int, ...], file: str, offset: int, length: int) -> TensorProto:
    tensor = TensorProto(
        name=name,
        data_type=TensorProto.FLOAT16,
        dims=dims,
        data_location=TensorProto.EXTERNAL,
    )
    entries = {"location": Path(file).name, "offset": offset, "length": length}
    for key, value in entries.items():
        tensor.external_data.add(key=key, value=str(value))
    return tensor


def _tables(shape: Shape) -> Iterator[TensorProto]:
    """Yield cosines and sines of the rotary embedding (positions, head), and float16 numbers."""
    frequency = 10000.0 ** (-np.arange(0, shape.head, 2) / shape.head)
    angle = np.outer(np.arange(shape.positions), np.tile(frequency, 2))
    for name, table in (("cos_table", np.cos(angle)), ("sin_table", np.sin(angle))):
        yield onnx.numpy_helper.from_array(table.astype(np.float16), name)
    for name, number in (("lowest", -65504.0), ("none", 0.0), ("root", shape.head**-0.5)):
        yield onnx.numpy_helper.from_array(np.array(number, np.float16), name)
