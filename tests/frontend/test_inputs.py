"""Input arrays from files, and shapes fixed by the user."""

import numpy as np
import onnx_ir as ir
import pytest
from tests.support.models import mlp

from cannc.compiler.core.arrays import read_npz
from cannc.compiler.core.errors import CanncError, UsageError
from cannc.compiler.frontend.inputs import fix_shapes, read_inputs


def test_npz_and_npy(tmp_path):
    np.savez(tmp_path / "a.npz", x=np.arange(3))
    np.save(tmp_path / "b.npy", np.ones(2))
    arrays = read_inputs((str(tmp_path / "a.npz"), f"y={tmp_path / 'b.npy'}"))
    assert arrays["x"].tolist() == [0, 1, 2]
    assert arrays["y"].tolist() == [1, 1]


@pytest.mark.parametrize("content", [b"", b"PK\x03\x04 damaged", b"text"])
def test_damaged_archives(content, tmp_path):
    path = tmp_path / "a.npz"
    path.write_bytes(content)
    with pytest.raises(CanncError) as caught:
        read_npz(path)
    assert caught.value.code == "INP010"


def test_other_files_are_refused():
    with pytest.raises(UsageError) as caught:
        read_inputs(("x=a.txt",))
    assert caught.value.code == "INP011"


def test_minus_one_keeps_a_symbolic_dimension():
    model = ir.from_proto(mlp())
    fix_shapes(model, {"x": (-1, 8)})
    assert str(model.graph.inputs[0].shape) == "[N,8]"
    fix_shapes(model, {"x": (4, -1)})
    assert str(model.graph.inputs[0].shape) == "[4,8]"
