"""Dump folders of a device, written as the device does and compared offline."""

import numpy as np
import pytest
from tests.support.device_dumps import dump_model, fractal_nz, nc1hwc0, write_dump
from tests.support.faults import candidate_of, node_of, set_weight
from tests.support.golden_models import cnn, inputs, transformer
from tests.support.models import parse

from cannc.compiler.core.errors import ModelError, UsageError
from cannc.compiler.core.unit import load
from cannc.compiler.om.attributes import put, put_list
from cannc.compiler.om.proto import ModelDef
from cannc.golden.dumps.compare import compare_dumps
from cannc.golden.dumps.file import HEADER, DumpFile
from cannc.golden.dumps.folder import open_runs
from cannc.golden.dumps.layout import FRACTAL_NZ, NC1HWC0, ND, restore
from cannc.golden.dumps.names import DumpName, mapped

RNG = np.random.default_rng(0)


def test_file_names_of_every_release():
    old = DumpName.parse("MatMul.layer_0_MatMul.7.1700000000000000")
    now = DumpName.parse("MatMul.layer_0_MatMul.7.2.1700000000000000")
    tail = DumpName.parse("MatMul.layer_0_MatMul.7.2.1700000000000000.1.4.0.0")
    assert (old.op_type, old.op_name, old.numbers["task"]) == ("MatMul", "layer_0_MatMul", 7)
    assert "stream" not in old.numbers
    assert now.numbers["stream"] == 2
    assert tail.numbers["time"] == now.numbers["time"] == 1700000000000000
    assert not tail.is_slice
    assert DumpName.parse("MatMul.m_lxslice3.7.2.17").is_slice
    for name in (
        "MatMul",
        "MatMul.m",
        "MatMul.m.1",
        "MatMul.m.1.2.3.4",
        "MatMul.m.a.b",
        "a.b.c.csv",
    ):
        assert DumpName.parse(name) is None
    assert mapped("/layer.0/Mat Mul\\x") == "_layer_0_Mat_Mul_x"


@pytest.mark.parametrize("shape", [(1, 3, 4, 5), (2, 16, 1, 1), (2, 35, 3, 2)])
def test_blocked_channels_are_joined(shape):
    array = RNG.standard_normal(shape)
    np.testing.assert_array_equal(restore(nc1hwc0(array), NC1HWC0, 0, shape), array)
    last = array.transpose(0, 2, 3, 1)
    found = restore(nc1hwc0(array), NC1HWC0, 1, last.shape)
    np.testing.assert_array_equal(found, last)


@pytest.mark.parametrize("shape", [(5, 7), (16, 16), (2, 3, 17, 33), (1, 40), (9,)])
def test_fractal_matrices_are_joined(shape):
    array = RNG.standard_normal(shape)
    stored = fractal_nz(array.reshape(-1, shape[-1]) if len(shape) < 2 else array)
    np.testing.assert_array_equal(restore(stored, FRACTAL_NZ, ND, shape), array)


def test_depth_and_turned_layouts():
    array = RNG.standard_normal((2, 5, 3, 4, 6))  # N, C, D, H, W
    blocks = np.zeros((2, 16, 3, 4, 6))
    blocks[:, :5] = array
    stored = blocks.reshape(2, 1, 16, 3, 4, 6).transpose(0, 3, 1, 4, 5, 2)
    np.testing.assert_array_equal(restore(stored, 32, 30, array.shape), array)
    plain = RNG.standard_normal((1, 4, 5, 3))
    turned = restore(plain, 1, 0, (1, 3, 4, 5))
    np.testing.assert_array_equal(turned, plain.transpose(0, 3, 1, 2))


def test_unknown_layouts_and_shapes_that_do_not_fit_are_refused():
    with pytest.raises(ValueError, match="layout 4"):
        restore(np.zeros(4), 4, 0, (4,))
    with pytest.raises(ValueError, match="does not hold"):
        restore(np.zeros(4), ND, ND, (5,))


def test_a_file_gives_back_what_was_written(tmp_path):
    first = RNG.standard_normal((2, 5)).astype(np.float16)
    second = np.arange(3)
    path = write_dump(
        tmp_path,
        "Op",
        "/a.b/c",
        [(second, {}), (first, {"layout": FRACTAL_NZ, "origin": ("n", 1)})],
        inputs=[first],
    )
    dump = DumpFile.open(path)
    assert path.name.startswith("Op._a_b_c.3.1.")
    assert dump.op_name == "/a.b/c"
    assert dump.outputs[1].original == ("n", 1)
    np.testing.assert_array_equal(dump.inputs[0].read(()), first)
    np.testing.assert_array_equal(dump.outputs[0].read(()), second)
    np.testing.assert_array_equal(dump.outputs[1].read(()), first)


