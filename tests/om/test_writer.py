"""What a host artifact looks like on disk, and what must never be in it."""

import hashlib
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import onnx_ir as ir
import pytest
from onnx import TensorProto as T
from onnx import helper as h
from onnx import numpy_helper
from tests.support.models import mlp, parse
from tests.support.om_files import branching, written

from cannc.compiler.core.errors import ModelError, UsageError
from cannc.compiler.core.tensors import DerivedTensor, cast_to
from cannc.compiler.om.header import HEADER_BYTES
from cannc.compiler.om.partitions import PartitionType
from cannc.compiler.om.reader import OmFile
from cannc.compiler.om.writer import write_om


def constants(file):
    return {w.name: w for w in file.weights}


def test_header_says_what_om_format_section_13_allows(tmp_path):
    file = written(branching(), tmp_path / "m.om")
    header = file.header
    assert (header.version_text, header.model_num, header.model_type) == ("2.0", 1, 0)
    assert (header.ir_version, header.platform_type, header.dynamic) == (2, 1, 0)
    assert header.model_length == file.path.stat().st_size - HEADER_BYTES
    assert header.length == 0
    assert header.checks_host == 1
    assert header.user_info.rstrip(b"\0") == b"cannc host-only artifact"
    assert file.path.read_bytes()[12:76] == bytes(64)  # no checksum


def test_the_marks_of_a_host_artifact(tmp_path):
    file = written(branching(), tmp_path / "m.om", **{"cannc.target": "Ascend910B4"})
    attributes = file.model_attributes
    assert file.is_host
    assert attributes["cannc_artifact_kind"] == "host-only"
    assert attributes["host_env_os"] == attributes["host_env_cpu"]
    assert "host-only" in attributes["host_env_os"]
    assert attributes["cannc.target"] == "Ascend910B4"
    assert attributes["memory_size"] == 0
    size = file.find(PartitionType.WEIGHTS_DATA).size
    assert attributes["weight_size"] == size
    assert attributes["om_info_list"] == [size, 0, 0, 0, 0]
    assert attributes["attr_model_out_nodes_name"] == ["clip:0:z"]


def test_nothing_that_only_a_device_compiler_can_know(tmp_path):
    file = written(branching(), tmp_path / "m.om")
    forbidden = {"atc_version", "opp_version", "atc_cmdline", "soc_version", "tasks"}
    forbidden |= {"stream_num", "event_num", "task_index_op_name"}
    assert not forbidden & set(file.model_attributes)
    assert not [name for name in file.model_attributes if name.startswith("task_gen_")]
    kinds = {part.type for part in file.partitions}
    assert kinds == {PartitionType.WEIGHTS_DATA, PartitionType.MODEL_INOUT_INFO, 0}
    for op in file.definition.graph[0].op:
        assert not op.input_i
        assert not op.output_i
        names = set(op.attr)
        assert not names & {"_ge_attr_op_kernel_lib_name", "_kernelname", "tvm_magic"}


def test_weights_start_at_512_aligned_and_shared_when_equal(tmp_path):
    rng = np.random.default_rng(0)
    a = rng.normal(size=(64, 3)).astype(np.float32)
    model = parse(
        "g (float[3] x) => (float[64] y) { p = MatMul(a, x)\n q = MatMul(b, x)\n"
        " r = MatMul(c, x)\n s = Add(p, q)\n y = Add(s, r) }",
        a=a,
        b=a.copy(),
        c=a + 1,
    )
    file = written(model, tmp_path / "m.om")
    place = constants(file)
    assert place["a"].offset == place["b"].offset == 512
    assert place["c"].offset == 1536
    assert {w.size for w in file.weights} == {768}
    region = file.weight_region
    data = file.path.read_bytes()[region.offset : region.offset + region.size]
    assert data[:512] == bytes(512)
    assert data[512:1280] == a.tobytes()
    assert data[1280:1536] == bytes(256)
    assert region.size % 512 == 0
    assert region.size >= 1536 + 768 + 32


def test_a_copy_that_was_dropped_leaves_nothing_behind(tmp_path):
    big = np.full(2000, 7, np.uint8)
    small = np.full(10, 9, np.uint8)
    model = parse(
        "g () => (uint8[a] x, uint8[b] y, uint8[c] z) { x = Identity(p)\n y = Identity(q)\n"
        " z = Identity(r) }",
        p=big,
        q=big.copy(),
        r=small,
    )
    region = (file := written(model, tmp_path / "m.om")).weight_region
    data = file.path.read_bytes()[region.offset : region.offset + region.size]
    assert data.count(b"\x07") == 2000
    assert data.count(b"\x09") == 10


