"""Samples: folders and raw files, as ais_bench takes them."""

import numpy as np
import onnx_ir as ir
import pytest
from tests.support.models import parse

from cannc.compiler.core.errors import UsageError
from cannc.compiler.frontend.samples import read_samples
from cannc.compiler.runtime.ports import input_ports

MODEL = """<ir_version: 10, opset_import: ["": 18]>
g (float16[N,3] x, int64[2] ids, float[A,B] two) => (float16[N,3] y) { y = Neg (x) }"""
PORTS = input_ports(ir.from_proto(parse(MODEL)))


@pytest.fixture
def folders(tmp_path):
    for name in ("xs", "ids"):
        (tmp_path / name).mkdir()
    for k in range(3):
        np.full((k + 1, 3), k, np.float16).tofile(tmp_path / "xs" / f"s{k}.bin")
        np.save(tmp_path / "ids" / f"i{k}.npy", np.array([k, k]))
    (tmp_path / "xs" / "notes.txt").write_text("not a sample")
    return tmp_path


@pytest.mark.parametrize("named", [True, False])
def test_the_nth_files_of_folders_are_a_sample(folders, named):
    xs, ids = folders / "xs", folders / "ids"
    specs = [f"x={xs}", f"ids={ids}"] if named else [f"{xs},{ids}"]
    samples = read_samples(specs, PORTS)
    assert [sample.name for sample in samples] == ["s0", "s1", "s2"]
    for k, sample in enumerate(samples):
        assert (sample.feeds["x"].dtype, sample.feeds["x"].shape) == (np.float16, (k + 1, 3))
        assert (sample.feeds["x"] == k).all()
        assert sample.feeds["ids"].tolist() == [k, k]


def test_single_files(folders, tmp_path):
    np.array([4, 5]).tofile(tmp_path / "ids.bin")
    np.savez(tmp_path / "more.npz", two=np.ones((1, 2), np.float32))
    specs = [f"ids={tmp_path / 'ids.bin'}", f"{tmp_path / 'more.npz'}"]
    (sample,) = read_samples(specs, PORTS)
    assert sample.feeds["ids"].tolist() == [4, 5]
    assert sample.feeds["two"].shape == (1, 2)
    assert read_samples([str(tmp_path / "more.npz")], PORTS)[0].name == ""
    assert read_samples([], PORTS) == []


@pytest.mark.parametrize(
    ("spec", "size", "code", "said"),
    [
        ("x={}", 7, "INP012", "7 bytes do not fit input 'x'"),
        ("ids={}", 8, "INP012", "16 bytes are expected"),
        ("two={}", 8, "INP012", "several sizes are open"),
        ("y={}", 8, "INP002", "no input 'y'"),
        ("{},{},{},{}", 8, "INP002", "4 paths for 3 inputs"),
    ],
)
def test_what_does_not_fit(spec, size, code, said, tmp_path):
    path = tmp_path / "raw.bin"
    path.write_bytes(bytes(size))
    with pytest.raises(UsageError) as error:
        read_samples([spec.replace("{}", str(path))], PORTS)
    assert error.value.code == code
    assert said in str(error.value)


def test_folders_of_different_length_and_without_samples(folders):
    (folders / "ids" / "i2.npy").unlink()
    with pytest.raises(UsageError) as error:
        read_samples([f"{folders / 'xs'},{folders / 'ids'}"], PORTS)
    assert error.value.code == "INP013"
    assert "x: 3, ids: 2" in error.value.where
    (folders / "none").mkdir()
    for path, code in (("none", "INP011"), ("xs/notes.txt", "INP011"), ("missing", "IO010")):
        with pytest.raises(UsageError) as error:
            read_samples([f"x={folders / path}"], PORTS)
        assert error.value.code == code