def damage(data, how):
    (length,) = HEADER.unpack(data[:8])
    return {
        "short": data[:5],
        "zero": HEADER.pack(0) + data[8:],
        "huge": HEADER.pack(2**31) + data[8:],
        "beyond": HEADER.pack(len(data)) + data[8:],
        "no message": data[:8] + b"\xff" * length + data[8 + length :],
        "cut": data[:-1],
        "long": data + b"\0",
    }[how]


@pytest.mark.parametrize("how", ["short", "zero", "huge", "beyond", "no message", "cut", "long"])
def test_damaged_files_are_refused(tmp_path, how):
    path = write_dump(tmp_path, "Op", "x", [(np.zeros(3, np.float32), {})])
    path.write_bytes(damage(path.read_bytes(), how))
    with pytest.raises(ModelError, match="CMP011"):
        open_runs(tmp_path)


def test_tensors_that_cannot_be_read_say_why(tmp_path):
    path = write_dump(tmp_path, "Op", "x", [(np.zeros(30, np.float32), {})])
    tensor = DumpFile.open(path).outputs[0]
    object.__setattr__(tensor, "dtype", 28)
    with pytest.raises(ValueError, match="data type 28"):
        tensor.read(())
    object.__setattr__(tensor, "dtype", 12)
    with pytest.raises(ValueError, match="needs 240 bytes"):
        tensor.read(())


def test_folders(tmp_path):
    with pytest.raises(UsageError, match="IO010"):
        open_runs(tmp_path / "none")
    with pytest.raises(ModelError, match="no file is named"):
        open_runs(tmp_path)
    (tmp_path / "statistics.csv").write_text("Max,Min")
    with pytest.raises(ModelError, match="tables of statistics"):
        open_runs(tmp_path)
    model = tmp_path / "20260101000000" / "0" / "net" / "1"
    for index in (10, 2):
        write_dump(model / str(index), "Op", "x", [(np.float32([index]), {})])
    write_dump(model / "2", "Op", "y_lxslice1", [(np.float32([0]), {})])
    runs = open_runs(tmp_path)
    assert [run.folder.name for run in runs] == ["2", "10"]
    assert "y_lxslice1" in runs[0].notes[0]
    write_dump(model.parent / "2" / "0", "Op", "x", [(np.float32([0]), {})])
    with pytest.raises(UsageError, match="CMP012"):
        open_runs(tmp_path)


@pytest.fixture(scope="module")
def compiled():
    return candidate_of(transformer(), "fp16", True)


def test_a_fused_quantized_model_has_every_row_accounted_for(compiled, tmp_path):
    model = transformer()
    graph = compiled.model.graph
    softmax = node_of(compiled, "Softmax")
    fused = [softmax.inputs[0].producer().name, softmax.name]
    layouts = {n.name: FRACTAL_NZ for n in graph if n.op_type == "MatMul"}
    dump_model(compiled.model, inputs(model), tmp_path, fused=[fused], layouts=layouts)
    report = compare_dumps(model, compiled, tmp_path, inputs=inputs(model))
    assert report.verdict == "pass"
    assert report.facts.device == "device (tensor dumps)"
    assert sum(report.counts[k] for k in report.counts if k not in ("rows", "failed")) == len(
        load(model).provenance.producers()
    )
    assert not {"unknown", "unmatched"} & set(report.counts)
    rows = {layer.name: layer for layer in report.layers}
    assert rows["p"].candidate_node == "".join(fused)
    assert rows["h1"].kind == "inside"
    assert rows["q2"].kind == "compared"  # a view of a dumped value
    assert rows["y"].accumulated.rel_l2 > 0.0
    assert all(layer.severity < 1.0 for layer in report.culprits)


def test_the_device_fault_is_named_by_isolated_error(compiled, tmp_path):
    model, faulty = transformer(), compiled.copy()

    def scale(scales):
        scales.reshape(-1)[5] *= 3
        return scales

    set_weight(node_of(faulty, "WeightQuantBatchMatmulV2", 3), 2, scale)
    dump_model(faulty.model, inputs(model), tmp_path)
    report = compare_dumps(model, compiled, tmp_path, inputs=inputs(model))
    assert report.verdict == "fail"
    assert report.culprits[0].node == "MatMul_24"
    assert all(layer.severity < 1.0 for layer in report.culprits[1:])


def test_channels_in_blocks_compare_too(tmp_path):
    model = cnn()
    unit = candidate_of(model, "fp16")
    layouts = {n.name: NC1HWC0 for n in unit.model.graph if n.op_type == "Conv"}
    assert layouts
    dump_model(unit.model, inputs(model), tmp_path, layouts=layouts)
    report = compare_dumps(model, unit, tmp_path, inputs=inputs(model))
    assert report.verdict == "pass"
    assert not any(layer.note for layer in report.layers)


