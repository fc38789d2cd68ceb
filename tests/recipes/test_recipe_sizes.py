"""Gears and ranges in a recipe, down to what the artifact takes."""

import numpy as np
import pytest
from tests.support.models import mlp, save

import cannc
from cannc.compiler.build import build
from cannc.compiler.core.errors import UsageError


@pytest.fixture
def recipe(tmp_path):
    save(mlp(), tmp_path / "net.onnx")
    np.savez(tmp_path / "x.npz", x=np.ones((2, 8), np.float32))
    path = tmp_path / "net.yaml"
    path.write_text("name: net\nsource: {onnx: net.onnx}\ninputs: {npz: x.npz}\n")
    return path


def test_gears(recipe, tmp_path):
    result = build(recipe, tmp_path / "out", overrides={"compile.gears": "{N: [1, 2, 4]}"})
    assert result.passed
    with cannc.Session(result.artifact) as session:
        assert [gear.sizes for gear in session.gears] == [(1,), (2,), (4,)]
        assert session.run({"x": np.ones((3, 8), np.float32)})["y"].shape == (3, 4)


def test_ranges(recipe, tmp_path):
    result = build(recipe, tmp_path / "out", overrides={"compile.ranges": "{N: 1~4}"})
    assert result.passed
    with cannc.Session(result.artifact) as session:
        assert session.run({"x": np.ones((4, 8), np.float32)})["y"].shape == (4, 4)
        with pytest.raises(UsageError) as error:
            session.run({"x": np.ones((5, 8), np.float32)})
        assert error.value.code == "INP008"


def test_a_dimension_that_is_not_there(recipe, tmp_path):
    with pytest.raises(UsageError) as error:
        build(recipe, tmp_path / "out", overrides={"compile.ranges": "{n: 1~4}"})
    assert error.value.code == "RCP004"
    assert "did you mean 'N'" in error.value.what