def test_consumers_repeat_where_their_constant_is(tmp_path):
    file = written(mlp(), tmp_path / "m.om")
    place = constants(file)
    root = file.definition.graph[0]
    checked = 0
    for op in root.op:
        for slot, edge in enumerate(op.input):
            name = edge.rpartition(":")[0]
            assert op.is_input_const[slot] == (name in place)
            if name in place:
                assert op.input_desc[slot].data_offset == place[name].offset
                checked += 1
    assert checked == 4


def test_the_interface_is_always_described(tmp_path):
    info = written(mlp(), tmp_path / "m.om").interface
    (x,), (y,) = info.inputs, info.outputs
    assert (x.name, x.dtype, x.dims, x.size) == ("x", 0, (-1, 8), 0)
    assert (y.name, y.dtype, y.dims) == ("y", 0, (-1, 4))
    static = parse("g (int64[3] a) => (int64[3] b) { b = Neg(a) }")
    info = written(static, tmp_path / "s.om").interface
    assert (info.inputs[0].dtype, info.inputs[0].size, info.inputs[0].format) == (9, 24, 2)


def test_a_model_without_weights_has_two_partitions(tmp_path):
    file = written(parse("g (float[3] a) => (float[3] b) { b = Neg(a) }"), tmp_path / "m.om")
    assert [part.name for part in file.partitions] == ["MODEL_INOUT_INFO", "MODEL_DEF"]
    assert file.model_attributes["weight_size"] == 0


def test_every_list_attribute_says_what_it_lists(tmp_path):
    model = parse("g (float[3] a) => (float[3] b) { b = Foo<ints: ints = []>(a) }")
    file = written(model, tmp_path / "m.om")
    (op,) = (op for op in file.definition.graph[0].op if op.type == "Foo")
    assert op.attr["ints"].list.val_type == 2


SCRIPT = """
import sys
from pathlib import Path
from tests.support.om_files import branching, written
written(branching(), Path(sys.argv[1]), note="n")
"""


def test_bytes_are_the_same_in_another_process(tmp_path):
    root = Path(__file__).parents[2]
    digests = set()
    for seed in ("1", "2"):
        path = tmp_path / seed / "m.om"
        path.parent.mkdir()
        env = {**os.environ, "PYTHONHASHSEED": seed, "PYTHONPATH": f"{root / '.src'}:{root}"}
        subprocess.run([sys.executable, "-c", SCRIPT, str(path)], check=True, env=env)
        digests.add(hashlib.sha256(path.read_bytes()).hexdigest())
    own = written(branching(), tmp_path / "m.om", note="n").path.read_bytes()
    assert digests == {hashlib.sha256(own).hexdigest()}


def test_writing_again_what_was_read_gives_the_same_bytes(tmp_path):
    first = written(branching(), tmp_path / "m.om")
    again = tmp_path / "n.om"
    write_om(first.to_model(), again, name="m", attributes={})
    assert again.read_bytes() == first.path.read_bytes()


def test_a_failure_leaves_the_old_file(tmp_path):
    out = tmp_path / "m.om"
    before = written(mlp(), out).path.read_bytes()
    broken = ir.from_proto(mlp())

    def explode(_):
        message = "disk on fire"
        raise RuntimeError(message)

    weight = broken.graph.initializers["w2"]
    weight.const_value = DerivedTensor(weight.const_value, explode, ir.DataType.FLOAT)
    with pytest.raises(RuntimeError, match="disk on fire"):
        write_om(broken, out, name="m", attributes={})
    assert out.read_bytes() == before
    assert [p.name for p in tmp_path.iterdir()] == ["m.om"]


def test_a_file_cannot_be_rewritten_from_its_own_weights(tmp_path):
    file = written(mlp(), tmp_path / "m.om")
    with pytest.raises(UsageError, match="same file"):
        write_om(file.to_model(), file.path, name="m", attributes={})


def test_nor_from_weights_that_are_computed_from_it(tmp_path):
    model = written(mlp(), tmp_path / "m.om").to_model()
    weight = model.graph.initializers["w1"]
    weight.const_value = cast_to(weight.const_value, ir.DataType.FLOAT16)
    with pytest.raises(UsageError, match="same file"):
        write_om(model, tmp_path / "m.om", name="m", attributes={})


def test_lazy_weights_are_computed_once(tmp_path):
    model = ir.from_proto(mlp())
    calls = []

    def halve(array):
        calls.append(array.shape)
        return array.astype(np.float16)

    weight = model.graph.initializers["w1"]
    weight.const_value = DerivedTensor(weight.const_value, halve, ir.DataType.FLOAT16)
    weight.type = ir.TensorType(ir.DataType.FLOAT16)
    write_om(model, tmp_path / "m.om", name="m", attributes={})
    assert calls == [(8, 16)]


