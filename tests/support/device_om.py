"""Files as a compiler for the device writes them, put together from the format's description.

No kernel in them is one: they are for tests of reading only.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tests.support.om_files import assembled

from cannc.compiler.om.attributes import put, put_list
from cannc.compiler.om.header import HEADER_BYTES, VERSION_1, Header
from cannc.compiler.om.inout_info import InOutInfo, TensorInfo
from cannc.compiler.om.kernels import ITEM_MAGIC
from cannc.compiler.om.partitions import PartitionType as P
from cannc.compiler.om.proto import ModelDef, ModelTaskDef

WEIGHT_BYTES = 4096
COMMAND = "atc --model=net.onnx --framework=5 --output=net --soc_version=Ascend310B4"

FLOAT16 = 2


def describe(desc: Any, dims: Sequence[int], layout: str = "ND", dtype: int = FLOAT16) -> Any:
    """Fill a tensor descriptor."""
    desc.dtype, desc.layout = dtype, layout
    desc.shape.SetInParent()
    desc.shape.dim.extend(dims)
    return desc


def add_const(graph: Any, name: str, offset: int, dims: Sequence[int], layout: str) -> Any:
    """Append a Const of float16 numbers."""
    op = graph.op.add(name=name, type="Const")
    tensor = op.attr["value"].t
    describe(tensor.desc, dims, layout)
    tensor.desc.data_offset = offset
    tensor.desc.weight_size = 2 * _product(dims)
    describe(op.output_desc.add(), dims, layout)
    return op


def _product(dims: Sequence[int]) -> int:
    count = 1
    for dim in dims:
        count *= dim
    return count


def definition(name: str = "net", *, compiled: bool = True) -> Any:
    """x -> Conv2D with a shared weight and a control edge -> Relu -> out."""
    model = ModelDef(name=name, version=2)
    graph = model.graph.add(name=f"{name}_0")
    data = graph.op.add(name="x", type="Data", input=[""])
    put(data.attr, "index", 0)
    describe(data.input_desc.add(), (1, 16, 4, 4), "NCHW")
    describe(data.output_desc.add(), (1, 1, 4, 4, 16), "NC1HWC0")
    add_const(graph, "w1", 512, (1, 1, 16, 16), "FRACTAL_Z")
    add_const(graph, "w2", 512, (1, 1, 16, 16), "FRACTAL_Z")
    add_const(graph, "bias", 1024, (16,), "ND")
    graph.op.add(name="wait", type="Recv")
    conv = graph.op.add(name="conv", type="Conv2D", input=["x:0", "w1:0", "", "bias:0", "wait:-1"])
    put_list(conv.attr, "strides", "i", [1, 1, 1, 1])
    put(conv.attr, "data_format", "NCHW")
    put(conv.attr, "relu_flag", True)
    put(conv.attr, "scale", 0.5)
    put(conv.attr, "_tbe_kernel_buffer", b"\x7fELF")
    for _ in conv.input[:4]:
        describe(conv.input_desc.add(), (1, 1, 4, 4, 16), "NC1HWC0")
    describe(conv.output_desc.add(), (1, 1, 4, 4, 16), "NC1HWC0")
    relu = graph.op.add(name="relu", type="Relu", input=["conv:0"])
    describe(relu.output_desc.add(), (1, 1, 4, 4, 16), "NC1HWC0")
    end = graph.op.add(name="Node_Output", type="NetOutput", input=["relu:0"])
    describe(end.input_desc.add(), (1, 16, 4, 4), "NCHW")
    put_list(model.attr, "attr_model_out_nodes_name", "s", ["relu:0:y"])
    put(model.attr, "memory_size", 8192)
    put(model.attr, "weight_size", WEIGHT_BYTES)
    put(model.attr, "stream_num", 2)
    if compiled:
        put(model.attr, "soc_version", "Ascend310B4")
        put(model.attr, "atc_version", "7.6.0.1.220")
        put(model.attr, "opp_version", "7.6.0.1.220")
        put(model.attr, "atc_cmdline", COMMAND)
        put_list(model.attr, "om_info_list", "i", [WEIGHT_BYTES, 30, 0, 40, 0])
        regions = model.attr["sub_memory_info"].list_list_int
        regions.list_list_i.add(list_i=[2, 0, 8192, 0])
    return model


def interface(**gears: Any) -> bytes:
    """MODEL_INOUT_INFO for the graph of `definition`."""
    return InOutInfo(
        [TensorInfo("x", 512, 0, 1, (1, 16, 4, 4))],
        [TensorInfo("relu:0:y", 512, 0, 1, (1, 16, 4, 4))],
        **gears,
    ).pack()


def tasks(*kinds: int) -> bytes:
    """TASK_INFO with tasks of these kinds; kernels run ``conv``."""
    info = ModelTaskDef(memory_size=8192, weight_size=WEIGHT_BYTES)
    for kind in kinds:
        task = info.task.add(type=kind)
        if kind == 0:
            task.kernel.kernel_name = "conv"
    return info.SerializeToString(deterministic=True)


def kernels(*names: str) -> bytes:
    """TBE_KERNELS."""
    items = [(name.encode(), b"\x7fELF" + name.encode()) for name in names]
    return b"".join(struct.pack("<III", ITEM_MAGIC, len(n), len(b)) + n + b for n, b in items)


def libraries() -> bytes:
    """SO_BINS with one library."""
    item = struct.pack("<IHHII", ITEM_MAGIC, 4, 0, 6, 5) + b"a.so" + b"vendor" + bytes(5)
    return struct.pack("<I", 1) + item


def tilings(version: int = 2) -> bytes:
    """TILING_DATA with one tiling; 2 is the version in use."""
    run = struct.pack("<QQIB3xiIII12x4x", 77, 4, 20, 0, 0, 0, 2, 0) + struct.pack("<qq", 512, 1024)
    records = b"".join(
        struct.pack("<BI", kind, len(value)) + value
        for kind, value in ((0, run), (1, b"data"), (2, struct.pack("<qq", 5, 6)))
    )
    return struct.pack("<III", 0xDD776EFE, version, len(records)) + records


def compressed(model: Any, *, dictionary: bool = True) -> Any:
    """Code the attribute names of all ops as CANN 8 does; without the dictionary if asked for."""
    names = [f"n{i}" for i in range(130)]
    names += sorted({name for graph in model.graph for op in graph.op for name in op.attr})
    key = {n: "\0" + chr(i % 127 + 1) + chr(i // 127 + 1) for i, n in enumerate(names)}
    for graph in model.graph:
        for op in graph.op:
            for name in list(op.attr):
                op.attr[key[name]].CopyFrom(op.attr[name])
                del op.attr[name]
    if dictionary:
        put(model.attr, "om_compress_version", 1)
        put_list(model.attr, "attr_name_enum", "s", names)
        put_list(model.attr, "attr_value_enum", "s", [])
        put_list(model.attr, "attrs_use_string_value", "b", [False] * len(names))
    return model


def serialized(model: Any) -> bytes:
    """Return the bytes of a ModelDef."""
    data: bytes = model.SerializeToString(deterministic=True)
    return data


def device_parts(model: Any | None = None) -> list[tuple[int, bytes]]:
    """All partitions of a compiled model, in the order that ATC writes them."""
    return [
        (P.SO_BINS, libraries()),
        (P.TILING_DATA, tilings()),
        (P.MODEL_INOUT_INFO, interface(batch=[1, 2, 8])),
        (P.MODEL_DEF, serialized(model or definition())),
        (P.WEIGHTS_DATA, bytes(range(256)) * (WEIGHT_BYTES // 256)),
        (P.TBE_KERNELS, kernels("conv", "relu")),
        (P.TASK_INFO, tasks(3, 0, 0, 1, 4, 19)),
    ]


def device_om(path: Path, model: Any | None = None) -> Path:
    """Write a compiled model as CANN 8 does: version 2.0, 64-bit table."""
    return assembled(path, device_parts(model), Header(name="net", platform_version="1.11.z.0"))


def several_models(path: Path, *models: Any) -> Path:
    """Write a dynamic model: one table after the other, the first is the root graph."""
    body = b""
    for index, model in enumerate(models):
        parts = [(int(P.MODEL_DEF), serialized(model))]
        if index:
            parts.append((int(P.TASK_INFO), tasks(0, 19)))
        body += assembled(path, parts).read_bytes()[HEADER_BYTES:]
    header = Header(name="net", model_length=len(body), model_num=len(models), dynamic=1)
    path.write_bytes(header.pack() + body)
    return path


def bundle(path: Path, *members: bytes) -> Path:
    """Write a bundle of whole files; its offsets count from the end of its header."""
    count = len(members) + 1
    at = 8 + 24 * count
    table = struct.pack("<I4x", count) + struct.pack("<I4xQQ", P.BUNDLE_MODEL_VAR_INFO, at, 8)
    at += 8
    for member in members:
        table += struct.pack("<I4xQQ", P.BUNDLE_MODEL_INFO, at, len(member))
        at += len(member)
    body = table + bytes(8) + b"".join(members)
    header = Header(name="pack", model_length=HEADER_BYTES + len(body), model_type=5)
    path.write_bytes(header.pack() + body)
    return path


def narrow(
    path: Path, parts: Sequence[tuple[int, bytes]], version: int = VERSION_1, **header: Any
) -> Path:
    """Write a file with a 32-bit table; version 1.0 has no model_num in its header."""
    table, offset = struct.pack("<I", len(parts)), 0
    for kind, data in parts:
        table += struct.pack("<III", kind, offset, len(data))
        offset += len(data)
    body = table + b"".join(data for _, data in parts)
    head = bytearray(Header(length=len(body), platform_version="1.11", **header).pack())
    head[8:12] = struct.pack("<I", version)
    if version == VERSION_1:
        del head[156:160]
        head += bytes(4)
    path.write_bytes(bytes(head) + body)
    return path
