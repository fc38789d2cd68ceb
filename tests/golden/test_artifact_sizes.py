"""Comparing artifacts that are compiled for certain sizes."""

import numpy as np
import onnx_ir as ir
import pytest
from tests.support.gears import with_gears
from tests.support.models import mlp

from cannc.compiler.core.errors import UsageError
from cannc.compiler.core.unit import CompileUnit, load
from cannc.compiler.om.writer import write_om
from cannc.golden.compare import compare

GEARS = [{"x": (n, 8)} for n in (2, 6)]


def sample(batch):
    return {"x": np.random.default_rng(0).standard_normal((batch, 8)).astype(np.float32)}


def faulty():
    model = mlp()
    weight = next(t for t in model.graph.initializer if t.name == "b1")
    weight.raw_data = (np.frombuffer(weight.raw_data, np.float32) + 1).tobytes()
    return model


def stamped(proto):
    unit = CompileUnit.of(ir.from_proto(proto))
    unit.stamp()
    return ir.to_proto(unit.model)


@pytest.fixture
def artifact(tmp_path):
    return with_gears(stamped(faulty()), tmp_path / "m.om", GEARS).path


def test_the_culprit_is_found_at_the_size_of_a_gear(artifact):
    for batch in (2, 6):
        report = compare(mlp(), artifact, inputs=sample(batch))
        assert report.culprits[0].node == "Add_1"
        assert report.warnings == ()


def test_without_inputs_the_largest_gear_is_compared(artifact):
    report = compare(mlp(), artifact)
    assert report.culprits[0].node == "Add_1"
    assert next(layer for layer in report.layers if layer.name == "y").shape == (6, 4)


def test_examples_count_if_a_gear_takes_them(artifact):
    golden = load(mlp())
    for batch, origin in ((2, "examples"), (3, "random")):
        golden.examples = sample(batch)
        assert origin in compare(golden, artifact).facts.inputs


def test_inputs_of_another_size_are_refused(artifact):
    with pytest.raises(UsageError) as error:
        compare(mlp(), artifact, inputs=[sample(2), sample(3)])
    assert error.value.code == "RUN015"
    assert "x[2,8]; x[6,8]" in error.value.where


def test_ranges_hold_for_comparisons_too(tmp_path):
    path = tmp_path / "m.om"
    model = ir.from_proto(stamped(mlp()))
    write_om(model, path, name="m", attributes={}, ranges={"x": ((1, 4), (8, 8))})
    report = compare(mlp(), path)
    assert report.verdict == "pass"
    assert next(layer for layer in report.layers if layer.name == "y").shape == (4, 4)
    with pytest.raises(UsageError) as error:
        compare(mlp(), path, inputs=sample(5))
    assert error.value.code == "INP008"