def test_a_taken_attribute_name_is_refused(tmp_path):
    with pytest.raises(UsageError, match="'memory_size'"):
        written(mlp(), tmp_path / "m.om", memory_size=5)


def test_a_model_without_output_is_refused(tmp_path):
    model = parse("g (float[3] a) => () { b = Neg(a) }")
    with pytest.raises(ModelError, match="no output"):
        written(model, tmp_path / "m.om")


def test_a_long_name_is_cut_between_characters(tmp_path):
    path = tmp_path / "m.om"
    write_om(ir.from_proto(mlp()), path, name="\u00e9" * 40, attributes={})
    assert OmFile.open(path).header.name == "\u00e9" * 15


@pytest.mark.slow
def test_weights_are_streamed(tmp_path):
    """Half a GiB of weights in a file, written and read back by a process that peaks far below."""
    count, rows = 8, 2**20
    data = tmp_path / "w.bin"
    rng = np.random.default_rng(0)
    with data.open("wb") as stream:
        for _ in range(count):
            stream.write(rng.integers(0, 256, 64 * rows, dtype=np.uint8).tobytes())
    script = f"""
import resource, sys
from pathlib import Path
import onnx_ir as ir
from cannc.compiler.om.reader import OmFile
from cannc.compiler.om.writer import write_om
folder = Path({str(tmp_path)!r})
base = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
size = 64 * {rows}
values, nodes = [], []
for i in range({count}):
    tensor = ir.ExternalTensor("w.bin", i * size, size, ir.DataType.UINT8,
                               shape=ir.Shape([size]), name=f"w{{i}}", base_dir=folder)
    values.append(ir.Value(name=f"w{{i}}", type=ir.TensorType(tensor.dtype), shape=tensor.shape,
                           const_value=tensor))
    nodes.append(ir.Node("", "Identity", [values[-1]], outputs=[ir.Value(name=f"y{{i}}")]))
graph = ir.Graph([], [n.outputs[0] for n in nodes], nodes=nodes, initializers=values,
                 opset_imports={{"": 18}})
write_om(ir.Model(graph, ir_version=10), folder / "m.om", name="m", attributes={{}})
OmFile.open(folder / "m.om").to_model()
print((resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - base) // 1024)
"""
    env = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2] / ".src")}
    done = subprocess.run(
        [sys.executable, "-c", script], check=True, env=env, capture_output=True, text=True
    )
    assert int(done.stdout) < 200  # MiB
    region = OmFile.open(tmp_path / "m.om").weight_region
    with data.open("rb") as source, (tmp_path / "m.om").open("rb") as stream:
        stream.seek(region.offset + 512)
        while chunk := source.read(2**24):
            assert stream.read(2**24) == chunk


def test_a_graph_output_that_is_an_input_or_a_constant(tmp_path):
    graph = h.make_graph(
        [h.make_node("Neg", ["x"], ["y"])],
        "g",
        [h.make_tensor_value_info("x", T.FLOAT, [2])],
        [h.make_tensor_value_info(name, T.FLOAT, [2]) for name in ("x", "w", "y", "y")],
        [numpy_helper.from_array(np.ones(2, np.float32), "w")],
    )
    model = h.make_model(graph, opset_imports=[h.make_opsetid("", 18)])
    back = written(model, tmp_path / "m.om").to_model()
    assert [v.name for v in back.graph.outputs] == ["x", "w", "y", "y"]


@pytest.mark.torch
@pytest.mark.parametrize("shape", [(3, 4), (), (0, 2), (2, 3, 4)])
def test_weights_that_live_in_pytorch(shape, tmp_path):
    torch = pytest.importorskip("torch", reason="needs the torch extra")
    numbers = torch.arange(int(np.prod(shape)), dtype=torch.float32).reshape(shape)
    model = ir.from_proto(
        parse("g (float[N] x) => (float[M] y) { y = Add(x, w) }", w=np.float32(0))
    )
    value = model.graph.initializers["w"]
    value.const_value = ir.tensor_adapters.TorchTensor(numbers, name="w")
    value.shape = ir.Shape(shape)
    write_om(model, tmp_path / "m.om", name="m", attributes={})
    back = OmFile.open(tmp_path / "m.om").to_model()
    weight = back.graph.initializers["w"].const_value
    assert weight.numpy().tolist() == numbers.tolist()