CHAIN = """m (float[2, 3] x) => (float[2, 3] y) {
    a = Neg(x)
    b = Exp(a)
    y = Relu(b)
}"""


def device_om(monkeypatch):
    """What a device's .om says: Neg and Exp were fused, a Cast was inserted."""
    definition = ModelDef()
    graph = definition.graph.add(name="g")
    fused = graph.op.add(name="fused", type="NegExp")
    put_list(fused.attr, "_datadump_original_op_names", "s", ["Neg_0", "Exp_1"])
    desc = fused.output_desc.add()
    put(desc.attr, "_datadump_origin_name", "Exp_1")
    put(desc.attr, "_datadump_origin_output_index", 0)
    cast = graph.op.add(name="Relu_2", type="Cast")
    put_list(cast.attr, "_datadump_original_op_names", "s", [])
    cast.output_desc.add()
    graph.op.add(name="last", type="Relu")
    graph.op[-1].output_desc.add()
    put_list(graph.op[-1].attr, "_datadump_original_op_names", "s", ["Relu_2"])

    class Om:
        is_host = False

    Om.definition = definition
    monkeypatch.setattr("cannc.golden.dumps.compare.OmFile.open", lambda _path: Om)


def test_the_om_says_what_was_fused(monkeypatch, tmp_path):
    device_om(monkeypatch)
    x = RNG.standard_normal((2, 3)).astype(np.float32)
    write_dump(tmp_path, "NegExp", "fused", [(np.exp(-x), {})])
    write_dump(tmp_path, "Cast", "Relu_2", [(np.full((2, 3), 9, np.float32), {})])
    write_dump(tmp_path, "Relu", "last", [(np.exp(-x), {})])
    report = compare_dumps(parse(CHAIN), tmp_path / "net.om", tmp_path, inputs={"x": x})
    rows = {layer.name: layer for layer in report.layers}
    assert report.verdict == "pass"
    assert (rows["a"].kind, rows["a"].candidate_node) == ("inside", "fused")
    assert (rows["b"].kind, rows["b"].candidate_node) == ("compared", "fused")
    assert (rows["y"].kind, rows["y"].candidate_node) == ("compared", "last")


def test_names_that_collide_are_told_apart_or_left_out(tmp_path):
    text = "m (float[2] x) => (float[2] y) { a = Neg(x) y = Exp(a) }"
    model = parse(text)
    model.graph.node[0].name, model.graph.node[1].name = "n/1", "n.1"
    x = np.float32([1, 2])
    write_dump(tmp_path, "Neg", "n/1", [(-x, {})], numbers=(1, 0, 1))
    write_dump(tmp_path, "Exp", "n.1", [(np.exp(-x), {})], numbers=(2, 0, 2))
    assert compare_dumps(model, model, tmp_path, inputs={"x": x}).verdict == "pass"
    for path in tmp_path.iterdir():
        path.unlink()
    write_dump(tmp_path, "Exp", "n_1", [(np.exp(-x), {})])
    report = compare_dumps(model, model, tmp_path, inputs={"x": x})
    assert report.verdict == "fail"
    assert {layer.kind for layer in report.layers} == {"undumped"}
    assert any("could be of" in warning for warning in report.warnings)


def test_samples_and_runs_pair_up(tmp_path):
    samples = [{"x": np.full((2, 3), number, np.float32)} for number in (1, 2)]
    model = load(parse(CHAIN)).model
    for index, sample in enumerate(samples):
        dump_model(model, sample, tmp_path / str(index))
    report = compare_dumps(parse(CHAIN), model, tmp_path, inputs=samples)
    assert report.verdict == "pass"
    assert report.facts.samples == 2
    assert compare_dumps(parse(CHAIN), model, tmp_path, inputs=samples[1]).verdict == "pass"
    assert compare_dumps(parse(CHAIN), model, tmp_path, inputs=samples[0]).verdict == "fail"
    with pytest.raises(UsageError, match="CMP013"):
        compare_dumps(parse(CHAIN), model, tmp_path, inputs=samples * 2)


def test_a_missing_output_and_an_unreadable_tensor_fail(tmp_path):
    x = np.float32(RNG.standard_normal((2, 3)))
    model = load(parse(CHAIN)).model
    write_dump(tmp_path, "Neg", "Neg_0", [(-x, {"layout": 4})])
    report = compare_dumps(parse(CHAIN), model, tmp_path, inputs={"x": x})
    rows = {layer.name: layer for layer in report.layers}
    assert report.verdict == "fail"
    assert "layout 4" in rows["a"].note
    assert rows["y"].kind == "undumped"
    np.savez(tmp_path / "saved.npz", x=x)
    with pytest.raises(UsageError, match="CMP004"):
        compare_dumps(tmp_path / "saved.npz", model, tmp_path)
