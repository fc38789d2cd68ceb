from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import onnx_ir as ir
import pytest
from tests.support.models import mlp, parse
from tests.support.runner import assert_same_results

from cannc.compiler.core import onnx_io
from cannc.compiler.core.errors import CanncError, ModelError, UsageError
from cannc.compiler.core.onnx_io import read_model, write_model
from cannc.compiler.core.unit import load


def _external(folder: Path, location: str = "w.bin", **entries: str) -> Path:
    """Write a model whose weight w (4 floats) lies in another file."""
    model = parse("g (float[4] x) => (float[4] y) { y = Add(x, w) }", w=np.ones(4, np.float32))
    tensor = model.graph.initializer[0]
    tensor.ClearField("raw_data")
    tensor.data_location = onnx.TensorProto.EXTERNAL
    for key, value in {"location": location, **entries}.items():
        tensor.external_data.add(key=key, value=value)
    path = folder / "m.onnx"
    path.write_bytes(model.SerializeToString())
    return path


def _refusal(path: Path) -> CanncError:
    with pytest.raises(CanncError) as caught:
        load(path)
    return caught.value


@pytest.mark.parametrize(
    ("content", "why"),
    [
        (b"", "empty"),
        (b"# not a model\n", "not a serialized ONNX model"),
        (b"version https://git-lfs.github.com/spec/v1\n", "git lfs pull"),
        (mlp().SerializeToString()[:400], ""),
        (b"\x08\x0a", "no graph"),
    ],
)
def test_files_that_are_no_models(tmp_path: Path, content: bytes, why: str) -> None:
    path = tmp_path / "m.onnx"
    path.write_bytes(content)
    error = _refusal(path)
    assert isinstance(error, ModelError)
    assert error.code in {"ONNX001", "ONNX003"}
    assert why in error.why
    assert error.fix


@pytest.mark.parametrize("name", ["missing.onnx", "."])
def test_no_file(tmp_path: Path, name: str) -> None:
    error = _refusal(tmp_path / name)
    assert isinstance(error, UsageError)
    assert error.code == "IO010"


@pytest.mark.parametrize(
    ("location", "entries", "why"),
    [
        ("w.bin", {}, "does not exist"),
        ("../secret", {}, "leaves the model's folder"),
        ("/etc/passwd", {}, "leaves the model's folder"),
        ("", {}, "leaves the model's folder"),
        ("link", {}, "leaves the model's folder"),
        ("short.bin", {}, "16 bytes needed, 8 in the file"),
        ("long.bin", {"offset": "12"}, "16 bytes needed, 8 in the file from offset 12"),
        ("long.bin", {"offset": "-4"}, "bytes needed"),
        ("long.bin", {"length": "8"}, "bytes needed"),
        ("long.bin", {"offset": "x"}, "not a number"),
    ],
)
def test_unsafe_or_broken_external_data(
    tmp_path: Path, location: str, entries: dict[str, str], why: str
) -> None:
    folder = tmp_path / "model"
    folder.mkdir()
    (tmp_path / "secret").write_bytes(bytes(64))
    (folder / "link").symlink_to(tmp_path / "secret")
    (folder / "short.bin").write_bytes(bytes(8))
    (folder / "long.bin").write_bytes(bytes(20))
    error = _refusal(_external(folder, location, **entries))
    assert error.code == "ONNX002"
    assert why in error.why
    assert "'w'" in error.where


def test_external_data_of_a_branch_is_checked_too(tmp_path: Path) -> None:
    inner = onnx.load(_external(tmp_path), load_external_data=False).graph
    del inner.input[:]
    value = onnx.helper.make_tensor_value_info
    graph = onnx.helper.make_graph(
        [onnx.helper.make_node("If", ["c"], ["y"], then_branch=inner, else_branch=inner)],
        "g",
        [value("c", 9, []), value("x", 1, [4])],
        [value("y", 1, [4])],
    )
    path = tmp_path / "n.onnx"
    path.write_bytes(onnx.helper.make_model(graph).SerializeToString())
    assert _refusal(path).code == "ONNX002"


def test_external_weights_stay_mapped_and_are_inlined_when_written(tmp_path: Path) -> None:
    (tmp_path / "w.bin").write_bytes(np.arange(4, dtype=np.float32).tobytes())
    unit = load(_external(tmp_path))
    tensor = unit.model.graph.initializers["w"].const_value
    assert isinstance(tensor, ir.ExternalTensor)
    other = tmp_path / "other"
    other.mkdir()
    unit.save(other / "m.onnx")
    alone = onnx.load(other / "m.onnx")
    np.testing.assert_array_equal(
        onnx.numpy_helper.to_array(alone.graph.initializer[0]), np.arange(4)
    )


def test_large_weights_go_beside_the_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(onnx_io, "EXTERNAL_ABOVE_BYTES", 100)
    monkeypatch.setattr(onnx_io, "_SMALL_TENSOR_BYTES", 100)
    before = mlp()
    out = load(before).save(tmp_path / "m.onnx")
    (data,) = tmp_path.glob("m.onnx.*.data")
    assert data.stat().st_size >= 8 * 16 * 4
    after = read_model(out)
    assert isinstance(after.graph.initializers["w1"].const_value, ir.ExternalTensor)
    onnx.checker.check_model(str(out))
    x = np.random.default_rng(0).standard_normal((3, 8)).astype(np.float32)
    assert_same_results(before, onnx.load(out), {"x": x})


def test_writing_again_removes_old_data_but_never_what_is_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(onnx_io, "EXTERNAL_ABOVE_BYTES", 100)
    monkeypatch.setattr(onnx_io, "_SMALL_TENSOR_BYTES", 100)
    out = tmp_path / "m.onnx"
    write_model(load(mlp(seed=1)).model, out)
    (old,) = tmp_path.glob("*.data")
    mapped = read_model(out)
    write_model(load(mlp(seed=2)).model, out)
    (new,) = tmp_path.glob("*.data")
    assert new.name != old.name
    write_model(load(mlp(seed=1)).model, tmp_path / "n.onnx")
    reread = read_model(out)
    write_model(reread, out)
    assert out.exists()
    assert len([*tmp_path.glob("m.onnx.*.data")]) == 1
    assert mapped.graph.num_nodes() == reread.graph.num_nodes()


def test_the_same_model_gives_the_same_bytes(tmp_path: Path) -> None:
    one, two = tmp_path / "one.onnx", tmp_path / "two.onnx"
    load(mlp()).save(one)
    load(mlp()).save(two)
    assert one.read_bytes() == two.read_bytes()


def test_too_much_for_protobuf_is_refused_before_memory_is_spent(tmp_path: Path) -> None:
    unit = load(parse("g (float[4] x) => (float[4] y) { y = Add(x, w) }", w=np.ones(4, np.float32)))

    def fail() -> ir.TensorProtocol:
        raise AssertionError("the weight was read")

    shape = ir.Shape([2**30])
    huge = ir.LazyTensor(fail, dtype=ir.DataType.FLOAT, shape=shape)
    unit.model.graph.initializers["w"].const_value = huge
    with pytest.raises(ModelError, match="ONNX004"):
        onnx_io.to_proto(unit.model)


def test_a_model_is_not_written_over_its_source(tmp_path: Path) -> None:
    source = tmp_path / "m.onnx"
    onnx.save(mlp(), source)
    with pytest.raises(UsageError, match="IO001"):
        write_model(load(source).model, source, source)
